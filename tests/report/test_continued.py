"""Trials that were continued after a wait, in reports: marked, counted, and measured over all of their attempts."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.evidence.layout import RootPaths
from proctor.ids import AttemptId
from proctor.report.campaign import build_report
from proctor.report.campaign_state import load_state
from proctor.report.compare import compare
from proctor.report.compare_text import comparison_text
from proctor.report.junit import render_junit
from proctor.report.markdown import render_markdown
from proctor.report.row import find_chain, sum_chain
from proctor.report.text import render_report
from proctor.spec.campaign_options import GatesSpec, TraceProfile
from tests.report.made import BUSY, NO, YES, report, reported, row, tried
from tests.report.test_compare import side
from tests.report.test_text import shown

pytestmark = pytest.mark.requirement("session.continue-after-wait")

FIRST, SECOND = AttemptId("fix.codex.r1.1"), AttemptId("fix.codex.r1.2")
WAITED: dict[str, Any] = {**BUSY, "duration_ms": 1000, "usd": 0.5}
CONTINUED: dict[str, Any] = {**YES, "duration_ms": 400, "usd": 0.25, "continues": FIRST}
TRIES = {"fix.codex.r1": [WAITED, CONTINUED], "ask.codex.r1": [{**YES, "duration_ms": 100, "usd": 1.0}]}


def without(*names: str) -> dict[str, Any]:
    """Metrics in which these are unknown."""
    return {"metrics": msgspec.structs.replace(report(FIRST).metrics, **dict.fromkeys(names))}


def test_score_of_a_continued_trial_covers_all_of_its_attempts(tmp_path: Path) -> None:
    found = reported(tmp_path, TRIES)
    score = found.score
    assert (score.results, score.verified.passed, score.continued) == (2, 2, 1)
    assert (score.tokens, score.tokens_unknown, score.tool_calls) == (7 * 3, 0, 2 * 3)
    assert (score.usd, score.duration_p50_ms, score.duration_p95_ms) == (1.75, 100, 1400)
    assert score.tokens_by_authority["live-thread-usage"].results == 2
    [trial] = found.continued
    assert (trial.attempts, trial.tokens, trial.usd, trial.duration_ms) == ((FIRST, SECOND), 14, 0.75, 1400)
    assert (found.effort.attempts, found.effort.tokens) == (3, 21), "no attempt is counted twice"


def test_score_of_a_retried_trial_that_was_not_continued_covers_its_result_alone(tmp_path: Path) -> None:
    tries = {**TRIES, "fix.codex.r1": [WAITED, {**CONTINUED, "continues": None}]}
    found = reported(tmp_path, tries)
    assert (found.continued, found.score.continued, found.score.tokens, found.score.usd) == ((), 0, 14, 1.25)


def test_score_of_a_continued_trial_is_unknown_where_one_attempt_is(tmp_path: Path) -> None:
    waited = {**WAITED, "usd": None, **without("usage", "tool_calls", "tool_failures", "tool_retries", "is_stuck")}
    score = reported(tmp_path, {"fix.codex.r1": [waited, CONTINUED]}).score
    assert (score.tokens, score.tokens_unknown, score.usd, score.usd_unknown) == (0, 1, None, 1)
    assert (score.tool_calls, score.tool_calls_unknown, score.duration_p50_ms) == (0, 1, 1400)


def test_trace_gate_sees_the_tool_calls_of_all_attempts_of_a_trial(tmp_path: Path) -> None:
    quiet = msgspec.structs.replace(report(FIRST).metrics, tool_calls=0)
    tries = {"fix.codex.r1": [WAITED, {**CONTINUED, "metrics": quiet}]}
    found = reported(tmp_path, tries, gates=GatesSpec(trace=TraceProfile.USED_TOOLS))
    assert [gate.blocked for gate in found.gates] == [(), ()]


def test_reports_mark_and_count_continued_trials(tmp_path: Path) -> None:
    found = reported(tmp_path, TRIES)
    heading = "Continued after a wait, not comparable with uninterrupted trials (1)"
    for text in (shown(render_report(found, title="t")), render_markdown(found)):
        assert heading in text
        assert f"{FIRST}, {SECOND}" in text
        assert "completed (continued)" in text
        assert "14 tokens" in text
    assert render_junit(found).count(f'<property name="continues" value="{FIRST}" />') == 1
    assert [row.tokens for row in found.counted_attempts] == [14, 7]


def test_reports_without_continued_trials_say_nothing_of_them(tmp_path: Path) -> None:
    found = reported(tmp_path, {"fix.codex.r1": [BUSY, YES], "ask.codex.r1": [NO]})
    for text in (shown(render_report(found, title="t")), render_markdown(found), render_junit(found)):
        assert "Continued after" not in text
        assert "(continued)" not in text
        assert "continues" not in text


def test_compare_counts_the_continued_trials_of_each_side(tmp_path: Path) -> None:
    continued = {"fix.codex.r1": [WAITED, CONTINUED], "fix.claude.r1": [YES]}
    state = load_state(tried(tmp_path, continued), root=RootPaths(tmp_path))
    found = compare(side(state, "codex"), side(state, "claude"))
    assert (found.a.score.continued, found.b.score.continued) == (1, 0)
    text = comparison_text(found)
    assert "A has 1 trial continued after a wait, not comparable with uninterrupted ones" in text
    assert "B has" not in text


def test_report_finds_every_continued_trial_among_trials_that_ended_alike(tmp_path: Path) -> None:
    tries = {
        f"fix.codex.r{n}": [BUSY, {**YES, **({"continues": AttemptId(f"fix.codex.r{n}.1")} if n > 1 else {})}]
        for n in (1, 2, 3)
    }
    state = load_state(tried(tmp_path, tries), root=RootPaths(tmp_path))
    assert [each.trial for each in build_report(state).continued] == ["fix.codex.r2", "fix.codex.r3"]


def test_find_chain_ends_where_an_attempt_is_missing_or_repeated() -> None:
    first, second = row(attempt_id=FIRST), row(attempt_id=SECOND, continues=FIRST)
    assert find_chain(second, {FIRST: first, SECOND: second}) == (first, second)
    assert find_chain(second, {}) == (second,)
    circle = row(attempt_id=FIRST, continues=SECOND)
    assert find_chain(second, {FIRST: circle, SECOND: second}) == (circle, second)
    assert sum_chain((second,)) is second
