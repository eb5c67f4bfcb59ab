"""The exit code, case by case."""

import itertools
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proctor.errors import Bucket, Exit
from proctor.event.outcome import Outcome
from proctor.evidence.reader import Finding
from proctor.report.campaign_state import CampaignState, fold_rows
from proctor.report.gates import Blocked, Gate
from proctor.report.row import AttemptRow
from proctor.report.verdict import exit_of, judge_attempt
from tests.report.made import expectation, row

INFRASTRUCTURE = [Outcome.CRASHED, Outcome.REFUSED, Outcome.STALLED, Outcome.TIMED_OUT]
NOT_THE_AGENTS = [Bucket.INFRA, Bucket.QUOTA, Bucket.AUTH, Bucket.HARNESS]
EVERY = [
    (dict(zip(("outcome", "state", "evidence", "met", "verified"), values, strict=True)))
    for values in itertools.product(
        Outcome,
        ("sealed", "partial", "abandoned", "unreadable", "running"),
        ("unchecked", "valid", "invalid"),
        (True, False, None),
        (True, False, None),
    )
]
UNDECIDED = expectation(keys={"trace": None})
FEW = st.lists(st.sampled_from(EVERY), max_size=3)


@pytest.mark.requirement("evidence.claimed-vs-verified")
@pytest.mark.parametrize(
    ("attempt", "said"),
    [
        # Nothing is expected: what was verified decides, and what was claimed never does.
        ({"verified": True}, Exit.OK),
        ({"verified": False}, Exit.JUDGED_NO),
        ({"verified": None}, Exit.UNVERIFIED),
        ({"verified": False, "claimed": True}, Exit.JUDGED_NO),
        ({"verified": None, "claimed": True}, Exit.UNVERIFIED),
        ({"outcome": Outcome.FAILED, "verified": None}, Exit.UNVERIFIED),
        ({"outcome": Outcome.FAILED, "verified": False}, Exit.JUDGED_NO),
        # Something is expected, and nothing else matters.
        ({"met": True, "verified": False}, Exit.OK),
        ({"met": True, "verified": None}, Exit.OK),
        ({"met": False, "verified": True}, Exit.JUDGED_NO),
        *(({"met": True, "outcome": outcome}, Exit.OK) for outcome in INFRASTRUCTURE),
        ({"met": True, "outcome": Outcome.CANCELLED}, Exit.OK),
        # It could not be carried out.
        *(({"outcome": outcome}, Exit.INFRASTRUCTURE) for outcome in INFRASTRUCTURE),
        *(({"outcome": outcome, "met": False}, Exit.INFRASTRUCTURE) for outcome in INFRASTRUCTURE),
        *(({"outcome": outcome, "verified": True}, Exit.INFRASTRUCTURE) for outcome in INFRASTRUCTURE),
        *(({"outcome": Outcome.FAILED, "bucket": bucket}, Exit.INFRASTRUCTURE) for bucket in NOT_THE_AGENTS),
        ({"outcome": Outcome.FAILED, "bucket": Bucket.AGENT, "verified": False}, Exit.JUDGED_NO),
        ({"state": "abandoned", "outcome": Outcome.UNKNOWN}, Exit.INFRASTRUCTURE),
        # It says nothing yet, or never will.
        ({"outcome": Outcome.CANCELLED}, Exit.UNVERIFIED),
        ({"outcome": Outcome.CANCELLED, "met": False}, Exit.UNVERIFIED),
        ({"state": "partial", "outcome": None}, Exit.UNVERIFIED),
        ({"state": "running", "outcome": None}, Exit.UNVERIFIED),
        ({"outcome": Outcome.UNKNOWN}, Exit.UNVERIFIED),
        # What it says cannot be believed.
        ({"evidence": "invalid", "met": True, "verified": True}, Exit.EVIDENCE),
        ({"evidence": "invalid", "state": "partial"}, Exit.EVIDENCE),
        ({"state": "unreadable"}, Exit.EVIDENCE),
    ],
)
def test_exit_of_one_attempt(attempt: dict[str, Any], said: Exit) -> None:
    assert judge_attempt(row(**attempt)) is said


def exit_of_rows(rows: list[AttemptRow], *codes: str, gates: tuple[Gate, ...] = (), **more: bool) -> Exit:
    """Return the exit code of attempts; `codes` are those of findings that belong to no single attempt."""
    findings = tuple(Finding(code=code, file="ledger.db") for code in codes)
    return exit_of(CampaignState(campaign_id=None, folded=fold_rows(rows), findings=findings), gates, **more)


