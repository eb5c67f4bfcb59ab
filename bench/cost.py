"""The cost of a piece of work: wall time, own CPU time, CPU time of children, and peak memory."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bench.growth import Growth

ROOT = Path(__file__).parent.parent
DEADLINE_S = 280.0


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    wall_s: float
    cpu_s: float
    children_cpu_s: float
    peak_bytes: int
    growth: Growth | None = None


class Meter:
    """Measures from its creation on."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._own_s, self._children_s = _cpu_s(resource.RUSAGE_SELF), _cpu_s(resource.RUSAGE_CHILDREN)

    def read(self) -> Cost:
        return Cost(
            wall_s=time.monotonic() - self._began_s,
            cpu_s=_cpu_s(resource.RUSAGE_SELF) - self._own_s,
            children_cpu_s=_cpu_s(resource.RUSAGE_CHILDREN) - self._children_s,
            peak_bytes=_peak_bytes(),
        )


def _peak_bytes() -> int:
    """Return the peak memory. Not from ru_maxrss, which starts at the value of the parent process."""
    [peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(peak.split()[1]) * 1024


def _cpu_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def in_own_process(module: str, *words: str, env: Mapping[str, str]) -> Cost:
    """Run a module of this package in a new process, and return the cost that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        timeout=DEADLINE_S,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Cost)


def write_cost(cost: Cost) -> None:
    """Print a cost for `in_own_process`."""
    sys.stdout.buffer.write(msgspec.json.encode(cost))
