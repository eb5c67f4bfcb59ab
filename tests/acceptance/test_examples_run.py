"""Our own examples pass their own checks: each is linted, tried by canary, run and published on the real Codex."""

import pytest

from tests.acceptance.telling import EXAMPLES, told
from tests.lab import Lab

pytestmark = [pytest.mark.real_agent, pytest.mark.long]


@pytest.mark.requirement("campaign.lint")
@pytest.mark.requirement("campaign.canary")
@pytest.mark.requirement("campaign.gates")
@pytest.mark.parametrize(("name", "trials", "tried", "passed"), [("minimal", 3, 1, 3), ("advanced", 16, 2, 12)])
def test_r19_examples_linted_and_failed_their_own_gates_and_ours_pass_them(
    lab: Lab, name: str, trials: int, tried: int, passed: int
) -> None:
    spec = str(EXAMPLES / f"{name}.yaml")
    assert told(lab, "campaign", "lint", spec)["trials"] == trials
    told(lab, "campaign", "canary", spec)
    assert len(lab.attempts()) == tried
    told(lab, "campaign", "run", spec)
    report = told(lab, "campaign", "report", name)
    score = report["score"]
    assert (report["isComplete"], score["trials"], score["expected"]) == (True, trials, trials)
    assert score["verified"]["passed"] + score["unverified"]["passed"] == passed
    assert [gate["blocked"] for gate in report["gates"]] == [[]] * len(report["gates"])
    assert told(lab, "campaign", "publish-check", name)["ok"]
    lab.assert_all_evidence_is_valid()
