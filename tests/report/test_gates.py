"""What each gate lets through, and what it says of what it does not."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.errors import Exit
from proctor.ids import AttemptId, FlowId, MissionId
from proctor.report.campaign import CampaignReport
from proctor.report.gates import Blocked
from proctor.report.sections import conclude
from proctor.spec.campaign_options import GatesSpec, ToolsSpec, TraceProfile
from tests.report.made import CUT, INFRA, NO, UNSURE, YES, Tries, report, reported


def blocked(found: CampaignReport, name: str) -> tuple[Blocked, ...]:
    [gate] = [gate for gate in found.gates if gate.name == name]
    return gate.blocked


def with_metrics(**changes: Any) -> dict[str, Any]:
    metrics = report(AttemptId("a")).metrics
    return {**YES, "metrics": msgspec.structs.replace(metrics, **changes)}


@pytest.mark.requirement("campaign.gates")
def test_coverage_asks_for_a_share_of_trials_with_a_result(tmp_path: Path) -> None:
    tries: Tries = {"a.codex.r1": [YES], "b.codex.r1": [INFRA], "c.codex.r1": [CUT], "d.codex.r1": []}
    assert blocked(reported(tmp_path / "1", tries), "coverage") == (
        Blocked(mission_id=None, why="2 of 4 trials have a result, and 100 % must"),
    )
    assert blocked(reported(tmp_path / "2", tries, gates=GatesSpec(coverage=0.5)), "coverage") == ()
    assert blocked(reported(tmp_path / "3", tries, gates=GatesSpec(coverage=0.51)), "coverage") != ()
    assert blocked(reported(tmp_path / "4", {}, gates=GatesSpec(coverage=0.0)), "coverage") != ()
    # The product of these two is 14.000000000000002.
    exact: Tries = {f"m{at}.codex.r1": [YES] if at < 14 else [] for at in range(25)}
    assert blocked(reported(tmp_path / "5", exact, gates=GatesSpec(coverage=0.56)), "coverage") == ()


@pytest.mark.requirement("campaign.gates")
def test_pair_asks_that_every_flow_says_alike_much_of_a_mission(tmp_path: Path) -> None:
    tries: Tries = {
        "even.a.r1": [YES],
        "even.b.r1": [NO],
        "odd.a.r1": [YES],
        "odd.b.r1": [INFRA],
        "void.a.r1": [UNSURE],
        "void.b.r1": [UNSURE],
    }
    found = reported(tmp_path, tries, gates=GatesSpec(pair=True))
    assert blocked(found, "pair") == (
        Blocked(mission_id=MissionId("odd"), why="scored results: a 1, b 0"),
        Blocked(mission_id=MissionId("void"), why="scored results: a 0, b 0"),
    )


@pytest.mark.requirement("campaign.gates")
def test_pair_says_nothing_of_missions_that_coverage_still_asks_for(tmp_path: Path) -> None:
    tries: Tries = {"late.a.r1": [YES], "late.b.r1": [], "odd.a.r1": [YES], "odd.b.r1": [INFRA]}
    found = reported(tmp_path / "1", tries, gates=GatesSpec(pair=True))
    assert [each.mission_id for each in blocked(found, "pair")] == ["odd"]
    enough = reported(tmp_path / "2", tries, gates=GatesSpec(pair=True, coverage=0.5))
    assert [each.mission_id for each in blocked(enough, "pair")] == ["late", "odd"]


@pytest.mark.requirement("campaign.gates")
@pytest.mark.parametrize(
    ("profile", "good", "bad", "lacks"),
    [
        (TraceProfile.USED_TOOLS, YES, with_metrics(tool_calls=0), "no tool call"),
        (
            TraceProfile.CHANGED_FILES,
            {**YES, "has_changed_files": True},
            {**YES, "has_changed_files": False},
            "no change in the workspace",
        ),
        (TraceProfile.MCP, with_metrics(tool_calls_by_kind={"mcp": 1}), YES, "no MCP call"),
    ],
)
def test_a_trace_profile_asks_every_result_for_what_it_must_show(
    tmp_path: Path, profile: TraceProfile, good: dict[str, Any], bad: dict[str, Any], lacks: str
) -> None:
    tries: Tries = {"good.codex.r1": [good], "bad.codex.r1": [bad], "infra.codex.r1": [INFRA]}
    found = reported(tmp_path, tries, gates=GatesSpec(trace=profile))
    assert blocked(found, "trace") == (
        Blocked(mission_id=MissionId("bad"), attempt_id=AttemptId("bad.codex.r1.1"), why=f"its trace shows {lacks}"),
    )


@pytest.mark.requirement("campaign.gates")
def test_tools_ask_that_no_call_broke_the_flows_policy(tmp_path: Path) -> None:
    clean, dirty = {**YES, "policy_violations": ()}, {**YES, "policy_violations": ("c1: …", "c2: …")}
    filthy = {**YES, "policy_violations": tuple(f"c{n}: no" for n in range(1, 6))}
    tries: Tries = {
        "m.bound.r1": [clean],
        "n.bound.r1": [dirty],
        "n.bound.r2": [filthy],
        "p.bound.r1": [INFRA],
        "m.free.r1": [dirty],
    }
    found = reported(tmp_path, tries, tools={FlowId("bound"): ToolsSpec(deny=["web:*"])})
    assert [(each.attempt_id, each.why) for each in blocked(found, "tools")] == [
        ("n.bound.r1.1", "tool calls against its policy: 2 (c1: …; c2: …)"),
        ("n.bound.r2.1", "tool calls against its policy: 5 (c1: no; c2: no; c3: no; and 2 more)"),
    ]


@pytest.mark.requirement("campaign.gates")
def test_a_gate_that_blocks_is_a_judgement_even_where_all_results_are_well(tmp_path: Path) -> None:
    tries: Tries = {"m.a.r1": [YES], "m.b.r1": [YES], "m.b.r2": [YES]}
    assert reported(tmp_path / "1", tries).exit == Exit.OK
    found = reported(tmp_path / "2", tries, gates=GatesSpec(pair=True))
    assert (found.exit, found.verdict) == (Exit.JUDGED_NO, "blocked by a gate")
    assert conclude(found).endswith(" As expected: 3 of 3. Gates that block: pair.")
    wrong = reported(tmp_path / "4", {**tries, "m.b.r2": [NO]}, gates=GatesSpec(pair=True))
    assert (wrong.verdict, [gate.name for gate in wrong.blocked]) == ("not as expected", ["pair"])
    assert [gate.name for gate in reported(tmp_path / "3", tries).gates] == ["coverage"]
