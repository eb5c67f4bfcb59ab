"""The containment ladder: test which ways to contain a process tree work on this machine and choose the best.

Rungs, best first: 1 is a pid namespace (bwrap or unshare), which can also be fenced; 2 is a delegated cgroup; 3 is a
warden process. Each way (`Variant`) is tested by running it. On rung 1, a way that can mount overlays is better than
one that cannot: a probe then needs no copy of the workspace.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path

from proctor import places
from proctor.contain import cgroup
from proctor.contain.prefix import bwrap_prefix, cgroup_prefix, overlay_test_prefix, unshare_prefix
from proctor.errors import InputError, MachineError
from proctor.fact import Authority, Fact

FORCE_VARIABLE = "PROCTOR_CONTAINMENT"

_TRIAL_S = 5.0


class Variant(StrEnum):
    """Ways to contain a process tree, best first."""

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
    2: (_ALL, "kill -9 of Proctor: a guard ends the whole tree; if the guard was killed too, the next Proctor does"),
    3: (f"{_ALL}, while the warden lives", "kill -9 of Proctor: the warden ends the whole tree"),
}
_OUTSIDE = "work handed to a daemon outside the tree (docker, systemd-run, at) escapes"
_AGENTS_FILES = "files and network of agents are not contained by this"
_NO_FILES = "files and network are not contained: a probe cannot run unless its spec sets `contain: none`"
_INEXACT = "exit code 128+n cannot be distinguished from death by signal n"
_MISSES = {
    Variant.BWRAP: (_OUTSIDE, _AGENTS_FILES, _INEXACT),
    Variant.BUNDLED_BWRAP: (_OUTSIDE, _AGENTS_FILES, _INEXACT, "the agent starts with SIGPIPE ignored"),
    Variant.UNSHARE: (
        _OUTSIDE,
        _AGENTS_FILES,
        "death by SIGKILL cannot be distinguished from exit code 1",
        "the agent is process 1 of its namespace: a SIGTERM it does not handle is ignored, and orphans stay zombies",
    ),
    Variant.CGROUP: (
        _OUTSIDE,
        "a process that may write to the cgroup file system can move itself out",
        _NO_FILES,
    ),
    Variant.WARDEN: (
        _OUTSIDE,
        "kill -9 of the warden: a descendant in its own session with an empty environment keeps running",
        _NO_FILES,
        _INEXACT,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureTest:
    """The result of testing one way to contain a process tree."""

    variant: Variant
    is_available: bool
    why: str
    """What the test showed: why the variant works or does not work here."""
    tools: tuple[str, ...] = ()
    """The programs the variant needs, the outermost first. For a cgroup: the shell and the parent cgroup's path."""
    has_overlays: bool = False
    """Whether the variant can mount overlays in the folder of Proctor's scratch."""

    @property
    def rung(self) -> int:
        return RUNG[self.variant]


@dataclass(frozen=True, slots=True, kw_only=True)
class Containment:
    """The chosen way to contain process trees."""

    variant: Variant
    tools: tuple[str, ...]
    """The programs it needs, as in `FeatureTest.tools`."""
    has_overlays: bool = False
    """Whether it can mount overlays: then a probe sees the workspace through one, without a copy."""
    catches: tuple[str, ...]
    """What it contains, one phrase each."""
    misses: tuple[str, ...]
    """What it does not contain or cannot distinguish, one phrase each."""

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
                "overlays": self.has_overlays,
                "catches": self.catches,
                "misses": self.misses,
            },
            authority=Authority.OBSERVED,
            source="trial run on this machine",
        )


def survey(*, search_path: str | None = None, bundled_bwrap: Path | None = None) -> tuple[FeatureTest, ...]:
    """Test every way to contain a process tree, at most once per process and arguments.

    `search_path` replaces the PATH of the environment.
    """
    return _survey(os.environ.get("PATH", os.defpath) if search_path is None else search_path, bundled_bwrap)


def choose(findings: Iterable[FeatureTest]) -> Containment:
    """Return the best way that works, or the one that PROCTOR_CONTAINMENT names.

    Raises InputError if PROCTOR_CONTAINMENT is not a variant, and MachineError if the variant it names, or every
    variant, does not work here.
    """
    findings = tuple(findings)
    forced = os.environ.get(FORCE_VARIABLE)
    if forced and forced not in list(Variant):
        known = f"Known variants: {', '.join(Variant)}."
        raise InputError("usage", f"{FORCE_VARIABLE}: unknown containment variant `{forced}`", suggestion=known)
    for finding in sorted(findings, key=_preference):
        if finding.is_available and finding.variant.value == (forced or finding.variant.value):
            return Containment(
                variant=finding.variant,
                tools=finding.tools,
                has_overlays=finding.has_overlays,
                catches=_CATCHES[finding.rung],
                misses=_MISSES[finding.variant],
            )
    if forced:
        reasons = [each.why for each in findings if each.variant == forced] or ["it was not tested"]
        raise MachineError("machine.no-containment", f"{FORCE_VARIABLE}={forced} does not work here: {reasons[0]}")
    reasons = [f"{each.variant}: {each.why}" for each in findings]
    raise MachineError("machine.no-containment", f"no way to contain a process tree works here ({'; '.join(reasons)})")


