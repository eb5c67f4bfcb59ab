"""What the last words of a run offer can be done."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from proctor.errors import Exit
from proctor.event.outcome import Outcome
from proctor.evidence.layout import CampaignPaths
from proctor.ids import AttemptId, TrialId
from proctor.report.row import AttemptRow, Report
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.drive import FinishedRun
from proctor.surface.cli.retry import choose
from proctor.surface.cli.run_summary import closing
from tests.report.made import CAMPAIGN, CUT, RUN, UNSURE, YES, row, tried


def last_words(campaign: CampaignPaths, *rows: AttemptRow, missing: tuple[TrialId, ...] = ()) -> str:
    report = Report(
        campaign_id=CAMPAIGN,
        run_ids=(RUN,),
        exit=Exit.INFRASTRUCTURE,
        verdict="infrastructure failed",
        attempts=rows,
        missing_trials=missing,
    )
    driven = FinishedRun(
        report=report,
        refused=(),
        campaign=campaign,
        duration_ms=1,
        scratch=None,
        warnings=(),
        how="done",
        tried=1,
        is_canary=False,
    )
    console = Console(width=200)
    with console.capture() as told:
        console.print(closing(driven, calling=CommandFormatter()))
    return told.get()


@pytest.mark.parametrize(
    ("outcome", "code", "is_offered"),
    [
        (Outcome.TIMED_OUT, "limit.turn", False),
        (Outcome.STALLED, "limit.stall", False),
        (Outcome.CRASHED, "peer.hangup", False),
        (Outcome.FAILED, "provider.error", True),
    ],
)
def test_a_retry_by_kind_is_offered_where_it_would_try_something(
    tmp_path: Path, outcome: Outcome, code: str, is_offered: bool
) -> None:
    ending: dict[str, Any] = {"outcome": outcome, "code": code}
    paths = tried(tmp_path, {"fix.codex.r1": [{**UNSURE, **ending}]})
    assert ("retry --only infra" in last_words(paths, row(**ending))) is is_offered
    assert bool(list(choose(paths, ["infra"]))) is is_offered


def test_evidence_of_which_a_part_was_cut_off_is_looked_at_by_what_counts(tmp_path: Path) -> None:
    paths = tried(tmp_path, {"fix.codex.r1": [CUT, YES]})
    cut = row(attempt_id=AttemptId("fix.codex.r1.1"), state="partial", outcome=None, verified=None, is_superseded=True)
    done = row(attempt_id=AttemptId("fix.codex.r1.2"), verified=True)
    assert f"validate --strict {CAMPAIGN}" in last_words(paths, done)
    assert f"campaign publish-check {CAMPAIGN}" in last_words(paths, cut, done)
    # What has no result, or was never to be verified, may not be published whatever comes.
    assert f"validate --strict {CAMPAIGN}" in last_words(paths, cut, done, missing=(TrialId("fix.codex.r2"),))
    unjudged = row(attempt_id=AttemptId("fix.codex.r1.2"), verified=None)
    assert f"validate --strict {CAMPAIGN}" in last_words(paths, cut, unjudged)
