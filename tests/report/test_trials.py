"""One attempt speaks for a trial, the same one wherever somebody asks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import Exit
from proctor.event.outcome import Outcome
from proctor.evidence.layout import RootPaths
from proctor.ids import FlowId
from proctor.plan.progress import fold_trials
from proctor.report.campaign import exit_of
from proctor.report.campaign_state import read_trials
from proctor.report.compose import compose
from proctor.report.gates import gates_of
from proctor.report.query import find_campaign
from proctor.report.trials import speakers
from proctor.spec.campaign_options import GatesSpec
from proctor.surface.campaign_status import RemainingTrials, status_of
from proctor.surface.parity import side_by_side
from tests.report.made import BUSY, CANCELLED, CUT, FULL, HANGUP, LATER, NO, STILL, UNSURE, YES, tried

REFUSED: dict[str, Any] = {**UNSURE, "outcome": Outcome.REFUSED, "code": "provider.unauthorized"}
EVERY = (YES, NO, HANGUP, BUSY, REFUSED, CANCELLED, CUT, FULL, STILL)
TRIAL = "fix.codex.r1"


def later(what: dict[str, Any]) -> dict[str, Any]:
    """In another run: the first had settled it, and somebody wanted it tried again."""
    return {**what, "run": LATER}


@pytest.mark.requirement("campaign.report")
@pytest.mark.parametrize(
    ("tries", "speaks", "said", "left"),
    [
        # What was sealed stays true until there is another result.
        ([YES, later(BUSY)], 1, Exit.OK, RemainingTrials(untried=0, running=0, cut_off=0, again=1)),
        ([YES, later(FULL)], 1, Exit.OK, RemainingTrials(untried=0, running=0, cut_off=0, again=1)),
        ([YES, later(HANGUP)], 1, Exit.OK, RemainingTrials(untried=0, running=0, cut_off=0, again=1)),
        ([YES, later(STILL)], 1, Exit.OK, RemainingTrials(untried=0, running=0, cut_off=1, again=0)),
        ([YES, later(CUT)], 1, Exit.OK, RemainingTrials(untried=0, running=0, cut_off=0, again=1)),
        ([YES, later(NO)], 2, Exit.JUDGED_NO, RemainingTrials(untried=0, running=0, cut_off=0, again=0)),
        # A failure is none while it may be tried again.
        ([HANGUP], 1, Exit.INFRASTRUCTURE, RemainingTrials(untried=0, running=0, cut_off=0, again=1)),
        ([HANGUP, HANGUP], 2, Exit.INFRASTRUCTURE, RemainingTrials(untried=0, running=0, cut_off=0, again=0)),
        ([HANGUP, CUT], 2, Exit.UNVERIFIED, RemainingTrials(untried=0, running=0, cut_off=0, again=1)),
        ([FULL], 1, Exit.INFRASTRUCTURE, RemainingTrials(untried=0, running=0, cut_off=0, again=1)),
        ([REFUSED], 1, Exit.INFRASTRUCTURE, RemainingTrials(untried=0, running=0, cut_off=0, again=1)),
        ([CANCELLED], 1, Exit.UNVERIFIED, RemainingTrials(untried=0, running=0, cut_off=0, again=1)),
        ([STILL], 1, Exit.UNVERIFIED, RemainingTrials(untried=0, running=0, cut_off=1, again=0)),
    ],
)
def test_one_attempt_of_a_trial_speaks(
    tmp_path: Path, tries: Sequence[dict[str, Any]], speaks: int, said: Exit, left: RemainingTrials
) -> None:
    paths = tried(tmp_path, {TRIAL: tries}, retries=1)
    found = read_trials(paths, root=RootPaths(tmp_path))
    [spoken] = [each.spoken for each in found.trials]
    [row] = speakers(find_campaign(RootPaths(tmp_path), paths).rows)
    assert spoken is not None
    assert (spoken.n, row.n) == (speaks, speaks)
    assert exit_of(found, gates_of(found)) is said
    assert status_of(paths).left == left
    if spoken.state != "sealed":  # else the folders, which are not there, would be asked
        assert compose(find_campaign(RootPaths(tmp_path), paths)).exit is said


def test_parity_compares_the_attempts_that_speak(tmp_path: Path) -> None:
    paths = tried(tmp_path, {TRIAL: [YES, later(CANCELLED)], "fix.other.r1": [HANGUP, YES]}, retries=1)
    report = compose(find_campaign(RootPaths(tmp_path), paths))
    [(one, other)] = side_by_side(report, FlowId("codex"), FlowId("other"))
    assert (one and one.attempt_id, other and other.attempt_id) == ("fix.codex.r1.1", "fix.other.r1.2")


@given(
    tries=st.lists(st.tuples(st.sampled_from(EVERY), st.booleans()), min_size=1, max_size=5),
    retries=st.integers(0, 2),
)
def test_who_speaks_is_the_same_wherever_somebody_asks(
    tmp_path_factory: pytest.TempPathFactory, tries: list[tuple[dict[str, Any], bool]], retries: int
) -> None:
    root = tmp_path_factory.mktemp("root")
    runs = sorted(is_later for _, is_later in tries)
    told = [later(what) if is_later else what for (what, _), is_later in zip(tries, runs, strict=True)]
    paths = tried(root, {TRIAL: told}, retries=retries, gates=GatesSpec(coverage=0))
    found = read_trials(paths, root=RootPaths(root))
    [trial] = found.trials
    known = fold_trials(found.contents.attempts, retry_budget=found.plan.retry_budget)[trial.trial.id]
    [row] = speakers(find_campaign(RootPaths(root), paths).rows)
    assert trial.spoken is not None
    assert row.n == trial.spoken.n == (known.result or len(told))
    assert (trial.stands is not None, trial.is_settled) == (known.result is not None, known.is_settled)
