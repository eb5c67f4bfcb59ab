"""What this machine can hold a process tree with, tried rather than guessed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path

from proctor.contain import cgroup
from proctor.contain.prefix import bwrap_prefix, cgroup_prefix, unshare_prefix
from proctor.errors import InputError, MachineError
from proctor.fact import Authority, Fact

FORCE_VARIABLE = "PROCTOR_CONTAINMENT"

_TRIAL_S = 5.0


class Variant(StrEnum):
    """Ways to hold a process tree, the best first."""

    BWRAP = "bwrap"
    BUNDLED_BWRAP = "bundled-bwrap"
    UNSHARE = "unshare"
    CGROUP = "cgroup"
    WARDEN = "warden"


RUNG = {Variant.BWRAP: 1, Variant.BUNDLED_BWRAP: 1, Variant.UNSHARE: 1, Variant.CGROUP: 2, Variant.WARDEN: 3}

_ALL = "every descendant, whatever its session, group or environment"
_CATCHES = {
    1: (
        _ALL,
        "kill -9 of Proctor: the kernel ends the whole tree",
        "files and network of probes: they write to their own copy only, and see neither your home nor the network",
    ),
    2: (_ALL, "kill -9 of Proctor: a guard ends the whole tree, and the next Proctor does if that was killed too"),
    3: (f"{_ALL}, while the warden lives", "kill -9 of Proctor: the warden ends the whole tree"),
}
_OUTSIDE = "work handed to a daemon outside the tree (docker, systemd-run, at) escapes"
_AGENTS_FILES = "files and network of agents are not contained by this"
_NO_FILES = "files and network are not contained: a probe can not be run unless it says `contain: none`"
_INEXACT = "exit code 128+n and death by signal n look alike"
_MISSES = {
    Variant.BWRAP: (_OUTSIDE, _AGENTS_FILES, _INEXACT),
    Variant.BUNDLED_BWRAP: (_OUTSIDE, _AGENTS_FILES, _INEXACT, "the agent starts with SIGPIPE ignored"),
    Variant.UNSHARE: (
        _OUTSIDE,
        _AGENTS_FILES,
        "the cause of death by SIGKILL is lost: it looks like exit code 1",
        "the agent is process 1 of its namespace: a SIGTERM it does not handle is ignored, orphans are not collected",
    ),
    Variant.CGROUP: (
        _OUTSIDE,
        "a process that may write to the cgroup file system can move itself out",
        _NO_FILES,
    ),
    Variant.WARDEN: (
        _OUTSIDE,
        "kill -9 of the warden: a descendant in its own session and with an emptied environment lives on",
        _NO_FILES,
        _INEXACT,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of trying one way: the tools it takes, or why it cannot be had."""

    variant: Variant
    is_found: bool
    why: str
    tools: tuple[str, ...] = ()

    @property
    def rung(self) -> int:
        return RUNG[self.variant]


@dataclass(frozen=True, slots=True, kw_only=True)
class Containment:
    """The way chosen, and what it cannot do."""

    variant: Variant
    tools: tuple[str, ...]
    catches: tuple[str, ...]
    misses: tuple[str, ...]

    @property
    def rung(self) -> int:
        return RUNG[self.variant]

    @property
    def program(self) -> str:
        return self.tools[0]

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
    """The best way found, or the one that PROCTOR_CONTAINMENT names."""
    findings = tuple(findings)
    forced = os.environ.get(FORCE_VARIABLE)
    if forced and forced not in list(Variant):
        raise InputError("usage", f"{FORCE_VARIABLE}={forced} is unknown", suggestion=", ".join(Variant))
    for finding in sorted(findings, key=lambda each: list(Variant).index(each.variant)):
        if finding.is_found and finding.variant.value == (forced or finding.variant.value):
            return Containment(
                variant=finding.variant,
                tools=finding.tools,
                catches=_CATCHES[finding.rung],
                misses=_MISSES[finding.variant],
            )
    if forced:
        reasons = [each.why for each in findings if each.variant == forced] or ["it was not looked for"]
        raise MachineError("machine.no-containment", f"{FORCE_VARIABLE} asks for {forced}: {reasons[0]}")
    tried = "; ".join(f"{each.variant}: {each.why}" for each in findings)
    raise MachineError("machine.no-containment", f"nothing here can hold a process tree ({tried})")


@cache
def _survey(search_path: str, bundled_bwrap: Path | None) -> tuple[Finding, ...]:
    return tuple(_try_all(search_path, bundled_bwrap))


def _try_all(search_path: str, bundled_bwrap: Path | None) -> Iterator[Finding]:
    if why := _no_kernel_support():
        for variant in Variant:
            yield _absent(variant, why)
        return
    bwrap, setpriv, unshare = (shutil.which(name, path=search_path) for name in ("bwrap", "setpriv", "unshare"))
    if bwrap:
        yield _try(Variant.BWRAP, (bwrap,), bwrap_prefix(bwrap), inner=bwrap)
    else:
        yield _absent(Variant.BWRAP, "bwrap is not on PATH")
    if bundled_bwrap is not None and shutil.which(bundled_bwrap):
        bundled = str(bundled_bwrap)
        yield _try(Variant.BUNDLED_BWRAP, (bundled,), bwrap_prefix(bundled), inner=bundled)
    else:
        yield _absent(Variant.BUNDLED_BWRAP, "no agent package with a bwrap inside is installed")
    if setpriv and unshare:
        prefix = unshare_prefix(setpriv, unshare, is_root=os.geteuid() == 0)
        yield _try(Variant.UNSHARE, (setpriv, unshare), prefix, inner=unshare)
    else:
        yield _absent(Variant.UNSHARE, "setpriv and unshare are not both on PATH")
    yield _try_cgroup()
    yield _find_warden()


def _no_kernel_support() -> str | None:
    if sys.platform != "linux":
        return f"{sys.platform} is not Linux"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return "the kernel has no pidfd_open: Linux 5.3 or newer is needed"
    return None


def _absent(variant: Variant, why: str) -> Finding:
    return Finding(variant=variant, is_found=False, why=why)


def _try(variant: Variant, tools: tuple[str, ...], prefix: tuple[str, ...], *, inner: str) -> Finding:
    """Run the wrapper's own program inside itself: no other program need exist."""
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
    return Finding(variant=variant, is_found=True, why=f"{inner} works here", tools=tools)


def _try_cgroup() -> Finding:
    """Delegated means: we may make a cgroup below our own and put a process into it, and it has cgroup.kill."""
    try:
        ours = cgroup.our_cgroup()
    except OSError as error:
        return _absent(Variant.CGROUP, str(error))
    trial = ours.with_name(f"{ours.name}-trial")
    try:
        trial.mkdir()
    except OSError as error:
        return _absent(Variant.CGROUP, f"{trial.parent} is not delegated: {error.strerror}")
    try:
        if not (trial / "cgroup.kill").exists():
            return _absent(Variant.CGROUP, "the kernel has no cgroup.kill: Linux 5.14 or newer is needed")
        tried = _try(Variant.CGROUP, (cgroup.SHELL, str(ours)), cgroup_prefix(cgroup.SHELL, trial), inner="true")
    finally:
        trial.rmdir()
    return replace(tried, why=f"{trial.parent} is delegated") if tried.is_found else tried


def _find_warden() -> Finding:
    # Not run: two interpreters more at every start. A kernel with pidfds has subreapers and death signals.
    if not Path("/proc/thread-self/children").exists():
        return _absent(Variant.WARDEN, "the kernel does not list a process's children")
    return Finding(variant=Variant.WARDEN, is_found=True, why="the kernel has subreapers", tools=(sys.executable,))
