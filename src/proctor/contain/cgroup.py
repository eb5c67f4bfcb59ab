"""Cgroups (v2) that contain agents: one per agent, all below one parent per Proctor process.

A guard process kills everything in the parent cgroup when its Proctor process ends for any reason.
"""

import os
import secrets
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from proctor.contain.identity import ProcessIdentity, identify
from proctor.errors import MachineError

SHELL: Final = "/bin/sh"

# The guard blocks on a pipe. Only Proctor holds the write end, and the kernel closes it however Proctor ends.
_GUARD: Final = """
trap '' INT TERM HUP
read -r _
echo 1 >"$1/cgroup.kill"
for _ in 1 2 3 4 5 6 7 8 9 10; do
  rmdir "$1"/*/ "$1"
  [ -d "$1" ] || exit
  sleep 0.2
done
"""


@cache
def our_cgroup() -> Path:
    """Return the path of the parent cgroup for this process's agents, below the cgroup that this process is in.

    The cgroup itself is created by `make`. Raises OSError if no cgroup v2 hierarchy is mounted.
    """
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    mounts = [line.partition(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    own = next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), None)
    # Fields of proc_pid_mountinfo(5): the mount point is the fifth, the type follows the lone hyphen.
    mount = next((before.split()[4] for before, _, after in mounts if after.startswith("cgroup2 ")), None)
    if own is None or mount is None:
        raise FileNotFoundError("no cgroup v2 is mounted")
    return Path(mount, own, f"proctor-{os.getpid()}-{secrets.token_hex(4)}")


def make(cgroup: Path) -> None:
    """Create the cgroup of one agent. The first call also creates the parent cgroup and starts its guard.

    Raises MachineError if the kernel refuses.
    """
    try:
        with suppress(FileExistsError):
            cgroup.parent.mkdir()
            _guard(cgroup.parent)
        cgroup.mkdir()
    except OSError as error:
        raise MachineError("machine.spawn-failed", f"cannot create the cgroup {cgroup}: {error.strerror}") from error


def members(cgroup: Path) -> list[ProcessIdentity]:
    """Return the processes in a cgroup now, without zombies. A cgroup that does not exist has no members."""
    try:
        pids = (cgroup / "cgroup.procs").read_text().split()
    except OSError:
        return []
    return [each for each in map(identify, map(int, pids)) if each is not None]


def contains_us(cgroup: Path) -> bool:
    """Return whether this process is in a cgroup or in one below it."""
    try:
        return our_cgroup().is_relative_to(cgroup)
    except OSError:
        return False


def kill(cgroup: Path) -> None:
    """Send SIGKILL to every process in a cgroup, including children forked while this runs."""
    with suppress(OSError):
        (cgroup / "cgroup.kill").write_text("1")


def remove(cgroup: Path, *, with_parent: bool = False) -> None:
    """Remove an empty cgroup, and with `with_parent` also its parent. One that still has members is left in place."""
    for each in (cgroup, *((cgroup.parent,) if with_parent else ())):
        with suppress(OSError):
            each.rmdir()


def _guard(cgroup: Path) -> None:
    read_end, _write_end = os.pipe()
    # The write end is never closed and the guard never waited for: both last as long as this process. Popen would
    # warn about a child that is not waited for.
    try:
        os.posix_spawn(
            SHELL,
            [SHELL, "-c", _GUARD, "proctor-guard", str(cgroup)],
            {"PATH": os.defpath},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, read_end, 0),
                (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
            ],
            setsid=True,
        )
    finally:
        os.close(read_end)
