"""What commands cost from start to end, in a process of their own each time."""

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
    """Side by side, so many times; `children_cpu_s` is a command's own. Each is run once before, to be compiled."""
    env = os.environ if root is None else {**os.environ, "PROCTOR_ROOT": str(root)}

    def cost(words: Sequence[str]) -> Cost:
        meter = Meter()
        done = subprocess.run(words, env=env, stdout=subprocess.DEVNULL, timeout=DEADLINE_S, check=False)
        # No mission here has a probe: what is told of it is told as unverified.
        assert done.returncode in (0, 4), words
        return meter.read()

    return [tuple(map(cost, commands)) for _ in range(1 + times)][1:]
