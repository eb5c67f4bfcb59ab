"""Two sides held against each other, pair by pair."""

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import Exit
from proctor.evidence.layout import RootPaths
from proctor.ids import CampaignId, FlowId, MissionId
from proctor.report.campaign import load_campaign
from proctor.report.campaign_state import CampaignState, load_state
from proctor.report.compare import Comparison, MissionDifference, SideSelection, compare
from proctor.report.compare_text import comparison_markdown, comparison_text
from tests.report.made import BUSY, CAMPAIGN, CUT, INFRA, NO, NOT_STATED, STATED, UNSURE, YES, Tries, tried


def side(state: CampaignState, flow: str) -> SideSelection:
    assert state.campaign_id is not None
    return SideSelection(
        name=flow,
        campaign_id=state.campaign_id,
        flow_id=FlowId(flow),
        trials={(None, each.mission, each.repeat): each for each in state.trials if each.flow == flow},
    )


def compared(root: Path, tries: Tries) -> Comparison:
    state = load_state(tried(root, tries), root=RootPaths(root))
    return compare(side(state, "a"), side(state, "b"))


def trials(flow: str, **missions: str) -> dict[str, list[dict[str, Any]]]:
    """Return the repeats of each mission, one letter each: with a probe yes, no, infrastructure or unsure; without one
    as stated or not (x).
    """
    words = {"y": YES, "n": NO, "i": INFRA, "u": UNSURE, "s": STATED, "x": NOT_STATED}
    return {
        f"{mission}.{flow}.r{at}": [words[letter]]
        for mission, letters in missions.items()
        for at, letter in enumerate(letters, 1)
    }


@pytest.mark.requirement("surface.stats")
def test_only_pairs_that_both_scored_are_compared_and_missions_that_differ_are_listed(tmp_path: Path) -> None:
    both = compared(
        tmp_path,
        {**trials("a", one="yyy", two="yny", three="yi"), **trials("b", one="yyy", two="nny", three="ny", four="y")},
    )
    found = both.verified
    assert (found.pairs, found.both, found.only_a, found.only_b, found.neither) == (7, 4, 2, 0, 1)
    assert (found.rate_a, found.rate_b, found.difference) == (6 / 7, 4 / 7, -2 / 7)
    assert (found.p, both.exit, both.verdict) == (0.5, Exit.OK, "no significant difference")
    assert found.differing == (
        MissionDifference(mission_id=MissionId("three"), flow_id=None, pairs=1, passed_a=1, passed_b=0),
        MissionDifference(mission_id=MissionId("two"), flow_id=None, pairs=3, passed_a=2, passed_b=1),
    )
    assert (found.missions_better, found.missions_worse, found.p_missions) == (0, 2, 0.5)
    assert (both.not_compared, both.not_same_work, both.unverified.pairs) == (2, 0, 0)


@pytest.mark.requirement("surface.stats")
def test_compare_never_adds_missions_without_probes_to_those_with_probes(tmp_path: Path) -> None:
    """The verdict is about missions with probes, if there are any: a second test would find chance more often."""
    found = compared(tmp_path, {**trials("a", one="y", two="ssssss"), **trials("b", one="y", two="xxxxxx")})
    assert (found.verified.pairs, found.unverified.pairs, found.unverified.only_a) == (1, 6, 6)
    assert (found.exit, found.verdict) == (Exit.OK, "no significant difference")
    alone = compared(tmp_path / "alone", {**trials("a", two="ssssss"), **trials("b", two="xxxxxx")})
    assert (alone.exit, alone.verdict) == (Exit.JUDGED_NO, "B is significantly worse on missions without probes")


