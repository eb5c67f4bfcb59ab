"""The cost of whole commands, each in a separate process."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.cost import DEADLINE_S, Cost, Meter

_PROCTOR = str(Path(sys.executable).with_name("proctor"))
VERSION = (_PROCTOR, "--version")
LIST = (_PROCTOR, "attempt", "list", "--json")
LOOKS = tuple((_PROCTOR, "campaign", look, "--json") for look in ("status", "report", "list"))
IMPORT_JSON = (sys.executable, "-c", "import json")


def command_costs(times: int, *commands: Sequence[str], root: Path | None = None) -> list[tuple[Cost, ...]]:
    """Measure commands in turn, `times` times, after one unmeasured run that compiles them.

    `children_cpu_s` is the CPU time of the command.
    """
    env = os.environ if root is None else {**os.environ, "PROCTOR_ROOT": str(root)}

    def cost(words: Sequence[str]) -> Cost:
        meter = Meter()
        done = subprocess.run(words, env=env, stdout=subprocess.DEVNULL, timeout=DEADLINE_S, check=False)
        # No mission here has a probe, so commands may exit with 4 (unverified).
        assert done.returncode in (0, 4), words
        return meter.read()

    return [tuple(map(cost, commands)) for _ in range(1 + times)][1:]
