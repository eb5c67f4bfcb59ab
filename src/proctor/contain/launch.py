"""How a process is to be started: its argv inside the containment, its whole environment, its marker."""

import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.contain.fences import Fences
from proctor.contain.identity import MARKER_VARIABLE
from proctor.contain.ladder import Containment, Variant
from proctor.contain.prefix import (
    bwrap_prefix,
    cgroup_prefix,
    fenced_bwrap_prefix,
    fenced_unshare_prefix,
    unshare_prefix,
    warden_prefix,
)
from proctor.errors import MachineError

_MARKER = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything a spawn needs. `argv` is what is executed, `bare_argv` what runs inside."""

    argv: tuple[str, ...]
    bare_argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    marker: str
    containment: Containment
    cgroup: Path | None = None

    def wrapper_test(self) -> Callable[[bytes], bool]:
        """Tells by its command line whether a process is still on its way to execute `bare_argv`.

        Each wrapper executes the rest of its own line or forks, so it shows some end of ours. Not by their files: an
        agent may run the very program that wraps it, and a script's is its interpreter.
        """
        bare, whole = (os.fsencode("\0".join((*argv, ""))) for argv in (self.bare_argv, self.argv))
        return lambda line: len(line) > len(bare) and whole.endswith(line)


def new_marker() -> str:
    """A name that no other process on this machine carries: leftovers are killed by it."""
    return secrets.token_hex(16)


def wrap(
    containment: Containment,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    marker: str,
    fences: Fences | None = None,
) -> LaunchPlan:
    """Put `argv` inside the containment. `env` is the child's whole environment; nothing is inherited."""
    if not _MARKER.fullmatch(marker):
        raise ValueError(f"not a marker: {marker!r}")
    # Resolved out here: a wrapper that hides folders could not find it, and a missing program has one clear error.
    bare_argv = (_resolve(argv[0], search_path=env.get("PATH", os.defpath), cwd=cwd), *argv[1:])
    cgroup = Path(containment.tools[1], marker) if containment.variant is Variant.CGROUP else None
    prefix = _prefix(containment, cgroup) if fences is None else _fenced_prefix(containment, fences, cwd=cwd)
    return LaunchPlan(
        argv=(*prefix, *bare_argv),
        bare_argv=bare_argv,
        env={**env, MARKER_VARIABLE: marker},
        cwd=cwd,
        marker=marker,
        containment=containment,
        cgroup=cgroup,
    )


def _prefix(containment: Containment, cgroup: Path | None) -> tuple[str, ...]:
    tools = containment.tools
    if cgroup is not None:
        return cgroup_prefix(tools[0], cgroup)
    match containment.variant:
        case Variant.UNSHARE:
            return unshare_prefix(*tools, is_root=os.geteuid() == 0)
        case Variant.WARDEN:
            return warden_prefix(*tools)
        case _:
            return bwrap_prefix(*tools)


def _fenced_prefix(containment: Containment, fences: Fences, *, cwd: Path) -> tuple[str, ...]:
    is_root = os.geteuid() == 0
    if containment.rung != 1:
        what = f"{containment.variant} holds a process tree, but can hide no file and cut no network"
        raise MachineError("machine.no-fences", what)
    if containment.variant is Variant.UNSHARE:
        return fenced_unshare_prefix(*containment.tools, fences=fences, python=sys.executable, cwd=cwd, is_root=is_root)
    return fenced_bwrap_prefix(*containment.tools, fences=fences, cwd=cwd, is_root=is_root)


def _resolve(program: str, *, search_path: str, cwd: Path) -> str:
    # Symbolic links stay as they are: a virtual environment's python is known by its path.
    named = str(cwd.absolute() / program) if "/" in program else program
    found = shutil.which(named, path=search_path)
    if found is None:
        raise MachineError("machine.spawn-failed", no_program(named))
    return os.path.abspath(found)  # noqa: PTH100  Path.resolve() would follow the links


def no_program(named: str) -> str:
    """What to say of one that is not found: a path, or a name on PATH."""
    if "/" not in named:
        return f"there is no program {named} on PATH"
    return f"{named} may not be executed" if os.path.isfile(named) else f"there is no program at {named}"  # noqa: PTH113
