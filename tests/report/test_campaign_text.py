"""How a campaign's report is told: on a screen of any width, as a page, for a build server, and on the disk."""

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
from rich.console import Console

from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import Expectation
from proctor.evidence.layout import RootPaths
from proctor.report.campaign import CampaignReport, report_campaign
from proctor.report.campaign_state import read_trials
from proctor.report.campaign_text import campaign_markdown, next_steps, render_campaign
from proctor.report.junit import render_junit
from proctor.spec.campaign_options import GatesSpec, SelectSpec
from tests.report.made import CAMPAIGN, CUT, INFRA, NO, RUN, UNSURE, YES, Tries, repeats, reported, tried


def shown(report: CampaignReport, *, width: int = 100) -> str:
    written = io.StringIO()
    Console(file=written, width=width, no_color=True, markup=False, emoji=False).print(render_campaign(report))
    return "".join(f"{line.rstrip()}\n" for line in written.getvalue().splitlines())


TWO: Tries = {
    **repeats("ask", "codex", {**YES, "usd": 0.5}, {**YES, "usd": 0.5}),
    **repeats("ask", "claude", {**NO, "claimed": True, "usd": 0.1}, {**INFRA, "usd": 0.1}),
    **repeats("fix", "codex", {**YES, "usd": 1.0}),
    **repeats("fix", "claude", {**YES}),
    "new.codex.r1": [],
    "new.claude.r1": [CUT],
}


def test_a_report_is_told_on_one_screen(tmp_path: Path) -> None:
    assert shown(reported(tmp_path, TWO, gates=GatesSpec(pair=True, coverage=0.5))) == (
        f"{CAMPAIGN}\n"
        "  spec    made.yaml  sha256:s\n"
        "  when    2026-01-01 12:00:00 UTC, until 2026-01-01 12:01:00 UTC\n"
        "  runs    1 (done)\n"
        "  state   not whole: 6 of 8 trials with a result\n"
        "  effort  7 attempts, 1 of them not counted; ≥ 42 tokens, cost ≥ $2.20\n"
        "\n"
        "  flow    trials  passed     rate (95 %)  pass@2  pass^2  tokens     cost    p50    p95\n"
        "  codex        4     3/3  100 % (44–100)   100 %   100 %      21    $2.00  1.5 s  1.5 s\n"
        "  claude       4     1/2     50 % (9–91)       ?       ?      21  ≥ $0.20  1.5 s  1.5 s\n"
        "  all          8     4/5    80 % (38–96)   100 %   100 %      42  ≥ $2.20  1.5 s  1.5 s\n"
        "\n"
        "  Blocked by the pair gate\n"
        "    ask: scored results: codex 2, claude 1\n"
        "    new: scored results: codex 0, claude 0\n"
        "  Failed (1)\n"
        "    ask, the probes say no: ask.claude.r1.1\n"
        "  1 trial without a result: never tried\n"
        "    new.codex.r1\n"
        "  1 trial without a result: cut off\n"
        "    new.claude.r1 (run.cut-off)\n"
        "  Missions on which flows differ (1)\n"
        "    ask: codex 2/2, claude 0/1\n"
        "  Claimed, and the probes say no (1)\n"
        "    ask.claude.r1.1\n"
        "  Not scored\n"
        "    1 infra\n"
        "  Tools\n"
        "    codex: 6 calls, 0 failed, 0 tried again, 0 bytes out\n"
        "    claude: 6 calls, 0 failed, 0 tried again, 0 bytes out\n"
        "  Tokens, by whose word\n"
        "    live-thread-usage: 30 in, 12 out, of 6 results\n"
        "  Cost\n"
        "    codex: $2.00, $0.67 a pass\n"
        "    claude: ≥ $0.20, and 1 result of unknown cost\n"
        "\n"
        "  Infrastructure failed: 4 of 5 scored results passed, 2 trials without a result, blocked by pair.\n"
    )


def test_a_narrow_terminal_costs_columns_but_never_the_name_of_a_flow(tmp_path: Path) -> None:
    found = reported(tmp_path, TWO)
    assert shown(found, width=78).splitlines()[7:11] == [
        "  flow    trials  passed     rate (95 %)  pass@2  tokens     cost    p50",
        "  codex        4     3/3  100 % (44–100)   100 %      21    $2.00  1.5 s",
        "  claude       4     1/2     50 % (9–91)       ?      21  ≥ $0.20  1.5 s",
        "  all          8     4/5    80 % (38–96)   100 %      42  ≥ $2.20  1.5 s",
    ]
    for width in range(20, 100):
        lines = shown(found, width=width).splitlines()
        [heading] = [line for line in lines if line.startswith("  flow    ")]
        assert "passed" in heading
        assert sum(line.startswith(("  codex  ", "  claude  ", "  all  ")) for line in lines) == 3


def test_what_can_be_done_about_it_is_named(tmp_path: Path) -> None:
    def steps(name: str, tries: Tries, **more: Any) -> list[str]:
        return list(next_steps(reported(tmp_path / name, tries, **more)))

    resume, again = f"proctor campaign resume {CAMPAIGN}", f"proctor retry --only infra {CAMPAIGN}"
    assert steps("well", {"a.codex.r1": [YES]}) == [f"proctor campaign publish-check {CAMPAIGN}"]
    assert steps("infra", {"a.codex.r1": [YES], "b.codex.r1": [INFRA]}) == [again]
    assert steps("both", {"a.codex.r1": [CUT], "b.codex.r1": [INFRA]}) == [resume, again]
    # What is to be tried again has no result that stands.
    assert steps("retried", {"b.codex.r1": [INFRA]}, retries=1) == [resume]
    assert steps("canary", {"b.codex.r1": [INFRA]}, is_canary=True) == []
    explain = f"proctor attempt explain {RUN}/b.codex.r1.1"
    assert steps("failed", {"a.codex.r1": [YES], "b.codex.r1": [NO]})[0] == explain


