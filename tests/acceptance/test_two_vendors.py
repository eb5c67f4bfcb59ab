"""The example over two vendors' real agents, from its first check to its publication, with a kill -9 in between."""

from pathlib import Path

import pytest

from chaos.same import but_for_times
from tests.acceptance.telling import EXAMPLES, kill_in_the_middle, sealed, told
from tests.lab import Lab

pytestmark = [pytest.mark.real_agent, pytest.mark.long, pytest.mark.agent("claude_code")]

SPEC = str(EXAMPLES / "two-vendors.yaml")
TRIALS = 12


@pytest.mark.requirement("campaign.resume")
@pytest.mark.requirement("campaign.canary")
@pytest.mark.requirement("campaign.report")
@pytest.mark.requirement("campaign.publish-check")
def test_it_is_linted_tried_run_killed_resumed_and_published_and_reads_as_if_it_had_not_been_killed(
    lab: Lab, tmp_path: Path
) -> None:
    lab.is_other_agent_allowed = True
    whole = Lab(tmp_path / "whole")
    whole.folder.mkdir()
    told(whole, "campaign", "run", SPEC)

    assert told(lab, "campaign", "lint", SPEC)["trials"] == TRIALS
    told(lab, "campaign", "canary", SPEC)
    tried = sealed(lab)
    # The canary is of other runs: its attempts do not count here.
    kill_in_the_middle(lab, "campaign", "run", SPEC, when=lambda: len(sealed(lab) - tried) >= 3)
    before = told(lab, "campaign", "status")
    assert (before["kind"], before["trials"], before["isLive"]) == ("campaign", TRIALS, False)
    assert 0 < before["settled"] < TRIALS
    told(lab, "campaign", "resume")
    after = told(lab, "campaign", "status")
    assert (after["settled"], after["expected"], after["runs"], after["ended"]) == (TRIALS, TRIALS, 2, "done")

    report, undisturbed = told(lab, "campaign", "report"), told(whole, "campaign", "report")
    assert but_for_times(report) == but_for_times(undisturbed)
    assert report["score"]["verified"]["passed"] + report["score"]["unverified"]["passed"] == TRIALS
    compared = told(lab, "compare", "codex", "claude")
    assert but_for_times(compared) == but_for_times(told(whole, "compare", "codex", "claude"))
    assert told(lab, "campaign", "publish-check") == {
        "schemaVersion": 1,
        "ok": True,
        "exit": 0,
        "campaignId": before["campaignId"],
        "reasons": [],
        "scriptedFlows": ["codex", "claude"],
        "hasModels": False,
    }
