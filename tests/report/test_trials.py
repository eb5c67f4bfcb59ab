"""One attempt counts for a trial, the same one for every command."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import Exit
from proctor.event.outcome import Outcome
from proctor.evidence.layout import RootPaths
from proctor.evidence.summary import SCORED
from proctor.ids import FlowId
from proctor.plan.progress import fold_trials
from proctor.report.campaign import build_report, load_campaign
from proctor.report.campaign_state import load_state
from proctor.report.classify import classify
from proctor.spec.campaign_options import GatesSpec
from proctor.surface.campaign_status import RemainingTrials, status_of
from proctor.surface.parity import side_by_side
from tests.report.made import BUSY, CANCELLED, CUT, FULL, LATER, LOST, NO, STILL, UNSURE, YES, tried

REFUSED: dict[str, Any] = {**UNSURE, "outcome": Outcome.REFUSED, "code": "provider.unauthorized"}
EVERY = (YES, NO, LOST, BUSY, REFUSED, CANCELLED, CUT, FULL, STILL)
TRIAL = "fix.codex.r1"


def later(what: dict[str, Any]) -> dict[str, Any]:
    """In another run: the first had settled it, and somebody wanted it tried again."""
    return {**what, "run": LATER}


@pytest.mark.requirement("campaign.report")
@pytest.mark.parametrize(
    ("tries", "counts", "said", "left"),
    [
        # What was sealed stays true until there is another result.
        *(
            ([YES, later(each)], 1, Exit.OK, RemainingTrials(untried=0, running=0, cut_off=0, again=0))
            for each in (BUSY, FULL, LOST, STILL, CUT)
        ),
        # A scored result counts, whatever a later attempt shows.
        ([YES, later(NO)], 1, Exit.OK, RemainingTrials(untried=0, running=0, cut_off=0, again=0)),
        # A failure is none while it may be tried again.
        ([LOST], 1, Exit.INFRASTRUCTURE, RemainingTrials(untried=0, running=0, cut_off=0, again=1)),
        ([LOST, LOST], 2, Exit.INFRASTRUCTURE, RemainingTrials(untried=0, running=0, cut_off=0, again=0)),
        ([LOST, CUT], 2, Exit.UNVERIFIED, RemainingTrials(untried=0, running=0, cut_off=1, again=0)),
        ([FULL], 1, Exit.INFRASTRUCTURE, RemainingTrials(untried=0, running=0, cut_off=0, again=1)),
        ([REFUSED], 1, Exit.INFRASTRUCTURE, RemainingTrials(untried=0, running=0, cut_off=0, again=1)),
        ([CANCELLED], 1, Exit.UNVERIFIED, RemainingTrials(untried=0, running=0, cut_off=0, again=1)),
        ([STILL], 1, Exit.UNVERIFIED, RemainingTrials(untried=0, running=0, cut_off=1, again=0)),
    ],
)
def test_one_attempt_of_a_trial_counts(
    tmp_path: Path, tries: Sequence[dict[str, Any]], counts: int, said: Exit, left: RemainingTrials
) -> None:
    paths = tried(tmp_path, {TRIAL: tries}, retries=1)
    state = load_state(paths, root=RootPaths(tmp_path))
    [trial] = state.trials
    report = build_report(state)
    [row] = report.counted_attempts
    assert trial.counted_attempt == row
    assert row.n == counts
    assert report.exit == said
    assert status_of(paths).left == left


def test_parity_compares_the_attempts_that_count(tmp_path: Path) -> None:
    paths = tried(tmp_path, {TRIAL: [YES, later(CANCELLED)], "fix.other.r1": [LOST, YES]}, retries=1)
    report = load_campaign(paths, root=RootPaths(tmp_path))
    [(one, other)] = side_by_side(report, FlowId("codex"), FlowId("other"))
    assert (one and one.attempt_id, other and other.attempt_id) == ("fix.codex.r1.1", "fix.other.r1.2")


@given(
    tries=st.lists(st.tuples(st.sampled_from(EVERY), st.booleans()), min_size=1, max_size=5),
    retries=st.integers(0, 2),
)
def test_counted_attempt_is_that_of_the_fold_that_resume_uses(
    tmp_path_factory: pytest.TempPathFactory, tries: list[tuple[dict[str, Any], bool]], retries: int
) -> None:
    root = tmp_path_factory.mktemp("root")
    runs = sorted(is_later for _, is_later in tries)
    told = [later(what) if is_later else what for (what, _), is_later in zip(tries, runs, strict=True)]
    paths = tried(root, {TRIAL: told}, retries=retries, gates=GatesSpec(coverage=0))
    state = load_state(paths, root=RootPaths(root))
    [trial] = state.trials
    assert state.plan is not None
    assert trial.id is not None
    known = fold_trials(state.contents.attempts, retry_budget=state.plan.retry_budget)[trial.id]
    [row] = build_report(state).counted_attempts
    assert trial.counted_attempt is not None
    assert row.n == trial.counted_attempt.n == (known.result or len(told))
    assert (trial.result is not None, trial.is_settled) == (known.result is not None, known.is_settled)


@pytest.mark.trust
@pytest.mark.requirement("campaign.no-picking")
@given(
    tries=st.lists(st.sampled_from(EVERY), min_size=1, max_size=6),
    requests=st.sets(st.integers(2, 7)),
)
def test_first_scored_attempt_after_the_latest_replacement_counts(
    tmp_path_factory: pytest.TempPathFactory, tries: list[dict[str, Any]], requests: set[int]
) -> None:
    root = tmp_path_factory.mktemp("root")
    paths = tried(root, {TRIAL: tries}, replacements={TRIAL: requests}, gates=GatesSpec(coverage=0))
    [trial] = load_state(paths, root=RootPaths(root)).trials
    finals = [row for row in trial.attempts if classify(row) in SCORED and row.summary is not None]
    begins = [1, *sorted(requests)]
    parts = [
        [row for row in finals if row.n is not None and low <= row.n < high]
        for low, high in pairwise((*begins, math.inf))
    ]
    latest = next((part for part in reversed(parts) if part), [])
    if latest:
        assert trial.counted_attempt is not None
        assert trial.counted_attempt.n == latest[0].n
        assert (trial.first_attempt is not None) == bool(requests)
        if trial.first_attempt is not None:
            assert trial.first_attempt.n == finals[0].n
