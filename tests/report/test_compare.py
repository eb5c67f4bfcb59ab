"""Two sides held against each other, pair by pair."""

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import Exit
from proctor.evidence.layout import RootPaths
from proctor.ids import CampaignId, FlowId, MissionId
from proctor.report.campaign import report_campaign
from proctor.report.campaign_state import CampaignState, read_trials
from proctor.report.compare import Comparison, MissionDifference, SideSelection, compare
from proctor.report.compare_text import comparison_markdown, comparison_text
from tests.report.made import BUSY, CAMPAIGN, CUT, INFRA, NO, UNSURE, YES, Tries, tried


def side(standing: CampaignState, flow: str) -> SideSelection:
    return SideSelection(
        name=flow,
        campaign_id=standing.campaign_id,
        flow_id=FlowId(flow),
        trials={
            (None, each.trial.mission, each.trial.repeat): each for each in standing.trials if each.trial.flow == flow
        },
    )


def compared(root: Path, tries: Tries) -> Comparison:
    standing = read_trials(tried(root, tries), root=RootPaths(root))
    return compare(side(standing, "a"), side(standing, "b"))


def trials(flow: str, **missions: str) -> dict[str, list[dict[str, Any]]]:
    """Of each mission its repeats, a letter for each: yes, no, infrastructure, unsure."""
    words = {"y": YES, "n": NO, "i": INFRA, "u": UNSURE}
    return {
        f"{mission}.{flow}.r{at}": [words[letter]]
        for mission, letters in missions.items()
        for at, letter in enumerate(letters, 1)
    }


@pytest.mark.requirement("surface.stats")
def test_only_pairs_that_both_scored_are_compared_and_missions_that_differ_are_listed(tmp_path: Path) -> None:
    found = compared(
        tmp_path,
        {**trials("a", one="yyy", two="yny", three="yi"), **trials("b", one="yyy", two="nny", three="ny", four="y")},
    )
    assert (found.pairs, found.both, found.only_a, found.only_b, found.neither) == (7, 4, 2, 0, 1)
    assert (found.rate_a, found.rate_b, found.difference) == (6 / 7, 4 / 7, -2 / 7)
    assert (found.p, found.exit, found.verdict) == (0.5, Exit.OK, "no significant difference")
    assert found.apart == (
        MissionDifference(mission_id=MissionId("three"), flow_id=None, pairs=1, passed_a=1, passed_b=0),
        MissionDifference(mission_id=MissionId("two"), flow_id=None, pairs=3, passed_a=2, passed_b=1),
    )
    assert (found.missions_better, found.missions_worse, found.p_missions) == (0, 2, 0.5)
    assert (found.not_compared, found.not_same_work) == (2, 0)


@pytest.mark.requirement("surface.stats")
@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("y" * 6, "n" * 6, (Exit.JUDGED_NO, "B is significantly worse")),
        ("n" * 6, "y" * 6, (Exit.OK, "B is significantly better")),
        ("y" * 5, "n" * 5, (Exit.OK, "no significant difference")),
        ("y" * 6, "i" * 6, (Exit.UNVERIFIED, "not comparable: there is no pair that both scored")),
        ("u" * 6, "y" * 6, (Exit.UNVERIFIED, "not comparable: there is no pair that both scored")),
    ],
)
def test_a_difference_counts_only_where_it_is_more_than_chance(
    tmp_path: Path, a: str, b: str, said: tuple[Exit, str]
) -> None:
    found = compared(tmp_path, {**trials("a", m=a), **trials("b", m=b)})
    assert (found.exit, found.verdict) == said


def test_what_has_no_result_yet_and_what_the_rates_are_of_is_said(tmp_path: Path) -> None:
    text = comparison_text(compared(tmp_path, {**trials("a", m="yyn"), "m.b.r1": [YES], "m.b.r2": [], "m.b.r3": [CUT]}))
    assert "  2 trials not compared: not on both sides, or not scored on both\n" in text
    assert "  B has no result yet of 2 trials\n" in text
    assert text.endswith("  No significant difference (100 % by 100 % of 1 pair that both scored).\n")


def test_campaigns_that_did_not_plan_the_same_work_say_so(tmp_path: Path) -> None:
    root, other = RootPaths(tmp_path), CampaignId("made-20260102-120000-aaaaaa")
    first = read_trials(tried(tmp_path, trials("a", m="yy")), root=root)
    second = read_trials(tried(tmp_path, trials("a", m="yy"), campaign_id=other, digest="sha256:9"), root=root)
    found = compare(side(first, "a"), side(second, "a"))
    assert (found.pairs, found.not_same_work, found.exit) == (2, 2, Exit.OK)
    assert "2 pairs not planned alike" in comparison_text(found)


def test_a_comparison_is_told_in_lines_and_in_markdown(tmp_path: Path) -> None:
    found = compared(tmp_path, {**trials("a", one="yyyyyy", two="y"), **trials("b", one="nnnnnn", two="y")})
    assert comparison_text(found) == (
        "A  a\n"
        "B  b\n"
        "\n"
        "       passed     rate (95 %)  tokens  cost  per pass    p50    p95\n"
        "  A a     7/7  100 % (65–100)      49     ?         ?  1.5 s  1.5 s\n"
        "  B b     1/7   14.3 % (3–51)      49     ?         ?  1.5 s  1.5 s\n"
        "\n"
        "  7 pairs that both scored: both passed 1, only A 6, only B 0, neither 0\n"
        "  B less A: -85.7 %, 95 % from -85.7 % to -7.0 %; p = 0.0312 (McNemar, exact)\n"
        "  missions: B better on 0, worse on 1; p = 1 (sign test)\n"
        "\n"
        "  Missions that differ, as A and B passed them\n"
        "    one: 6 by 0 of 6\n"
        "\n"
        "  B is significantly worse (100 % by 14.3 %).\n"
    )
    text = comparison_markdown(found)
    assert text.startswith("# a by b\n\n**B is significantly worse (100 % by 14.3 %).**\n\n|  | passed |")
    assert "| A a | 7/7 | 100 % (65–100) | 49 | ? | ? | 1.5 s | 1.5 s |\n" in text
    assert found.a.campaign_id == CAMPAIGN


def test_a_side_comes_to_what_the_report_says_of_its_flow(tmp_path: Path) -> None:
    tries: Tries = {
        **{f"fix.{flow}.r1": [YES] for flow in ("a", "b")},
        **{f"fix.{flow}.r2": [BUSY] for flow in ("a", "b")},
    }
    found = compared(tmp_path, tries)
    standing = read_trials(RootPaths(tmp_path).campaign(CAMPAIGN), root=RootPaths(tmp_path))
    scores = {each.flow_id: each.score for each in report_campaign(standing).flows}
    assert found.a.score.buckets == {"quota": 1}
    assert (found.a.score, found.b.score) == (scores[FlowId("a")], scores[FlowId("b")])