@pytest.mark.requirement("surface.stats")
@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("y" * 6, "n" * 6, (Exit.JUDGED_NO, "B is significantly worse")),
        ("n" * 6, "y" * 6, (Exit.OK, "B is significantly better")),
        ("y" * 5, "n" * 5, (Exit.OK, "no significant difference")),
        ("y" * 6, "i" * 6, (Exit.UNVERIFIED, "not comparable: no pair was scored on both sides")),
        ("u" * 6, "y" * 6, (Exit.UNVERIFIED, "not comparable: no pair was scored on both sides")),
    ],
)
def test_a_difference_counts_only_where_it_is_more_than_chance(
    tmp_path: Path, a: str, b: str, said: tuple[Exit, str]
) -> None:
    found = compared(tmp_path, {**trials("a", m=a), **trials("b", m=b)})
    assert (found.exit, found.verdict) == said


def test_what_has_no_result_yet_and_what_the_rates_are_of_is_said(tmp_path: Path) -> None:
    text = comparison_text(compared(tmp_path, {**trials("a", m="yyn"), "m.b.r1": [YES], "m.b.r2": [], "m.b.r3": [CUT]}))
    assert "  2 trials not compared: not on both sides, not scored on both, or with probes on one side only\n" in text
    assert "  B has 2 trials without a result\n" in text
    assert text.endswith("  No significant difference (100 % and 100 % of 1 pair scored on both sides).\n")


def test_campaigns_that_did_not_plan_the_same_work_say_so(tmp_path: Path) -> None:
    root, other = RootPaths(tmp_path), CampaignId("made-20260102-120000-aaaaaa")
    first = load_state(tried(tmp_path, trials("a", m="yy")), root=root)
    second = load_state(tried(tmp_path, trials("a", m="yy"), campaign_id=other, digest="sha256:9"), root=root)
    found = compare(side(first, "a"), side(second, "a"))
    assert (found.verified.pairs, found.not_same_work, found.exit) == (2, 2, Exit.OK)
    assert "2 pairs differ in prompt, workspace, model or settings" in comparison_text(found)


def test_a_comparison_is_told_in_lines_and_in_markdown(tmp_path: Path) -> None:
    found = compared(tmp_path, {**trials("a", one="yyyyyy", two="y"), **trials("b", one="nnnnnn", two="y")})
    assert comparison_text(found) == (
        "A  a\n"
        "B  b\n"
        "\n"
        "       verified     rate (95 %)  unverified  tokens  cost  per pass    p50    p95\n"
        "  A a       7/7  100 % (65–100)           –      49     ?         ?  1.5 s  1.5 s\n"
        "  B b       1/7   14.3 % (3–51)           –      49     ?         ?  1.5 s  1.5 s\n"
        "\n"
        "  7 pairs scored on both sides: both passed 1, only A 6, only B 0, neither 0\n"
        "  B minus A: -85.7 %, 95 % from -85.7 % to -7.0 %; p = 0.0312 (McNemar, exact)\n"
        "  missions: B better on 0, worse on 1; p = 1 (sign test)\n"
        "\n"
        "  Missions that differ, passed by A and by B\n"
        "    one: 6 and 0 of 6\n"
        "\n"
        "  B is significantly worse (100 % and 14.3 %).\n"
    )
    text = comparison_markdown(found)
    assert text.startswith("# a and b\n\n**B is significantly worse (100 % and 14.3 %).**\n\n|  | verified |")
    assert "| A a | 7/7 | 100 % (65–100) | – | 49 | ? | ? | 1.5 s | 1.5 s |\n" in text
    assert found.a.campaign_id == CAMPAIGN


def test_a_side_comes_to_what_the_report_says_of_its_flow(tmp_path: Path) -> None:
    tries: Tries = {
        **{f"fix.{flow}.r1": [YES] for flow in ("a", "b")},
        **{f"fix.{flow}.r2": [BUSY] for flow in ("a", "b")},
    }
    found = compared(tmp_path, tries)
    report = load_campaign(RootPaths(tmp_path).campaign(CAMPAIGN), root=RootPaths(tmp_path))
    scores = {each.flow_id: each.score for each in report.flows}
    assert found.a.score.buckets == {"quota": 1}
    assert (found.a.score, found.b.score) == (scores[FlowId("a")], scores[FlowId("b")])
