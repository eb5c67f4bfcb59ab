"""Find the limits of this machine that can keep a program from starting: memory, address space and processes."""

import os
import resource
from pathlib import Path
from typing import Final

_ADDRESS_SPACE: Final = {"RLIMIT_AS": resource.RLIMIT_AS, "RLIMIT_DATA": resource.RLIMIT_DATA}
_LOW_MEMORY_KIB: Final = 64 * 1024
_FEW_PROCESSES: Final = 64
_PIDS: Final = (Path("/sys/fs/cgroup/pids.max"), Path("/sys/fs/cgroup/pids/pids.max"))


def find_tight_limit() -> str | None:
    """Return the first limit that a program started now may meet, with its value; None without one.

    An agent cannot set these limits for Proctor. A limit of the address space counts at any value, because programs
    reserve much more than they use.
    """
    for name, number in _ADDRESS_SPACE.items():
        soft, _ = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY:
            return f"{name} is {soft} bytes"
    if (left_kib := _available_kib()) is not None and left_kib < _LOW_MEMORY_KIB:
        return f"{left_kib} KiB of memory are available"
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    # The limit does not hold for root.
    if os.geteuid() != 0 and soft != resource.RLIM_INFINITY and soft - _count_own_threads() < _FEW_PROCESSES:
        return f"RLIMIT_NPROC is {soft}"
    for file in _PIDS:
        most, now = _read_int(file), _read_int(file.with_name("pids.current"))
        if most is not None and now is not None and most - now < _FEW_PROCESSES:
            return f"{file} is {most}"
    return None


def _available_kib() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


def _count_own_threads() -> int:
    count, user = 0, os.getuid()
    for task in Path("/proc").glob("[0-9]*/task"):
        try:
            count += len(os.listdir(task)) if task.stat().st_uid == user else 0  # noqa: PTH208
        except OSError:
            continue
    return count


def _read_int(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # `max` means that there is no limit
        return None
