"""Build launch plans: a command line wrapped in containment, its complete environment and its marker."""

import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.contain.fences import Fences, Hiding
from proctor.contain.identity import MARKER_VARIABLE
from proctor.contain.ladder import Containment, Variant
from proctor.contain.prefix import (
    bwrap_prefix,
    cgroup_prefix,
    fenced_bwrap_prefix,
    fenced_unshare_prefix,
    hiding_bwrap_prefix,
    hiding_unshare_prefix,
    unshare_prefix,
    warden_prefix,
)
from proctor.errors import MachineError

_MARKER = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything that is needed to start one contained process."""

    argv: tuple[str, ...]
    """The command line that Proctor executes: the wrappers, then `bare_argv`."""
    bare_argv: tuple[str, ...]
    """The command line that runs inside the containment, with the program as an absolute path."""
    env: Mapping[str, str]
    """The complete environment, including the marker."""
    cwd: Path
    marker: str
    """The value of PROCTOR_SPAWN, by which the processes of this spawn are recognized."""
    containment: Containment
    cgroup: Path | None = None
    """The cgroup for this spawn alone; None unless the containment is a cgroup."""

    def wrapper_test(self) -> Callable[[bytes], bool]:
        """Return a test of a /proc command line: whether that process is a wrapper that has not yet run `bare_argv`.

        Each wrapper forks or executes the remainder of its command line, so a wrapper's command line ends like `argv`:
        with `bare_argv` and the words before it. What it begins with is not known, because a wrapper may be a script
        or run another program in its place. Two words before `bare_argv` are compared, because an agent that is a
        script has one there that the script chose (`#!/bin/sh --`). The executable file would not do: an agent may run
        the program that wraps it, and the executable of a script is its interpreter.
        """
        ending = os.fsencode("\0".join(("", *self.argv[-len(self.bare_argv) - 2 :], "")))
        return lambda line: line.endswith(ending)


def new_marker() -> str:
    """Return a random marker. Leftover processes are killed by their marker, so it must be unique on this machine."""
    return secrets.token_hex(16)


def wrap(
    containment: Containment,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    marker: str,
    fences: Fences | Hiding | None = None,
) -> LaunchPlan:
    """Return the plan to run `argv` inside the containment. `env` is the complete environment; nothing is inherited.

    `fences` are the fences around the process, or only what is hidden from it. Raises MachineError if the program does
    not exist or is not executable, or if `fences` are given and the containment cannot apply them. Raises ValueError if
    the marker has characters other than letters, digits, `.`, `_` and `-`.
    """
    if not _MARKER.fullmatch(marker):
        raise ValueError(f"not a marker: {marker!r}")
    # Resolved before wrapping: a wrapper that hides folders could not find the program, and a missing program is
    # reported the same way for every wrapper.
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


def _fenced_prefix(containment: Containment, fences: Fences | Hiding, *, cwd: Path) -> tuple[str, ...]:
    is_root, tools = os.geteuid() == 0, containment.tools
    if containment.rung != 1:
        what = f"the containment `{containment.variant}` cannot restrict files or network"
        raise MachineError("machine.no-fences", what)
    is_unshare, python = containment.variant is Variant.UNSHARE, sys.executable
    if isinstance(fences, Hiding):
        if is_unshare:
            return hiding_unshare_prefix(*tools, hiding=fences, python=python, cwd=cwd, is_root=is_root)
        return hiding_bwrap_prefix(*tools, hiding=fences, cwd=cwd)
    if is_unshare:
        return fenced_unshare_prefix(*tools, fences=fences, python=python, cwd=cwd, is_root=is_root)
    return fenced_bwrap_prefix(*tools, fences=fences, cwd=cwd, is_root=is_root)


def _resolve(program: str, *, search_path: str, cwd: Path) -> str:
    # Symbolic links are kept: the python of a virtual environment finds that environment by the path it is run by.
    name = str(cwd.absolute() / program) if "/" in program else program
    path = shutil.which(name, path=search_path)
    if path is None:
        raise MachineError("machine.spawn-failed", no_program(name))
    return os.path.abspath(path)  # noqa: PTH100  Path.resolve() would follow the links


def no_program(name: str) -> str:
    """Return the message for a program that cannot be run. `name` is a path, or a name to find on PATH."""
    if "/" not in name:
        return f"there is no program {name} on PATH"
    return f"{name} is not executable" if os.path.isfile(name) else f"there is no program at {name}"  # noqa: PTH113
