"""A hundred thousand pieces of one answer: none is lost, and what we hold in memory does not grow with them."""

import resource

import pytest

from proctor.event.row import Dir
from tests.lab import DONE, Lab, mission, report_of, rows_of

pytestmark = pytest.mark.real_agent

PIECES = 100_000


@pytest.mark.requirement("runtime.events.lossless")
def test_no_piece_of_a_long_answer_is_lost(lab: Lab) -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    flood = mission("flood", {"say": {"text": "word ", "repeat": PIECES}}, {"say": DONE % "flooded"})
    lab.run(lab.write_spec([flood], limits={"turn": "170s", "attempt": "170s"}))
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    [paths] = lab.attempts().values()
    rows = [row for row in rows_of(paths) if row.dir is Dir.IN]
    pieces = sum(b'"item/agentMessage/delta"' in bytes(row.frame) for row in rows)  # type: ignore[arg-type]
    assert pieces >= PIECES
    assert report_of(paths).metrics.frames["in"] == len(rows)
    frames_kb = paths.frames.stat().st_size // 1024
    assert grown_kb < frames_kb, "memory stays under the size of what was recorded"
    lab.assert_all_evidence_is_valid()
