"""What stands in the way of publishing, one reason after the other."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.errors import CODES, Exit
from proctor.evidence.layout import RootPaths
from proctor.evidence.reader import Finding
from proctor.report.campaign import load_campaign
from proctor.report.publish import Publication, Reason, judge_publication
from proctor.spec.campaign_options import GatesSpec
from tests.report.made import (
    CAMPAIGN,
    CUT,
    INFRA,
    LOST,
    NO,
    STATED,
    STILL,
    UNSURE,
    YES,
    Tries,
    expectation,
    reported,
    tried,
)

EXPECTED_CRASH = {**LOST, "expectation": expectation(met=True, keys={"outcome": True})}


def judged(root: Path, tries: Tries, *, findings: tuple[tuple[str, Finding], ...] = (), **more: Any) -> Publication:
    return judge_publication(reported(root, tries, **more), findings=findings)


def test_a_whole_campaign_may_be_published_whatever_its_agents_came_to(tmp_path: Path) -> None:
    found = judged(tmp_path, {"a.codex.r1": [YES], "b.codex.r1": [CUT, NO]})
    assert found == Publication(ok=True, exit=0, campaign_id=CAMPAIGN, reasons=(), scripted_flows=(), has_models=True)


@pytest.mark.requirement("campaign.publish-check")
@pytest.mark.parametrize(
    ("tries", "more", "code", "exit_"),
    [
        ({"a.codex.r1": [YES]}, {"is_canary": True}, "publish.canary", Exit.UNVERIFIED),
        ({"a.codex.r1": [YES], "b.codex.r1": [CUT]}, {}, "publish.incomplete", Exit.UNVERIFIED),
        # A campaign that says it is content with half of it is not published with half of it.
        (
            {"a.codex.r1": [YES], "b.codex.r1": []},
            {"gates": GatesSpec(coverage=0.5)},
            "publish.incomplete",
            Exit.UNVERIFIED,
        ),
        ({"a.codex.r1": [YES], "b.codex.r1": [INFRA]}, {}, "publish.unscored", Exit.UNVERIFIED),
        ({"a.codex.r1": [STATED]}, {}, "publish.vacuous", Exit.UNVERIFIED),
        ({"a.codex.r1": [UNSURE]}, {}, "publish.unjudged", Exit.UNVERIFIED),
        ({"a.codex.r1": [YES], "b.codex.r1": [UNSURE]}, {}, "publish.unjudged", Exit.UNVERIFIED),
        (
            {"a.x.r1": [YES], "a.y.r1": [YES], "b.x.r1": [YES], "b.y.r1": [EXPECTED_CRASH]},
            {"gates": GatesSpec(pair=True)},
            "publish.gate",
            Exit.JUDGED_NO,
        ),
        (
            {"a.codex.r1": [YES]},
            {"findings": (("a.codex.r1.1", Finding(code="evidence.torn", file="frames.jsonl", detail="")),)},
            "evidence.torn",
            Exit.EVIDENCE,
        ),
        *(
            (
                {"a.codex.r1": [YES]},
                {"findings": ((CAMPAIGN, Finding(code=code, file="report.json", detail="")),)},
                code,
                Exit.UNVERIFIED,
            )
            for code in ("evidence.partial", "evidence.running")
        ),
    ],
)
def test_each_obstacle_has_a_code_what_to_do_and_an_exit_code(
    tmp_path: Path, tries: Tries, more: dict[str, Any], code: str, exit_: Exit
) -> None:
    found = judged(tmp_path, tries, **more)
    [reason] = found.reasons
    assert (found.ok, found.exit, reason.code, reason.todo) == (False, exit_, code, CODES[code].todo)
    assert reason.what != ""


@pytest.mark.requirement("campaign.publish-check")
def test_a_campaign_of_nothing_is_never_published(tmp_path: Path) -> None:
    found = judged(tmp_path, {}, gates=GatesSpec(coverage=0.0))
    reason = Reason(
        code="publish.vacuous",
        what="the plan has no trials",
        todo=CODES["publish.vacuous"].todo,
        exit=Exit.UNVERIFIED,
    )
    assert (found.ok, found.reasons[0]) == (False, reason)
    without_probes = judged(tmp_path / "stated", {"a.codex.r1": [STATED]})
    assert [each.what for each in without_probes.reasons] == ["no mission has a probe, so nothing was verified"]


def test_the_worst_reason_is_the_exit_code_and_all_are_told(tmp_path: Path) -> None:
    torn = Finding(code="evidence.torn", file="frames.jsonl", detail="the last row")
    found = judged(
        tmp_path,
        {"a.x.r1": [YES], "a.y.r1": [UNSURE], "b.x.r1": [], "b.y.r1": []},
        gates=GatesSpec(pair=True),
        is_canary=True,
        findings=(("a.x.r1.1", torn),),
    )
    codes = ["publish.canary", "publish.unjudged", "publish.incomplete", "publish.gate", "evidence.torn"]
    assert ([reason.code for reason in found.reasons], found.exit) == (codes, Exit.EVIDENCE)


def test_before_the_first_result_nothing_is_said_of_probes_and_who_runs_it_need_not_go_on_with_it(
    tmp_path: Path,
) -> None:
    paths = tried(tmp_path, {"a.codex.r1": [], "b.codex.r1": [STILL]})
    before = load_campaign(paths, root=RootPaths(tmp_path))
    assert [each.code for each in judge_publication(before, findings=()).reasons] == ["publish.incomplete"]
    running = msgspec.structs.replace(before, is_running=True)
    told = judge_publication(running, findings=()).reasons
    assert [(each.code, each.todo) for each in told] == [
        (code, CODES["publish.running"].todo) for code in ("publish.running", "publish.incomplete")
    ]
