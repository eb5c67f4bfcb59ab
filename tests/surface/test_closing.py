"""What the last words of a run offer can be done."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from proctor.errors import Exit
from proctor.event.outcome import Outcome
from proctor.report.row import Report
from proctor.surface.cli.calling import Calling
from proctor.surface.cli.closing import closing
from proctor.surface.cli.drive import Driven
from proctor.surface.cli.retry import choose
from tests.report.made import CAMPAIGN, RUN, UNSURE, row, tried


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
    report = Report(
        campaign_id=CAMPAIGN,
        run_ids=(RUN,),
        exit=Exit.INFRASTRUCTURE,
        verdict="infrastructure failed",
        attempts=(row(**ending),),
    )
    driven = Driven(
        report=report,
        refused=(),
        campaign=paths,
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
    assert ("retry --only infra" in told.get()) is is_offered
    assert bool(list(choose(paths, ["infra"]))) is is_offered
