"""The exit code, case by case."""

import itertools
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proctor.errors import Bucket, Exit
from proctor.event.outcome import Outcome
from proctor.report.query import superseding
from proctor.report.row import AttemptRow
from proctor.report.verdict import judge, judge_all
from tests.report.made import row

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
def test_one_attempt_says(attempt: dict[str, Any], said: Exit) -> None:
    assert judge(row(**attempt)) is said


@pytest.mark.parametrize(
    ("attempts", "more", "said"),
    [
        ([{"verified": True}, {"met": True}], {}, Exit.OK),
        ([{"verified": True}, {"verified": None}], {}, Exit.UNVERIFIED),
        ([{"verified": None}, {"verified": False}], {}, Exit.JUDGED_NO),
        ([{"verified": False}, {"outcome": Outcome.CRASHED}], {}, Exit.INFRASTRUCTURE),
        ([{"outcome": Outcome.CRASHED}, {"evidence": "invalid"}], {}, Exit.EVIDENCE),
        ([{"verified": True}], {"is_damaged": True}, Exit.EVIDENCE),
        ([{"verified": True}], {"missing": 1}, Exit.UNVERIFIED),
        ([{"verified": False}], {"missing": 1}, Exit.JUDGED_NO),
        ([{"evidence": "invalid"}], {"is_interrupted": True}, Exit.INTERRUPTED),
        ([], {}, Exit.UNVERIFIED),
    ],
)
def test_the_worst_attempt_decides(attempts: list[dict[str, Any]], more: dict[str, Any], said: Exit) -> None:
    assert judge_all([row(trial=None, **attempt) for attempt in attempts], **more) is said


@given(st.lists(st.sampled_from(EVERY), max_size=5), st.sampled_from(EVERY))
def test_another_attempt_never_makes_it_better(attempts: list[dict[str, Any]], another: dict[str, Any]) -> None:
    order = [Exit.OK, Exit.UNVERIFIED, Exit.JUDGED_NO, Exit.INFRASTRUCTURE, Exit.EVIDENCE]
    rows = [row(trial=None, **each) for each in attempts]
    alone, together = judge(row(**another)), judge_all([*rows, row(trial=None, **another)])
    before = judge_all(rows) if rows else Exit.OK
    assert order.index(together) == max(order.index(before), order.index(alone))


def has_result(attempt: dict[str, Any]) -> bool:
    """What was sealed and can no longer be read was a result too."""
    if attempt["state"] == "unreadable":
        return True
    return attempt["state"] == "sealed" and attempt["outcome"] not in (Outcome.CANCELLED, Outcome.UNKNOWN)


def counted(attempts: list[dict[str, Any]]) -> list[AttemptRow]:
    return list(superseding(row(**each) for each in attempts))


@given(
    st.lists(st.sampled_from(EVERY), max_size=3), st.sampled_from(EVERY), st.lists(st.sampled_from(EVERY), max_size=3)
)
def test_of_a_trial_only_the_last_attempt_with_a_result_is_judged(
    before: list[dict[str, Any]], result: dict[str, Any], after: list[dict[str, Any]]
) -> None:
    assume(has_result(result))
    after = [each for each in after if not has_result(each)]
    assert judge_all(counted([*before, result, *after])) is judge(row(**result))


@given(st.lists(st.sampled_from(EVERY), min_size=1, max_size=3))
def test_a_trial_without_a_result_is_judged_by_its_last_attempt(attempts: list[dict[str, Any]]) -> None:
    tries = [each for each in attempts if not has_result(each)]
    assume(tries != [])
    assert judge_all(counted(tries)) is judge(row(**tries[-1]))


@given(st.sampled_from(EVERY))
def test_only_a_whole_sealed_attempt_that_is_expected_or_verified_is_ok(attempt: dict[str, Any]) -> None:
    if judge(row(**attempt)) is Exit.OK:
        assert attempt["state"] == "sealed"
        assert attempt["evidence"] != "invalid"
        assert attempt["met"] or (attempt["met"] is None and attempt["verified"])
