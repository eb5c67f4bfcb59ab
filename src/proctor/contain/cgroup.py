"""A cgroup v2 around each agent, all of one Proctor's below one, which a guard ends when that Proctor is gone."""

import os
import secrets
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from proctor.contain.identity import Identity, identify
from proctor.errors import MachineError

SHELL: Final = "/bin/sh"

# It waits at a pipe whose other end only we hold, for the kernel closes that however we end.
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
    """A name for the cgroup of this process's agents, below the one we are in. OSError where there is no cgroup v2."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    mounts = [line.partition(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    own = next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), None)
    # Fields of proc_pid_mountinfo(5): the mount point is the fifth, the type follows the lone hyphen.
    mount = next((before.split()[4] for before, _, after in mounts if after.startswith("cgroup2 ")), None)
    if own is None or mount is None:
        raise FileNotFoundError("no cgroup v2 is mounted")
    return Path(mount, own, f"proctor-{os.getpid()}-{secrets.token_hex(4)}")


def make(cgroup: Path) -> None:
    """The cgroup of one agent, below one that is made and guarded with the first."""
    try:
        with suppress(FileExistsError):
            cgroup.parent.mkdir()
            _guard(cgroup.parent)
        cgroup.mkdir()
    except OSError as error:
        raise MachineError("machine.spawn-failed", f"{cgroup} cannot be made: {error.strerror}") from error


def members(cgroup: Path) -> list[Identity]:
    """Who is in it now; nobody in one that is gone. A zombie is in none."""
    try:
        pids = (cgroup / "cgroup.procs").read_text().split()
    except OSError:
        return []
    return [each for each in map(identify, map(int, pids)) if each is not None]


def kill(cgroup: Path) -> None:
    """SIGKILL for all in it, those included that fork at this moment."""
    with suppress(OSError):
        (cgroup / "cgroup.kill").write_text("1")


def remove(cgroup: Path, *, with_parent: bool = False) -> None:
    """For one that nobody is in; another's stays."""
    for each in (cgroup, *((cgroup.parent,) if with_parent else ())):
        with suppress(OSError):
            each.rmdir()


def _guard(cgroup: Path) -> None:
    read_end, _write_end = os.pipe()
    # Never closed and never waited for: its life is ours. Not by Popen, which warns of that.
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
