"""What a run prints below its results can be done."""

from pathlib import Path
from typing import Any

import pytest

from proctor.event.outcome import Outcome
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.report.campaign import load_campaign
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.drive import FinishedRun
from proctor.surface.cli.retry import choose
from proctor.surface.cli.run_summary import run_footer
from tests.report.made import CAMPAIGN, CUT, RUN, STATED, UNSURE, YES, tried


def footer(campaign: CampaignPaths, root: Path) -> dict[str, str]:
    """Return what a run of the campaign prints below its results, by name; further next steps are joined."""
    driven = FinishedRun(
        report=load_campaign(campaign, root=RootPaths(root)),
        refused=(),
        campaign=campaign,
        duration_ms=1,
        scratch=None,
        warnings=(),
        how="done",
        tried=1,
        is_canary=False,
    )
    rows = list(run_footer(driven, formatter=CommandFormatter()))
    return {**dict(rows), "next": " ".join(value for name, value in rows if name in ("next", ""))}


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
    assert ("retry --only infra" in footer(paths, tmp_path)["next"]) is is_offered
    assert bool(list(choose(paths, ["infra"]))) is is_offered


def test_run_footer_names_the_evidence_and_the_report(tmp_path: Path) -> None:
    paths = tried(tmp_path, {"fix.codex.r1": [CUT, YES]})
    found = footer(paths, tmp_path)
    assert found["evidence"] == str(tmp_path / "runs" / RUN)
    assert found["report"] == str(paths.results)
    assert found["next"] == f"proctor campaign publish-check {CAMPAIGN}"


def test_run_footer_offers_validation_for_results_that_cannot_be_published(tmp_path: Path) -> None:
    paths = tried(tmp_path, {"fix.codex.r1": [STATED]})
    assert footer(paths, tmp_path)["next"] == f"proctor validate --strict {CAMPAIGN}"
