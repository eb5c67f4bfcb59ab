"""The benchmark runs and reports every row. No time is asserted."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import AREAS
from bench.attempts import cpu_row, thousand_rows
from bench.context import QUICK
from bench.fake_agent import answered, started, thread_of
from bench.fakes import claude_code, codex_exec
from bench.growth import last_by_first
from bench.runtimes import SHARED, cost_of, write_fakes
from bench.table import not_measured, render

ROOT = Path(__file__).parent.parent
ROWS = [
    "our CPU per attempt, codex_app_server (one fake agent for all)",
    "our CPU per attempt, codex_app_server (a spawn each)",
    "our CPU per attempt, codex_exec (a spawn each)",
    "our CPU per attempt, claude_code (a spawn each, fenced)",
    *(["our CPU per attempt, pi (a spawn each, fenced)"] if shutil.which("node") else []),
    "our CPU per attempt, process (a spawn each, fenced)",
    "our CPU per attempt, process (a spawn each, no fences)",
    "our CPU per attempt, replay (no spawn)",
    "4 fake attempts",
    "4 fake attempts, our memory",
    "Codex attempts a second, by codex exec -P16",
    "Codex attempts a second, by a bare driver",
    "Codex attempts a second, by a bare driver that asks for the same",
    "events recorded, redacted, chained",
    "our CPU for one fenced probe on 20 files",
    "our CPU for one fenced probe on 20 files, by one on 10 files",
    "wall time of a fenced `true`, by a bare bwrap",
    "digest of 20 files, once per phase, our CPU",
    "cheats verified, of 1",
    "honest twins verified",
    "attempt list --json of 8, wall",
    "attempt list --json of 8, CPU beyond start-up",
    "campaign status --json of 8, CPU beyond start-up",
    "campaign report --json of 8, CPU beyond start-up",
    "campaign list --json of 8, CPU beyond start-up",
    "CPU per attempt, the last of 8 by the first",
    "proctor --version",
    "lossless, 80 messages, 200,000 tokens: assemble, CPU",
    "assemble, by one of 40 messages",
    "commit a turn of 10 at 80 messages (mirror, engine, index), CPU",
    "commit a turn, by one at 20 messages",
    "search for one rare word among 80 messages, wall",
    "storage per byte of text (mirror and engine)",
    "storage per byte, by that of 40 messages",
    "our memory with 80 messages open, beyond that with none",
    "project 20 messages as items, CPU",
    "project 20 messages as text, CPU",
    "give 20 messages to the real Codex, by a bare JSON-RPC driver",
    "a turn with lossless and 20 entries, beyond one without an engine, our CPU",
    "a turn without an id, kept nowhere, by the commit before sessions, our CPU",
    "a turn without an id, kept on disk, by the commit before sessions, our CPU",
]


@pytest.mark.extended
@pytest.mark.real_agent
def test_a_quick_benchmark_measures_every_row_of_the_table(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--results", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode in (0, 1), done.stderr  # so small a run says nothing about how fast anything is
    rows = json.loads(file.read_text())["rows"]
    assert [row["what"] for row in rows] == ROWS
    for row in rows:
        if row["what"].startswith("cheats verified"):
            assert (row["measured"], row["ok"]) == (0, True)
            continue
        if row["note"].startswith("not measured: git has no commit"):
            assert (row["measured"], row["ratio"], row["ok"]) == (None, None, False)
            continue
        assert row["measured"] > 0
        assert row["ratio"] == pytest.approx(row["measured"] / row["toBeat"])
        assert row["ok"] == (row["ratio"] <= 1 if row["isAtMost"] else row["ratio"] >= 1)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["what", "measured", "to", "beat", "ratio", "ok", "note"]
    assert [line.startswith(what) for line, what in zip(lines[1:], ROWS, strict=True)] == [True] * len(ROWS)


@pytest.mark.proctor_process
def test_bench_refuses_an_unknown_area_and_lists_the_known_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--only", "speed"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "'speed'" in done.stderr
    for area in AREAS:
        assert f"'{area}'" in done.stderr


@pytest.mark.proctor_process
def test_the_benchmark_of_one_runtime_is_measured_and_shown(tmp_path: Path) -> None:
    """The one case of it in `make test`; `make bench-quick` has all rows."""
    write_fakes(tmp_path)
    cost = cost_of(SHARED, tmp_path / "1", attempts=QUICK.attempts)
    rows = [cpu_row(SHARED, [cost], QUICK.attempts), *thousand_rows([cost], QUICK)]
    assert [row.what for row in rows] == [ROWS[0], "4 fake attempts", "4 fake attempts, our memory"]
    for row in rows:
        assert row.measured is not None
        assert row.ratio is not None
        assert row.measured > 0
        assert row.ok == (row.ratio <= 1)
    assert [line.startswith(row.what) for line, row in zip(render(rows).splitlines()[1:], rows, strict=True)] == [
        True
    ] * 3


def test_what_could_not_be_measured_is_not_ok_and_has_no_figure() -> None:
    row = not_measured("a turn", 1.05, "x", why="git has no commit")
    assert not row.ok
    expected = ["a", "turn", "?", "1.05", "x", "?", "NO", "not", "measured:", "git", "has", "no", "commit"]
    assert render([row]).splitlines()[1].split() == expected


def test_the_fake_agent_says_thirty_frames_of_a_real_size() -> None:
    """Two of a start, these of a turn, and a reply each to the two requests that end an attempt."""
    turn = answered(2, thread_of(1))
    assert len(started(1, 1, "/w")) + len(turn) + 2 == 30
    assert 200 < sum(map(len, turn)) / len(turn) < 400


def test_the_other_fakes_say_as_many() -> None:
    assert len(codex_exec.turn()) == 30
    assert len([claude_code.greeted("1"), *claude_code.answered("u")]) == 30


def test_a_cost_that_grows_is_told_by_the_last_attempts_and_the_first_but_those_that_warm_up() -> None:
    assert last_by_first([9, 2, 2, 2, 3, 3, 3, 4, 4, 4]) == 2.0
    assert last_by_first([2, 3]) == 1.5
