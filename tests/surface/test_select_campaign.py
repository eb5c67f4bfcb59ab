"""Which campaign is meant where none is named."""

import pytest

from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import CampaignId
from proctor.surface.cli.select_campaign import find_campaign
from tests.lab import Lab
from tests.report.made import CAMPAIGN, YES, tried
from tests.surface.conftest import ask

CANARY = CampaignId("made-canary-20260102-120000-aaaaaa")


def canary(lab: Lab) -> CampaignPaths:
    return tried(lab.root, {"fix.codex.r1": [YES]}, campaign_id=CANARY, is_canary=True)


@pytest.mark.requirement("campaign.canary")
@pytest.mark.parametrize("command", ["status", "report", "publish-check"])
def test_a_canary_is_meant_by_its_name_only_whatever_the_command(lab: Lab, command: str) -> None:
    paths = canary(lab)
    assert find_campaign("made-canary", root=RootPaths(lab.root)) == paths
    none = ask(lab, "campaign", command, "--json")
    assert (none.code, none.json["error"]["code"]) == (2, "evidence.not-found")
    tried(lab.root, {"fix.codex.r1": [YES]})
    for words, meant in (((), CAMPAIGN), (("made-canary",), CANARY)):
        assert ask(lab, "campaign", command, *words, "--json").json["campaignId"] == meant
