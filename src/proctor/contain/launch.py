"""How a process is to be started: its argv inside the containment, its whole environment, its marker."""

import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.contain.identity import MARKER_VARIABLE
from proctor.contain.ladder import Containment
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


def new_marker() -> str:
    """A name that no other process on this machine carries: leftovers are killed by it."""
    return secrets.token_hex(16)


def wrap(
    containment: Containment, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, marker: str
) -> LaunchPlan:
    """Put `argv` inside the containment. `env` is the child's whole environment; nothing is inherited."""
    if not _MARKER.fullmatch(marker):
        raise ValueError(f"not a marker: {marker!r}")
    # Resolved out here: a wrapper that hides folders could not find it, and a missing program has one clear error.
    bare_argv = (_resolve(argv[0], search_path=env.get("PATH", os.defpath), cwd=cwd), *argv[1:])
    return LaunchPlan(
        argv=(*containment.prefix, *bare_argv),
        bare_argv=bare_argv,
        env={**env, MARKER_VARIABLE: marker},
        cwd=cwd,
        marker=marker,
        containment=containment,
    )


def _resolve(program: str, *, search_path: str, cwd: Path) -> str:
    # Symbolic links stay as they are: a virtual environment's python is known by its path.
    named = str(cwd.absolute() / program) if "/" in program else program
    found = shutil.which(named, path=search_path)
    if found is None:
        where = f"there is no program at {named}" if "/" in program else f"there is no program {program} on PATH"
        raise MachineError("machine.spawn-failed", where)
    return os.path.abspath(found)  # noqa: PTH100  Path.resolve() would follow the links
