"""What the last words of a run offer can be done."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from proctor.errors import Exit
from proctor.event.outcome import Outcome
from proctor.evidence.layout import CampaignPaths
from proctor.ids import AttemptId, CellId
from proctor.report.row import Report, ReportRow
from proctor.surface.cli.calling import Calling
from proctor.surface.cli.closing import closing
from proctor.surface.cli.drive import Driven
from proctor.surface.cli.retry import choose
from tests.report.made import CAMPAIGN, CUT, RUN, UNSURE, YES, row, tried


def last_words(campaign: CampaignPaths, *rows: ReportRow, missing: tuple[CellId, ...] = ()) -> str:
    report = Report(
        campaign_id=CAMPAIGN,
        run_ids=(RUN,),
        exit=Exit.INFRASTRUCTURE,
        verdict="infrastructure failed",
        attempts=rows,
        missing_cells=missing,
    )
    driven = Driven(
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
        console.print(closing(driven, calling=Calling()))
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
    assert f"validate --strict {CAMPAIGN}" in last_words(paths, cut, done, missing=(CellId("fix.codex.r2"),))
    assert f"validate --strict {CAMPAIGN}" in last_words(paths, cut, msgspec.structs.replace(done, verified=None))
