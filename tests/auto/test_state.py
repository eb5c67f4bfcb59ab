"""The state of an auto run is a fold of its rows."""

import pytest
from msgspec.structs import replace

from proctor.attempt.stopping import StopReason
from proctor.auto.model import AnyAutoRow, AskKind, AutoBudget, AutoOutcome, RoundAsked, RunStarted
from proctor.auto.state import AutoEnd, fold_rows
from proctor.errors import EvidenceError
from proctor.event.outcome import Outcome
from proctor.ids import Digest
from tests.auto.rows import Story


def ended(story: Story) -> AutoEnd | None:
    return fold_rows(story.rows).end


# ── ends ──


def test_run_ends_verified_with_the_first_verified_round() -> None:
    story = Story()
    story.round(asks=AskKind.GOAL)
    assert ended(story) is None
    story.round(True)
    assert ended(story) == AutoEnd(outcome=AutoOutcome.VERIFIED)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.UNKNOWN, Outcome.CRASHED])
def test_passing_probes_never_turn_a_failed_turn_into_a_success(outcome: Outcome) -> None:
    story = Story()
    story.round(True, asks=AskKind.GOAL, outcome=outcome)
    assert ended(story) is None


def test_run_whose_turns_fail_although_the_probes_pass_is_failed() -> None:
    story = Story()
    for _ in range(3):
        story.round(True, outcome=Outcome.FAILED, findings="the turn failed")
    assert ended(story) == AutoEnd(outcome=AutoOutcome.FAILED, stopped_by=StopReason.EQUAL_FINDINGS)


@pytest.mark.parametrize(("verified", "outcome"), [(False, AutoOutcome.BLOCKED), (None, AutoOutcome.UNVERIFIED)])
def test_run_without_progress_ends_with_its_last_decision(verified: bool | None, outcome: AutoOutcome) -> None:
    story = Story()
    for _ in range(3):
        assert ended(story) is None
        story.round(verified, findings="same")
    assert ended(story) == AutoEnd(outcome=outcome, stopped_by=StopReason.EQUAL_FINDINGS)


def test_run_that_meets_fewer_criteria_twice_in_a_row_is_blocked() -> None:
    story = Story()
    for met in (3, 2, 1):
        story.round(met=met)
    assert ended(story) == AutoEnd(outcome=AutoOutcome.BLOCKED, stopped_by=StopReason.FEWER_CRITERIA)


def test_infrastructure_ends_the_run_whatever_the_probes_say() -> None:
    story = Story()
    story.round(True, outcome=Outcome.FAILED, code="provider.unauthorized")
    assert ended(story) == AutoEnd(outcome=AutoOutcome.INFRASTRUCTURE)


# ── budgets ──


@pytest.mark.parametrize(
    ("budget", "name"),
    [
        (AutoBudget(rounds=2), "rounds"),
        (AutoBudget(rounds=9, tokens=20), "tokens"),
        (AutoBudget(rounds=9, wall_ms=8000), "wall clock"),
    ],
)
def test_budget_ends_the_run_whatever_the_last_decision(budget: AutoBudget, name: str) -> None:
    story = Story(budget)
    story.round()
    assert ended(story) is None
    story.round(None)
    assert ended(story) == AutoEnd(outcome=AutoOutcome.OUT_OF_BUDGET, budget=name)


def test_round_in_which_nothing_is_asked_uses_no_round() -> None:
    story = Story(AutoBudget(rounds=2))
    story.round()
    story.round(asks=AskKind.NOTHING, tokens=None)
    usage = fold_rows(story.rows).usage()
    assert (usage.rounds, usage.tokens, usage.unknown_turns) == (1, 10, 0)
    assert ended(story) is None


def test_turn_of_unknown_tokens_is_counted_as_unknown() -> None:
    story = Story()
    story.round(tokens=None)
    story.round(tokens=7)
    usage = fold_rows(story.rows).usage()
    assert (usage.tokens, usage.unknown_turns) == (7, 1)


# ── crashes and resumes ──


def test_interrupted_rounds_do_not_count_as_rounds_without_progress() -> None:
    story = Story()
    for _ in range(4):
        story.round(outcome=Outcome.UNKNOWN, findings="same")
        story.round(asks=AskKind.NOTHING, findings="same")
    assert ended(story) is None


def test_resume_of_a_blocked_run_counts_rounds_without_progress_anew_and_keeps_its_budget() -> None:
    story = Story(AutoBudget(rounds=5))
    for _ in range(3):
        story.round(findings="same")
    assert ended(story) is not None
    story.start()
    assert ended(story) is None
    story.round(asks=AskKind.NOTHING, findings="same")
    story.round(findings="same")
    assert ended(story) is None
    story.round(findings="same")
    assert ended(story) == AutoEnd(outcome=AutoOutcome.OUT_OF_BUDGET, budget="rounds")


def test_resume_changes_nothing_about_a_verified_run() -> None:
    story = Story()
    story.round(True)
    story.start()
    assert ended(story) == AutoEnd(outcome=AutoOutcome.VERIFIED)


def test_process_may_take_up_the_run_after_any_row() -> None:
    whole = Story()
    whole.round(asks=AskKind.GOAL)
    whole.round(True)
    for prefix in whole.prefixes():
        rest = whole.rows[len(prefix) :]
        state = fold_rows([*prefix, whole.rows[0], whole.rows[0], *rest])
        assert state.end == fold_rows(whole.rows).end
        assert [each.decided for each in state.rounds] == [each.decided for each in fold_rows(whole.rows).rounds]


# ── what cannot be ──


def test_log_in_which_a_row_is_missing_doubled_or_moved_is_refused() -> None:
    story = Story()
    story.round(asks=AskKind.GOAL)
    story.round(met=1)
    rows = story.rows
    others: list[list[AnyAutoRow]] = []
    for n in range(1, len(rows) - 1):
        others += [[*rows[:n], *rows[n + 1 :]], [*rows[:n], rows[n], *rows[n:]]]
        others += [[*rows[:n], rows[n + 1], rows[n], *rows[n + 2 :]]]
    for other in others:
        with pytest.raises(EvidenceError) as refused:
            fold_rows(other)
        assert refused.value.code == "evidence.schema"
        assert refused.value.line is not None


def test_log_without_its_beginning_is_refused() -> None:
    story = Story()
    story.round()
    for rows in ([], story.rows[1:]):
        with pytest.raises(EvidenceError):
            fold_rows(rows)


def test_row_after_the_end_is_refused() -> None:
    story = Story()
    story.round(True)
    story.ask()
    with pytest.raises(EvidenceError):
        fold_rows(story.rows)


def test_resume_with_other_criteria_is_refused() -> None:
    story = Story()
    story.round()
    other = replace(story.rows[0], criteria_sha256=Digest("others"))
    assert isinstance(other, RunStarted)
    with pytest.raises(EvidenceError):
        fold_rows([*story.rows, other])


def test_round_of_another_number_is_refused() -> None:
    story = Story()
    story.ask()
    row = story.rows.pop()
    assert isinstance(row, RoundAsked)
    with pytest.raises(EvidenceError):
        fold_rows([*story.rows, replace(row, round=2)])