@pytest.mark.parametrize(
    ("attempts", "said"),
    [
        ([{"verified": True}, {"met": True}], Exit.OK),
        ([{"verified": True}, {"verified": None}], Exit.UNVERIFIED),
        ([{"verified": True}, {"verified": True, "expectation": UNDECIDED}], Exit.UNVERIFIED),
        ([{"verified": None}, {"verified": False}], Exit.JUDGED_NO),
        ([{"verified": False}, {"outcome": Outcome.CRASHED}], Exit.INFRASTRUCTURE),
        ([{"outcome": Outcome.CRASHED}, {"evidence": "invalid"}], Exit.EVIDENCE),
        ([], Exit.UNVERIFIED),
    ],
)
def test_exit_is_that_of_the_worst_attempt(attempts: list[dict[str, Any]], said: Exit) -> None:
    assert exit_of_rows([row(trial=None, **attempt) for attempt in attempts]) is said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("evidence.ledger", Exit.EVIDENCE),
        ("evidence.partial", Exit.UNVERIFIED),
        ("evidence.running", Exit.UNVERIFIED),
        ("runtime.not-allowed", Exit.UNVERIFIED),
    ],
)
def test_exit_includes_findings_that_belong_to_no_attempt(code: str, said: Exit) -> None:
    assert exit_of_rows([row(verified=True)], code) is said


def test_exit_of_an_interrupted_run_is_interrupted_whatever_else_happened() -> None:
    assert exit_of_rows([row(evidence="invalid")], is_interrupted=True) is Exit.INTERRUPTED


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        ((), Exit.UNVERIFIED),
        ((Gate(name="coverage", blocked=()),), Exit.OK),
        ((Gate(name="coverage", blocked=(Blocked(mission_id=None, why="x"),)),), Exit.UNVERIFIED),
        (
            (Gate(name="coverage", blocked=()), Gate(name="pair", blocked=(Blocked(mission_id=None, why="x"),))),
            Exit.JUDGED_NO,
        ),
    ],
)
def test_exit_leaves_trials_without_a_result_to_the_coverage_gate(gates: tuple[Gate, ...], said: Exit) -> None:
    rows = [row(verified=True, trial=None), row(state="partial", trial=None)]
    assert exit_of_rows(rows, gates=gates) is said


def test_exit_of_a_trial_that_infrastructure_kept_from_a_result_is_infrastructure() -> None:
    lost = row(state="abandoned", trial=None)
    assert exit_of_rows([lost], gates=(Gate(name="coverage", blocked=()),)) is Exit.INFRASTRUCTURE


@given(st.lists(st.sampled_from(EVERY), max_size=5), st.sampled_from(EVERY))
def test_another_attempt_never_makes_it_better(attempts: list[dict[str, Any]], another: dict[str, Any]) -> None:
    order = [Exit.OK, Exit.UNVERIFIED, Exit.JUDGED_NO, Exit.INFRASTRUCTURE, Exit.EVIDENCE]
    rows = [row(trial=None, **each) for each in attempts]
    alone, together = judge_attempt(row(**another)), exit_of_rows([*rows, row(trial=None, **another)])
    before = exit_of_rows(rows) if rows else Exit.OK
    assert order.index(together) == max(order.index(before), order.index(alone))


def has_result(attempt: dict[str, Any]) -> bool:
    """What was sealed and can no longer be read was a result too."""
    if attempt["state"] == "unreadable":
        return True
    return attempt["state"] == "sealed" and attempt["outcome"] not in (Outcome.CANCELLED, Outcome.UNKNOWN)


def counted(attempts: list[dict[str, Any]]) -> list[AttemptRow]:
    """Return attempts of one trial."""
    return [row(**each) for each in attempts]


@given(
    st.lists(st.sampled_from(EVERY), max_size=3), st.sampled_from(EVERY), st.lists(st.sampled_from(EVERY), max_size=3)
)
def test_of_a_trial_only_the_last_attempt_with_a_result_is_judged(
    before: list[dict[str, Any]], result: dict[str, Any], after: list[dict[str, Any]]
) -> None:
    assume(has_result(result))
    after = [each for each in after if not has_result(each)]
    assert exit_of_rows(counted([*before, result, *after])) is judge_attempt(row(**result))


@given(st.lists(st.sampled_from(EVERY), min_size=1, max_size=3))
def test_a_trial_without_a_result_is_judged_by_its_last_attempt(attempts: list[dict[str, Any]]) -> None:
    tries = [each for each in attempts if not has_result(each)]
    assume(tries != [])
    assert exit_of_rows(counted(tries)) is judge_attempt(row(**tries[-1]))


@given(st.sampled_from(EVERY))
def test_only_a_whole_sealed_attempt_that_is_expected_or_verified_is_ok(attempt: dict[str, Any]) -> None:
    if judge_attempt(row(**attempt)) is Exit.OK:
        assert attempt["state"] == "sealed"
        assert attempt["evidence"] != "invalid"
        assert attempt["met"] or (attempt["met"] is None and attempt["verified"])
