"""What a command costs from start to end, in a process of its own each time."""

import os
import subprocess
import sys
from pathlib import Path

from bench.cost import DEADLINE_S, Cost, Meter

PROCTOR = (str(Path(sys.executable).with_name("proctor")),)
IMPORT_JSON = (sys.executable, "-c", "import json")


def command_cost(*words: str, root: Path | None = None) -> Cost:
    """`children_cpu_s` is the command's own."""
    env = os.environ if root is None else {**os.environ, "PROCTOR_ROOT": str(root)}
    meter = Meter()
    subprocess.run(words, env=env, stdout=subprocess.DEVNULL, timeout=DEADLINE_S, check=True)
    return meter.read()
