"""Two sides compared, mission by mission."""

from pathlib import Path
from typing import Any

import msgspec
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


def missions(letters: str) -> dict[str, str]:
    """Return one mission for each letter, with one repeat."""
    return {f"m{at}": letter for at, letter in enumerate(letters)}


@pytest.mark.requirement("surface.stats")
def test_compare_uses_each_mission_that_both_sides_scored_and_lists_those_that_differ(tmp_path: Path) -> None:
    both = compared(
        tmp_path,
        {**trials("a", one="yyy", two="yny", three="yi"), **trials("b", one="yyy", two="nny", three="ny", four="y")},
    )
    found = both.verified
    assert (found.missions, found.results_a, found.results_b) == (3, 7, 8)
    assert (found.missions_better, found.missions_worse) == (0, 2)
    assert found.rate_a == pytest.approx(8 / 9)
    assert found.rate_b == pytest.approx(11 / 18)
    assert found.difference == pytest.approx(-5 / 18)
    assert found.differing == (
        MissionDifference(mission_id=MissionId("three"), flow_id=None, scored_a=1, passed_a=1, scored_b=2, passed_b=1),
        MissionDifference(mission_id=MissionId("two"), flow_id=None, scored_a=3, passed_a=2, scored_b=3, passed_b=1),
    )
    assert found.test is not None
    assert (found.test.p, both.exit, both.verdict) == (0.5, Exit.OK, "no significant difference")
    assert (both.not_compared, both.not_same_work, both.unverified.missions) == (2, 0, 0)


@pytest.mark.trust
@pytest.mark.requirement("surface.stats")
def test_compare_does_not_depend_on_the_order_of_repeats(tmp_path: Path) -> None:
    """The first repeat of one side has nothing in common with the first repeat of the other."""
    one = compared(tmp_path / "one", {**trials("a", x="yynn", y="yyyn"), **trials("b", x="nnyy", y="ynnn")})
    other = compared(tmp_path / "other", {**trials("a", x="yynn", y="nyyy"), **trials("b", x="yynn", y="nnny")})
    assert one.verified == other.verified


@pytest.mark.trust
@pytest.mark.requirement("surface.stats")
def test_compare_does_not_take_repeats_of_few_missions_for_many_missions(tmp_path: Path) -> None:
    """Two missions that only A passes, however often, say little about other missions."""
    found = compared(tmp_path, {**trials("a", x="y" * 10, y="y" * 10), **trials("b", x="n" * 10, y="n" * 10)})
    assert found.verified.test is not None
    assert (found.verified.test.p, found.verdict) == (0.5, "no significant difference")
    assert found.verified.test.interval_method == "clustered by mission"
    assert found.verified.test.p_method == "sign-flip test by mission"
    assert "fewer than 6 missions: no difference can be significant" in comparison_text(found)


@pytest.mark.trust
@pytest.mark.requirement("surface.stats")
def test_compare_counts_a_mission_once_for_all_flows_of_two_campaigns(tmp_path: Path) -> None:
    root, other = RootPaths(tmp_path), CampaignId("made-20260102-120000-aaaaaa")
    letters = {f"m{at}": "y" for at in range(4)}
    first = load_state(tried(tmp_path, {**trials("a", **letters), **trials("b", **letters)}), root=root)
    failed = dict.fromkeys(letters, "n")
    second = load_state(
        tried(tmp_path, {**trials("a", **failed), **trials("b", **failed)}, campaign_id=other), root=root
    )
    sides = [
        SideSelection(
            name="all",
            campaign_id=state.campaign_id or other,
            flow_id=None,
            trials={(each.flow, each.mission, each.repeat): each for each in state.trials},
        )
        for state in (first, second)
    ]
    found = compare(*sides).verified
    assert (found.missions, found.results_a, found.missions_worse, len(found.differing)) == (4, 8, 4, 8)
    assert found.test is not None
    assert found.test.p == 0.125


@pytest.mark.requirement("surface.stats")
def test_compare_never_adds_missions_without_probes_to_those_with_probes(tmp_path: Path) -> None:
    """The verdict is about missions with probes, if there are any: a second test would find chance more often."""
    a, b = trials("a", **missions("ssssss")), trials("b", **missions("xxxxxx"))
    found = compared(tmp_path, {**trials("a", one="y"), **a, **trials("b", one="y"), **b})
    assert (found.verified.missions, found.unverified.missions, found.unverified.missions_worse) == (1, 6, 6)
    assert (found.exit, found.verdict) == (Exit.OK, "no significant difference")
    alone = compared(tmp_path / "alone", {**a, **b})
    assert (alone.exit, alone.verdict) == (Exit.JUDGED_NO, "B is significantly worse on missions without probes")


