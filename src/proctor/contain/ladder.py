"""What this machine can hold a process tree with, tried rather than guessed."""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from proctor.errors import InputError, MachineError
from proctor.fact import Authority, Fact

FORCE_VARIABLE = "PROCTOR_CONTAINMENT"

_TRIAL_S = 5.0
_PR_GET_CHILD_SUBREAPER = 37


class Variant(StrEnum):
    """Ways to hold a process tree, the best first."""

    BWRAP = "bwrap"
    BUNDLED_BWRAP = "bundled-bwrap"
    UNSHARE = "unshare"
    CGROUP = "cgroup"
    WARDEN = "warden"


RUNG = {Variant.BWRAP: 1, Variant.BUNDLED_BWRAP: 1, Variant.UNSHARE: 1, Variant.CGROUP: 2, Variant.WARDEN: 3}

_CATCHES = (
    "every descendant, whatever its session, group or environment",
    "kill -9 of Proctor: the kernel ends the whole tree",
)
_OUTSIDE = (
    "work handed to a daemon outside the tree (docker, systemd-run, at) escapes",
    "files and network are not contained by this",
)
_MISSES = {
    Variant.BWRAP: ("exit code 128+n and death by signal n look alike",),
    Variant.BUNDLED_BWRAP: ("exit code 128+n and death by signal n look alike",),
    Variant.UNSHARE: (
        "the cause of death by SIGKILL is lost: it looks like exit code 1",
        "the agent is process 1 of its namespace: a SIGTERM it does not handle is ignored, orphans are not collected",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of trying one way: the argv that goes before the agent's, or why it cannot be had."""

    variant: Variant
    is_found: bool
    why: str
    prefix: tuple[str, ...] = ()

    @property
    def rung(self) -> int:
        return RUNG[self.variant]


@dataclass(frozen=True, slots=True, kw_only=True)
class Containment:
    """The way chosen, and what it cannot do."""

    variant: Variant
    program: str
    prefix: tuple[str, ...]
    catches: tuple[str, ...]
    misses: tuple[str, ...]

    @property
    def rung(self) -> int:
        return RUNG[self.variant]

    def fact(self) -> Fact:
        return Fact(
            value={
                "rung": self.rung,
                "variant": self.variant.value,
                "program": self.program,
                "catches": self.catches,
                "misses": self.misses,
            },
            authority=Authority.OBSERVED,
            source="trial run on this machine",
        )


def survey(*, search_path: str | None = None, bundled_bwrap: Path | None = None) -> tuple[Finding, ...]:
    """Try every way once in the life of this process. `search_path` stands in for PATH."""
    return _survey(os.environ.get("PATH", os.defpath) if search_path is None else search_path, bundled_bwrap)


def choose(findings: Iterable[Finding]) -> Containment:
    """The best way found that this version uses, or the one that PROCTOR_CONTAINMENT names."""
    findings = tuple(findings)
    usable = {each.variant: each for each in findings if each.rung == 1}
    forced = os.environ.get(FORCE_VARIABLE)
    if forced:
        if forced not in (each.value for each, rung in RUNG.items() if rung == 1):
            raise InputError(
                "usage", f"{FORCE_VARIABLE}={forced} is unknown", suggestion="bwrap, bundled-bwrap or unshare"
            )
        usable = {variant: each for variant, each in usable.items() if variant == forced}
    for finding in usable.values():
        if finding.is_found:
            return Containment(
                variant=finding.variant,
                program=finding.prefix[0],
                prefix=finding.prefix,
                catches=_CATCHES,
                misses=(*_OUTSIDE, *_MISSES[finding.variant]),
            )
    raise MachineError("machine.no-containment", _refusal(findings, forced))


def bwrap_prefix(bwrap: str) -> tuple[str, ...]:
    # Without a fresh /proc an agent's own sandboxed shell breaks silently.
    return (bwrap, "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "--die-with-parent", "--")


def unshare_prefix(setpriv: str, unshare: str, *, is_root: bool) -> tuple[str, ...]:
    # --kill-child alone does not outlive kill -9 of Proctor when the agent ignores EOF; setpriv's death signal does.
    # --map-root-user would make an agent refuse its own folders as not user-owned.
    user = () if is_root else ("--user", "--map-current-user")
    return (
        *(setpriv, "--pdeathsig", "KILL", "--"),
        *(unshare, *user, "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
    )


@cache
def _survey(search_path: str, bundled_bwrap: Path | None) -> tuple[Finding, ...]:
    return tuple(_try_all(search_path, bundled_bwrap))


def _try_all(search_path: str, bundled_bwrap: Path | None) -> Iterator[Finding]:
    if sys.platform != "linux":
        for variant in Variant:
            yield Finding(variant=variant, is_found=False, why=f"{sys.platform} is not Linux")
        return
    bwrap = shutil.which("bwrap", path=search_path)
    yield _try(Variant.BWRAP, bwrap_prefix(bwrap)) if bwrap else _absent(Variant.BWRAP, "bwrap is not on PATH")
    if bundled_bwrap is not None and shutil.which(bundled_bwrap):
        yield _try(Variant.BUNDLED_BWRAP, bwrap_prefix(str(bundled_bwrap)))
    else:
        yield _absent(Variant.BUNDLED_BWRAP, "no agent package with a bwrap inside is installed")
    setpriv, unshare = (shutil.which(name, path=search_path) for name in ("setpriv", "unshare"))
    if setpriv and unshare:
        yield _try(Variant.UNSHARE, unshare_prefix(setpriv, unshare, is_root=os.geteuid() == 0))
    else:
        yield _absent(Variant.UNSHARE, "setpriv and unshare are not both on PATH")
    yield _detect_cgroup()
    yield _detect_warden()


def _absent(variant: Variant, why: str) -> Finding:
    return Finding(variant=variant, is_found=False, why=why)


def _try(variant: Variant, prefix: tuple[str, ...]) -> Finding:
    """Run the wrapper's own program inside itself: no other program need exist."""
    if not _has_pidfd():
        return _absent(variant, "the kernel has no pidfd_open: Linux 5.3 or newer is needed")
    inner = prefix[0] if variant is not Variant.UNSHARE else prefix[prefix.index("--") + 1]
    try:
        done = subprocess.run(
            [*prefix, inner, "--version"],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_S,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _absent(variant, f"{inner} did not answer within {_TRIAL_S:g} s")
    except OSError as error:
        return _absent(variant, f"{inner} cannot be started: {error.strerror}")
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit {done.returncode}"]
        return _absent(variant, f"{inner} fails here: {said[-1]}")
    return Finding(variant=variant, is_found=True, why=f"{inner} works here", prefix=prefix)


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def _detect_cgroup() -> Finding:
    """Delegated means: we may make a cgroup below our own, and it has cgroup.kill."""
    try:
        own = next(
            line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")
        ).lstrip("/")
        # Fields of proc_pid_mountinfo(5): the mount point is the fifth, the type follows the lone hyphen.
        mount = next(
            line.split()[4]
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if line.partition(" - ")[2].startswith("cgroup2 ")
        )
    except (OSError, StopIteration):
        return _absent(Variant.CGROUP, "no cgroup v2 is mounted")
    trial = Path(mount, own, f"proctor-trial-{os.getpid()}")
    try:
        trial.mkdir()
    except OSError as error:
        return _absent(Variant.CGROUP, f"{trial.parent} is not delegated: {error.strerror}")
    try:
        can_kill = (trial / "cgroup.kill").exists()
    finally:
        trial.rmdir()
    if not can_kill:
        return _absent(Variant.CGROUP, "the kernel has no cgroup.kill: Linux 5.14 or newer is needed")
    return Finding(variant=Variant.CGROUP, is_found=True, why=f"{trial.parent} is delegated")


def _detect_warden() -> Finding:
    answer = ctypes.c_int()
    if ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0) != 0:
        return _absent(Variant.WARDEN, "the kernel has no child subreapers")
    return Finding(variant=Variant.WARDEN, is_found=True, why="the kernel has child subreapers")


def _refusal(findings: tuple[Finding, ...], forced: str | None) -> str:
    if forced:
        reasons = [each.why for each in findings if each.variant == forced] or ["it was not looked for"]
        return f"{FORCE_VARIABLE} asks for {forced}: {reasons[0]}"
    tried = "; ".join(f"{each.variant}: {each.why}" for each in findings if each.rung == 1)
    lower = " and ".join(f"{each.variant} ({each.why})" for each in findings if each.rung > 1 and each.is_found)
    also = f" This machine does offer {lower}, which this version of Proctor does not use." if lower else ""
    return (
        f"no pid namespace can be had ({tried}).{also} "
        "Install bubblewrap, or util-linux with setpriv and unshare, or allow user namespaces."
    )
