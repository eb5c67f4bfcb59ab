"""Which process is meant: a pid is used again, a pid with its start time and boot is not."""

# ruff: noqa: PTH115  every spawn looks at /proc a dozen times, and pathlib costs several times the kernel's work
import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

MARKER_VARIABLE = "PROCTOR_SPAWN"


class Identity(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One process and no other. `exe` is what it ran when it was looked at; an exec changes it, the rest stays."""

    boot_id: str
    pid: int
    start_ticks: int
    exe: str | None = None


@cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> Identity | None:
    """Who has this pid now, a zombie included."""
    stat = _read_stat(pid)
    if stat is None:
        return None
    try:
        exe = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        exe = None
    return Identity(boot_id=boot_id(), pid=pid, start_ticks=stat.start_ticks, exe=exe)


def is_alive(identity: Identity) -> bool:
    """A zombie is not alive: nothing but its parent can remove it, and it does nothing."""
    stat = _read_stat(identity.pid)
    return (
        stat is not None
        and stat.start_ticks == identity.start_ticks
        and identity.boot_id == boot_id()
        # A process whose first thread has ended looks like a zombie while the others run.
        and (stat.state not in "ZX" or stat.threads > 1)
    )


def pin(identity: Identity) -> int | None:
    """A pidfd that means exactly this process, for the caller to close; none if it is gone."""
    try:
        pidfd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    # Checked after the open: if the pid had been given to another before it, the start time tells.
    if is_alive(identity):
        return pidfd
    os.close(pidfd)
    return None


def send_signal(pidfd: int, signum: signal.Signals) -> None:
    """A process that is gone already is no error."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signum)


def children(pid: int) -> list[int]:
    """Direct children. A snapshot: what forks meanwhile may be missing."""
    found: list[int] = []
    with suppress(OSError), os.scandir(f"/proc/{pid}/task") as threads:
        # The kernel keeps the list by the thread that forked.
        for thread in threads:
            found += map(int, _read_proc(f"{thread.path}/children").split())
    return found


def descendants(pid: int) -> Iterator[int]:
    """Children, then their children, and so on."""
    generation = [pid]
    while generation := [child for parent in generation for child in children(parent)]:
        yield from generation


def find_agent(wrapper_pid: int, *, is_wrapper: Callable[[bytes], bool]) -> Identity | None:
    """The nearest process from the wrapper downwards whose command line is not a wrapper's. None until there is one."""
    for pid in chain((wrapper_pid,), descendants(wrapper_pid)):
        try:
            line = _read_proc(f"/proc/{pid}/cmdline")
        except OSError:
            continue
        # A zombie has none, and neither has one that is just being executed.
        if line and not is_wrapper(line):
            return identify(pid)
    return None


def find_marked(markers: Collection[str]) -> Iterator[tuple[str, Identity]]:
    """Every live process but ourselves whose environment carries one of the markers."""
    wanted = {f"{MARKER_VARIABLE}={marker}".encode(): marker for marker in markers}
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for pid in pids:
        if pid == os.getpid():
            continue
        try:
            environment = _read_proc(f"/proc/{pid}/environ")
        except OSError:
            continue
        for variable in wanted.keys() & environment.split(b"\0"):
            if (identity := identify(pid)) is not None:
                yield wanted[variable], identity


class _Stat(NamedTuple):
    state: str
    threads: int
    start_ticks: int


def _read_stat(pid: int) -> _Stat | None:
    """Fields 3, 20 and 22 of proc_pid_stat(5)."""
    try:
        stat = _read_proc(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name in field 2 may itself hold spaces and parentheses.
    fields = stat.rpartition(b")")[2].split()
    return _Stat(state=fields[0].decode(), threads=int(fields[17]), start_ticks=int(fields[19]))


def _read_proc(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        parts = [os.read(file, 65536)]
        while parts[-1]:
            parts.append(os.read(file, 65536))
    finally:
        os.close(file)
    return b"".join(parts)
