"""A hundred thousand pieces of one answer: none is lost, and what we hold in memory does not grow with them."""

import os
import subprocess
import sys

import pytest

from proctor.event.row import Direction
from tests.lab import DONE, Lab, mission, report_of, rows_of

pytestmark = [pytest.mark.real_agent, pytest.mark.long]

PIECES = 100_000
# Far under the 30 MB that the pieces themselves come to, on top of what the program needs for two pieces.
MOST_GROWTH_KB = 15_000

MEASURED = """
import resource, runpy, sys
sys.argv = ["proctor", "run", sys.argv[1]]
try:
    runpy.run_module("proctor", run_name="__main__")
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_kb(lab: Lab, name: str, pieces: int) -> int:
    """The most memory that a whole run held, in a process of its own."""
    flood = mission(name, {"say": {"text": "word ", "repeat": pieces}}, {"say": DONE % "flooded"})
    spec = lab.write_spec([flood], limits={"turn": "170s", "attempt": "170s"})
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(spec)],
        env={**os.environ, "PROCTOR_ROOT": str(lab.root)},
        capture_output=True,
        text=True,
        timeout=170,
    )
    return int(done.stdout.splitlines()[-1])


@pytest.mark.requirement("runtime.events.lossless")
def test_no_piece_of_a_long_answer_is_lost_and_memory_is_bounded(lab: Lab) -> None:
    quiet_kb = peak_kb(lab, "quiet", 2)
    flooded_kb = peak_kb(lab, "flood", PIECES)
    paths = lab.attempts()["flood.codex.r1.1"]
    rows = [row for row in rows_of(paths) if row.dir is Direction.IN]
    pieces = sum(b'"item/agentMessage/delta"' in bytes(row.frame) for row in rows)  # type: ignore[arg-type]
    assert pieces >= PIECES
    assert report_of(paths).metrics.frames["in"] == len(rows)
    assert flooded_kb - quiet_kb < MOST_GROWTH_KB
    lab.assert_all_evidence_is_valid()