@pytest.mark.requirement("surface.stats")
@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("y" * 6, "n" * 6, (Exit.JUDGED_NO, "B is significantly worse")),
        ("n" * 6, "y" * 6, (Exit.OK, "B is significantly better")),
        ("y" * 5, "n" * 5, (Exit.OK, "no significant difference")),
        ("y" * 6, "i" * 6, (Exit.UNVERIFIED, "not comparable: no mission was scored on both sides")),
        ("u" * 6, "y" * 6, (Exit.UNVERIFIED, "not comparable: no mission was scored on both sides")),
    ],
)
def test_a_difference_counts_only_where_it_is_more_than_chance(
    tmp_path: Path, a: str, b: str, said: tuple[Exit, str]
) -> None:
    found = compared(tmp_path, {**trials("a", **missions(a)), **trials("b", **missions(b))})
    assert (found.exit, found.verdict) == said


def test_what_has_no_result_yet_and_what_the_rates_are_of_is_said(tmp_path: Path) -> None:
    text = comparison_text(
        compared(tmp_path, {**trials("a", m="yyn", o="n"), "m.b.r1": [YES], "m.b.r2": [], "m.b.r3": [CUT]})
    )
    why = "not scored, or the other side did not score the mission (with probes, or without)"
    assert f"  3 trials not compared: {why}\n" in text
    assert "  B has 2 trials without a result\n" in text
    assert text.endswith(
        "  No significant difference (66.7 % and 100 %, the mean over 1 mission scored on both sides).\n"
    )


def test_campaigns_that_did_not_plan_the_same_work_say_so(tmp_path: Path) -> None:
    root, other = RootPaths(tmp_path), CampaignId("made-20260102-120000-aaaaaa")
    first = load_state(tried(tmp_path, trials("a", m="yy")), root=root)
    second = load_state(tried(tmp_path, trials("a", m="yy"), campaign_id=other, digest="sha256:9"), root=root)
    found = compare(side(first, "a"), side(second, "a"))
    assert (found.verified.results_b, found.not_same_work, found.exit) == (2, 2, Exit.OK)
    assert "2 trials differ in prompt, workspace, model or settings" in comparison_text(found)


@pytest.mark.trust
def test_a_comparison_of_one_repeat_says_percentage_points_and_names_its_methods(tmp_path: Path) -> None:
    found = compared(tmp_path, {**trials("a", **missions("yyyyyyyn")), **trials("b", **missions("nnnnnnyn"))})
    assert comparison_text(found) == (
        "A  a\n"
        "B  b\n"
        "\n"
        "       verified     rate (95 %)  no probes  tokens  cost  per pass    p50    p95\n"
        "  A a       7/8  87.5 % (53–98)          –      56     ?         ?  1.5 s  1.5 s\n"
        "  B b       1/8   12.5 % (2–47)          –      56     ?         ?  1.5 s  1.5 s\n"
        "\n"
        "  8 missions scored on both sides (8 and 8 results): B better on 0, worse on 6, equal on 2\n"
        "  B minus A: -75.0 percentage points, 95 % from -92.9 to -18.2 (Tango); p = 0.0312 (McNemar, exact)\n"
        "  95 % intervals of the rates: Wilson\n"
        "\n"
        "  Missions that differ, passed by A and by B\n"
        "    m0: 1/1 and 0/1\n"
        "    m1: 1/1 and 0/1\n"
        "    m2: 1/1 and 0/1\n"
        "    m3: 1/1 and 0/1\n"
        "    m4: 1/1 and 0/1\n"
        "    m5: 1/1 and 0/1\n"
        "\n"
        "  B is significantly worse (87.5 % and 12.5 %).\n"
    )
    text = comparison_markdown(found)
    assert text.startswith("# a and b\n\n**B is significantly worse (87.5 % and 12.5 %).**\n\n|  | verified |")
    assert "| A a | 7/8 | 87.5 % (53–98) | – | 56 | ? | ? | 1.5 s | 1.5 s |\n" in text
    assert found.a.campaign_id == CAMPAIGN


@pytest.mark.trust
def test_a_comparison_without_a_test_shows_rates_and_difference_only(tmp_path: Path) -> None:
    found = compared(tmp_path, {**trials("a", **missions("yyyyyy")), **trials("b", **missions("nnnnnn"))})
    untested = msgspec.structs.replace(found, verified=msgspec.structs.replace(found.verified, test=None))
    assert "  B minus A: -100.0 percentage points\n" in comparison_text(untested)
    assert "p = " not in comparison_text(untested)


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