def test_every_failure_is_named_with_what_judged_it_and_those_that_failed_alike_together(tmp_path: Path) -> None:
    other = {**UNSURE, "expectation": Expectation(met=False, misses=("x",))}
    stuck = {**UNSURE, "outcome": Outcome.TIMED_OUT, "code": "limit.turn"}
    lines = shown(reported(tmp_path, {**repeats("ask", "codex", NO, NO, other), **repeats("fix", "codex", stuck, YES)}))
    assert lines.split("  Failed (4)\n")[1].split("  Claimed")[0] == (
        "    ask, the probes say no: ask.codex.r1.1, ask.codex.r2.1\n"
        "    ask, not as expected: ask.codex.r3.1\n"
        "    fix, limit.turn: fix.codex.r1.1\n"
    )


def test_nothing_below_the_title_of_a_report_wraps_to_the_margin(tmp_path: Path) -> None:
    found = reported(tmp_path, TWO, gates=GatesSpec(pair=True))
    for width in range(len(CAMPAIGN), 100):
        lines = shown(found, width=width).splitlines()
        assert [line for line in lines[1:] if line and not line.startswith("  ")] == []


def test_the_same_is_told_in_markdown_with_nothing_that_could_be_markup(tmp_path: Path) -> None:
    text = campaign_markdown(reported(tmp_path, TWO, gates=GatesSpec(pair=True, coverage=0.5)))
    assert "| codex | 4 | 3/3 | 100 % (44–100) | 100 % | 100 % | 21 | $2.00 | 1.5 s | 1.5 s |\n" in text
    assert "Verdict: **infrastructure failed** (exit 3).\n" in text
    assert "## Blocked by the pair gate\n\n- ask: scored results: codex 2, claude 1\n" in text
    sly = campaign_markdown(reported(tmp_path / "sly", {"<b>`x`|.codex.r1": [CUT]}))
    assert "\\<b\\>\\`x\\`\\|.codex.r1" in sly


def test_in_junit_a_failure_is_the_agents_an_error_is_not_and_what_says_nothing_is_skipped(tmp_path: Path) -> None:
    paths = tried(tmp_path, {**TWO, "sure.codex.r1": [UNSURE]}, gates=GatesSpec(pair=True, coverage=0.5))
    found = read_trials(paths, root=RootPaths(tmp_path))
    suites = ElementTree.fromstring(render_junit(found, report_campaign(found)))
    counts = {
        suite.get("name"): [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] for suite in suites
    }
    assert counts == {"codex": ["5", "0", "0", "2"], "claude": ["4", "1", "1", "1"], "gates": ["2", "1", "0", "0"]}
    told = {
        f"{case.get('classname')} {case.get('name')}": [(each.tag, each.get("message")) for each in case]
        for case in suites.iter("testcase")
    }
    assert told == {
        f"{CAMPAIGN}.codex ask r1": [],
        f"{CAMPAIGN}.codex ask r2": [],
        f"{CAMPAIGN}.codex fix r1": [],
        f"{CAMPAIGN}.codex new r1": [("skipped", "never tried")],
        f"{CAMPAIGN}.codex sure r1": [("skipped", "nothing could verify it")],
        f"{CAMPAIGN}.claude ask r1": [("failure", "the probes say no")],
        f"{CAMPAIGN}.claude ask r2": [("error", "provider.error")],
        f"{CAMPAIGN}.claude fix r1": [],
        f"{CAMPAIGN}.claude new r1": [("skipped", "cut off")],
        f"{CAMPAIGN}.gates coverage": [],
        f"{CAMPAIGN}.gates pair": [("failure", "ask: scored results: codex 2, claude 1")],
    }


def test_the_report_survives_the_way_over_the_disk(tmp_path: Path) -> None:
    found = reported(tmp_path, TWO)
    assert msgspec.json.decode(msgspec.json.encode(found), type=CampaignReport) == found


def test_what_was_left_out_and_what_no_probe_judged_is_told(tmp_path: Path) -> None:
    expected = {**UNSURE, "expectation": Expectation(met=True, misses=())}
    paths = tried(tmp_path, {**repeats("ask", "codex", expected, YES), **repeats("ask", "claude", expected)})
    paths.spec_snapshot.mkdir()
    index = {"given": {"select": {"ids": ["ask"], "tags": ["fast"]}, "flows": None}, "scripts": {}}
    paths.snapshot_index.write_bytes(msgspec.json.encode(index))
    told = report_campaign(read_trials(paths, root=RootPaths(tmp_path)))
    assert (told.selected, told.score.unproven, told.score.passed) == (SelectSpec(ids=["ask"], tags=["fast"]), 2, 3)
    lines = shown(told).splitlines()
    assert "  missions  of the spec only those named ask, tagged fast" in lines
    assert "  passed    2 of 3 as the spec expects, and no probe judged them" in lines
    whole = shown(reported(tmp_path / "whole", TWO))
    assert "of the spec" not in whole
    assert "no probe" not in whole