def _preference(finding: FeatureTest) -> tuple[int, bool, int]:
    return finding.rung, not finding.has_overlays, list(Variant).index(finding.variant)


@cache
def _survey(search_path: str, bundled_bwrap: Path | None) -> tuple[FeatureTest, ...]:
    return tuple(_test_all(search_path, bundled_bwrap))


def _test_all(search_path: str, bundled_bwrap: Path | None) -> Iterator[FeatureTest]:
    if why := _missing_kernel_support():
        for variant in Variant:
            yield _absent(variant, why)
        return
    bwrap, setpriv, unshare = (shutil.which(name, path=search_path) for name in ("bwrap", "setpriv", "unshare"))
    if bwrap:
        yield _test_bwrap(Variant.BWRAP, bwrap)
    else:
        yield _absent(Variant.BWRAP, "bwrap is not on PATH")
    if bundled_bwrap is not None and shutil.which(bundled_bwrap):
        yield _test_bwrap(Variant.BUNDLED_BWRAP, str(bundled_bwrap))
    else:
        yield _absent(Variant.BUNDLED_BWRAP, "no installed agent package includes bwrap")
    if setpriv and unshare:
        prefix = unshare_prefix(setpriv, unshare, is_root=os.geteuid() == 0)
        yield _test(Variant.UNSHARE, (setpriv, unshare), prefix, inner=unshare)
    else:
        yield _absent(Variant.UNSHARE, "setpriv and unshare are not both on PATH")
    yield _test_cgroup()
    yield _test_warden()


def _missing_kernel_support() -> str | None:
    if sys.platform != "linux":
        return f"{sys.platform} is not Linux"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return "the kernel has no pidfd_open: Linux 5.3 or newer is needed"
    return None


def _absent(variant: Variant, why: str) -> FeatureTest:
    return FeatureTest(variant=variant, is_available=False, why=why)


def _test_bwrap(variant: Variant, bwrap: str) -> FeatureTest:
    """Test a bwrap with overlay mounts and, if these fail, without. An old bwrap does not know the options."""
    try:
        with tempfile.TemporaryDirectory(dir=places.cache_dir(), prefix="overlay-test-") as folder:
            prefix = overlay_test_prefix(bwrap, folder=Path(folder))
            with_overlays = _test(variant, (bwrap,), prefix, inner=bwrap)
    except (OSError, MachineError) as error:
        with_overlays = _absent(variant, str(error))
    if with_overlays.is_available:
        return replace(with_overlays, why=f"{with_overlays.why}, with overlay mounts", has_overlays=True)
    without = _test(variant, (bwrap,), bwrap_prefix(bwrap), inner=bwrap)
    if not without.is_available:
        return without
    return replace(without, why=f"{without.why}, without overlay mounts: {with_overlays.why}")


def _test(variant: Variant, tools: tuple[str, ...], prefix: tuple[str, ...], *, inner: str) -> FeatureTest:
    """Run `inner --version` inside the containment. A wrapper program is its own `inner`, so no other one is needed."""
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
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit {done.returncode}"]
        return _absent(variant, f"{inner} fails here: {lines[-1]}")
    return FeatureTest(variant=variant, is_available=True, why=f"{inner} works here", tools=tools)


def _test_cgroup() -> FeatureTest:
    """Test whether this process may make a cgroup with cgroup.kill below its own and move a process into it."""
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
        result = _test(Variant.CGROUP, (cgroup.SHELL, str(ours)), cgroup_prefix(cgroup.SHELL, trial), inner="true")
    finally:
        trial.rmdir()
    return replace(result, why=f"{trial.parent} is delegated") if result.is_available else result


def _test_warden() -> FeatureTest:
    # Not run, to save the start of two interpreters: a kernel with pidfds also has subreapers and death signals.
    if not Path("/proc/thread-self/children").exists():
        return _absent(Variant.WARDEN, "the kernel does not list a process's children")
    return FeatureTest(
        variant=Variant.WARDEN, is_available=True, why="the kernel has subreapers", tools=(sys.executable,)
    )
