"""Identify processes without confusion by pid reuse: a pid with its start time and boot id is unique."""

# ruff: noqa: PTH115  every spawn reads /proc a dozen times, and pathlib costs several times the kernel's work
import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

MARKER_VARIABLE = "PROCTOR_SPAWN"
ATTEMPT_VARIABLE = "PROCTOR_ATTEMPT"


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Exactly one process on this machine."""

    boot_id: str
    """The kernel's boot id (/proc/sys/kernel/random/boot_id) when the process was seen."""
    pid: int
    """The process id as the host sees it, outside any pid namespace."""
    start_ticks: int
    """When the process started, in clock ticks since boot (field 22 of proc_pid_stat(5))."""
    exe: str | None = None
    """The path of the executable when the process was seen; None if it could not be read. An exec changes it."""


@cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of the process that has this pid now, or None. A zombie has one too."""
    stat = _read_stat(pid)
    if stat is None:
        return None
    try:
        exe = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        exe = None
    return ProcessIdentity(boot_id=boot_id(), pid=pid, start_ticks=stat.start_ticks, exe=exe)


def is_alive(identity: ProcessIdentity) -> bool:
    """Return whether the process still runs. A zombie does not: only its parent can remove it."""
    stat = _read_stat(identity.pid)
    return (
        stat is not None
        and stat.start_ticks == identity.start_ticks
        and identity.boot_id == boot_id()
        # A process whose first thread has ended looks like a zombie while the others run.
        and (stat.state not in "ZX" or stat.threads > 1)
    )


def pin(identity: ProcessIdentity) -> int | None:
    """Return a pidfd of exactly this process, which the caller must close, or None if the process has ended."""
    try:
        pidfd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    # Checked after the open: if the pid was reused before it, the start time differs.
    if is_alive(identity):
        return pidfd
    os.close(pidfd)
    return None


def send_signal(pidfd: int, signum: signal.Signals) -> None:
    """Send a signal through a pidfd. Does nothing if the process has already ended."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signum)


def children(pid: int) -> list[int]:
    """Return the pids of the direct children now. Children forked during the call may be missing."""
    pids: list[int] = []
    with suppress(OSError), os.scandir(f"/proc/{pid}/task") as threads:
        # The kernel lists children per thread that forked them.
        for thread in threads:
            pids += map(int, _read_proc(f"{thread.path}/children").split())
    return pids


def descendants(pid: int) -> Iterator[int]:
    """Yield the pids of all descendants, generation by generation."""
    generation = [pid]
    while generation := [child for parent in generation for child in children(parent)]:
        yield from generation


def is_spawned_by(ancestor: int, *, pid: int) -> bool:
    """Return whether a process descends from `ancestor`, or was started with the marker of a spawn.

    True as well if that cannot be determined, as for a process of a pid namespace that is not visible from here.
    """
    environment = b""
    with suppress(OSError):  # that of another user cannot be read
        environment = _read_proc(f"/proc/{pid}/environ")
    if any(each.startswith(f"{MARKER_VARIABLE}=".encode()) for each in environment.split(b"\0")):
        return True
    while pid != ancestor:
        stat = _read_stat(pid)
        if stat is None:
            return True
        if pid == 1 or stat.parent == 0:
            return False
        pid = stat.parent
    return True


def find_leader(pid: int) -> ProcessIdentity | None:
    """Return the first process of the pid namespace that the process or a descendant of it made, or None so far."""
    return next((identify(each) for each in descendants(pid) if _inner_pids(each) == [1]), None)


def find_agent(pids: Iterable[int], *, is_wrapper: Callable[[bytes], bool]) -> ProcessIdentity | None:
    """Return the first of the processes whose command line is not a wrapper's, or None so far."""
    for pid in pids:
        try:
            line = _read_proc(f"/proc/{pid}/cmdline")
        except OSError:
            continue
        # The command line is empty for a zombie and during an exec.
        if line and not is_wrapper(line):
            return identify(pid)
    return None


def find_holders(pids: Iterable[int], *, stdout: str) -> list[ProcessIdentity]:
    """Return those of the processes whose stdout is this file, as /proc names it, in the given order."""
    holders = []
    for pid in pids:
        # A process that changed its user, or that ended meanwhile, cannot be examined.
        with suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/1") == stdout and (identity := identify(pid)) is not None:
                holders.append(identity)
    return holders


def command_line(pid: int) -> list[str]:
    """Return the words of a process's command line, which the process itself may have changed. Empty if it ended."""
    try:
        return [os.fsdecode(word) for word in _read_proc(f"/proc/{pid}/cmdline").split(b"\0")]
    except OSError:
        return []


def find_marked(markers: Collection[str], *, attempt: str | None = None) -> Iterator[tuple[str, ProcessIdentity]]:
    """Yield every process whose environment contains one of the markers, with that marker.

    With `attempt`, only processes whose environment also names this attempt.
    """
    required = set() if attempt is None else {f"{ATTEMPT_VARIABLE}={attempt}".encode()}
    by_variable = {f"{MARKER_VARIABLE}={marker}".encode(): marker for marker in markers}
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for pid in pids:
        try:
            environment = _read_proc(f"/proc/{pid}/environ")
        except OSError:
            continue
        variables = set(environment.split(b"\0"))
        if not required <= variables:
            continue
        for variable in by_variable.keys() & variables:
            if (identity := identify(pid)) is not None:
                yield by_variable[variable], identity


class _Stat(NamedTuple):
    state: str
    parent: int
    threads: int
    start_ticks: int


def _read_stat(pid: int) -> _Stat | None:
    """Read fields 3, 4, 20 and 22 of proc_pid_stat(5)."""
    try:
        stat = _read_proc(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name in field 2 may contain spaces and parentheses.
    fields = stat.rpartition(b")")[2].split()
    return _Stat(state=fields[0].decode(), parent=int(fields[1]), threads=int(fields[17]), start_ticks=int(fields[19]))


def _inner_pids(pid: int) -> list[int]:
    """Return the process's pids in the pid namespaces below ours, the outermost first (NSpid of proc_pid_status(5))."""
    try:
        status = _read_proc(f"/proc/{pid}/status")
    except OSError:
        return []
    return [int(word) for word in status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()[1:]]


def _read_proc(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        parts = [os.read(file, 65536)]
        while parts[-1]:
            parts.append(os.read(file, 65536))
    finally:
        os.close(file)
    return b"".join(parts)
