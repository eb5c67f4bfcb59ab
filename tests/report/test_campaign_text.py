"""How a campaign's report is told: on a screen of any width, as a page, for a build server, and on the disk."""

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from rich.console import Console
from rich.text import Text

from proctor.errors import Exit
from proctor.event.outcome import Outcome
from proctor.evidence.layout import RootPaths
from proctor.report.campaign import CampaignReport, load_campaign
from proctor.report.junit import render_junit
from proctor.report.markdown import render_markdown
from proctor.report.sections import flow_table, next_steps
from proctor.report.text import render_conclusion, render_report
from proctor.spec.campaign_options import GatesSpec, SelectSpec
from tests.report.made import (
    CAMPAIGN,
    CUT,
    INFRA,
    NO,
    NOT_STATED,
    RUN,
    STATED,
    UNSURE,
    YES,
    Tries,
    expectation,
    repeats,
    reported,
    tried,
)


def shown(report: CampaignReport, *, width: int = 100) -> str:
    written = io.StringIO()
    console = Console(file=written, width=width, no_color=True, markup=False, emoji=False)
    console.print(render_report(report, title=report.campaign_id or ""), Text(), render_conclusion(report))
    return "".join(f"{line.rstrip()}\n" for line in written.getvalue().splitlines())


TWO: Tries = {
    **repeats("ask", "codex", {**YES, "usd": 0.5}, {**YES, "usd": 0.5}),
    **repeats("ask", "claude", {**NO, "claimed": True, "usd": 0.1}, {**INFRA, "usd": 0.1}),
    **repeats("fix", "codex", {**YES, "usd": 1.0}),
    **repeats("fix", "claude", {**YES}),
    "new.codex.r1": [],
    "new.claude.r1": [CUT],
}


def test_report_fits_one_screen(tmp_path: Path) -> None:
    assert shown(reported(tmp_path, TWO, gates=GatesSpec(pair=True, coverage=0.5))) == (
        f"{CAMPAIGN}\n"
        "  spec    made.yaml  sha256:s\n"
        "  runs    1 (done), 2026-01-01 12:00:00 UTC, until 2026-01-01 12:01:00 UTC\n"
        "  trials  incomplete: 6 of 8 have a result\n"
        "  usage   7 attempts, 1 of them not counted; ≥ 42 tokens, cost ≥ $2.20\n"
        "\n"
        "  attempt          runtime  outcome    claimed  verified  passed  expected  tools  tokens   time\n"
        "  ask.codex.r1.1   fake     completed  yes      yes       yes     yes           2       7  1.5 s\n"
        "  ask.codex.r2.1   fake     completed  yes      yes       yes     yes           2       7  1.5 s\n"
        "  ask.claude.r1.1  fake     completed  yes      NO        NO      NO            2       7  1.5 s\n"
        "  ask.claude.r2.1  fake     failed     yes      unknown   –       –             2       7  1.5 s\n"
        "  fix.codex.r1.1   fake     completed  yes      yes       yes     yes           2       7  1.5 s\n"
        "  fix.claude.r1.1  fake     completed  yes      yes       yes     yes           2       7  1.5 s\n"
        "  new.claude.r1.1  fake     partial    –        unknown   –       –             ?       ?      ?\n"
        "\n"
        "  ask.claude.r2.1  provider.error (infra): The provider reported an internal error.\n"
        "  ask.claude.r2.1  to do: Run again later.\n"
        "  new.claude.r1.1  The attempt was cut off and has no seal.\n"
        "  new.claude.r1.1  run.cut-off (infra): The attempt was cut off because its Proctor process was\n"
        "                   killed.\n"
        "  new.claude.r1.1  to do: Run `proctor campaign resume`: it tries the trial again.\n"
        "\n"
        "  flow    trials  verified     rate (95 %)  pass@2  pass^2  expected  tokens     cost    p50    p95\n"
        "  codex        4       3/3  100 % (34–100)   100 %   100 %       3/3      21    $2.00  1.5 s  1.5 s\n"
        "  claude       4       1/2     50 % (9–91)       ?       ?       1/2      21  ≥ $0.20  1.5 s  1.5 s\n"
        "  all          8       4/5    80 % (27–96)   100 %   100 %       4/5      42  ≥ $2.20  1.5 s  1.5 s\n"
        "  95 % intervals of the rates: Wilson, clustered by mission where missions have several results\n"
        "  pass@2: at least one of 2 repeats passes; pass^2: both do\n"
        "\n"
        "  Blocked by the pair gate\n"
        "    ask: scored results: codex 2, claude 1\n"
        "    new: scored results: codex 0, claude 0\n"
        "  1 trial without a result: never tried\n"
        "    new.codex.r1\n"
        "  1 trial without a result: cut off\n"
        "    new.claude.r1 (run.cut-off)\n"
        "  Missions on which flows differ (1)\n"
        "    ask: codex 2/2, claude 0/1\n"
        "  Not scored\n"
        "    1 trial: the machine, the network or the provider failed (infra)\n"
        "  Tools\n"
        "    codex: 6 calls, 0 failed, 0 repeated after a failure, 0 bytes of output\n"
        "    claude: 6 calls, 0 failed, 0 repeated after a failure, 0 bytes of output\n"
        "  Tokens by source\n"
        "    the agent's running total: 30 in, 12 out, of 6 results\n"
        "  Cost\n"
        "    codex: $2.00, $0.67 per verified pass\n"
        "    claude: ≥ $0.20, and 1 result of unknown cost\n"
        "\n"
        "  Infrastructure failed. With probes: 4 of 5 verified. As expected: 4 of 5. Failed for\n"
        "  infrastructure reasons: 1 of 6 results. Without a result: 2 of 8 trials. Gates that block: pair.\n"
        "  ask.claude.r1.1: claimed yes, verified NO\n"
    )


@pytest.mark.long
def test_a_narrow_terminal_costs_columns_but_never_the_name_of_a_flow(tmp_path: Path) -> None:
    found = reported(tmp_path, TWO)
    lines = shown(found, width=78).splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("  flow    "))
    assert lines[at : at + 4] == [
        "  flow    trials  verified     rate (95 %)  expected  tokens     cost    p50",
        "  codex        4       3/3  100 % (34–100)       3/3      21    $2.00  1.5 s",
        "  claude       4       1/2     50 % (9–91)       1/2      21  ≥ $0.20  1.5 s",
        "  all          8       4/5    80 % (27–96)       4/5      42  ≥ $2.20  1.5 s",
    ]
    for width in range(20, 100):
        lines = shown(found, width=width).splitlines()
        [heading] = [line for line in lines if line.startswith("  flow    ")]
        assert "verified" in heading
        assert sum(line.startswith(("  codex  ", "  claude  ", "  all  ")) for line in lines) == 3


def test_what_can_be_done_about_it_is_named(tmp_path: Path) -> None:
    def steps(name: str, tries: Tries, **more: Any) -> list[str]:
        return list(next_steps(reported(tmp_path / name, tries, **more)))

    resume, again = f"proctor campaign resume {CAMPAIGN}", f"proctor retry --only infra {CAMPAIGN}"
    assert steps("well", {"a.codex.r1": [YES]}) == [f"proctor campaign publish-check {CAMPAIGN}"]
    explain, validate = f"proctor attempt explain {RUN}/b.codex.r1.1", f"proctor validate --strict {CAMPAIGN}"
    assert steps("infra", {"a.codex.r1": [YES], "b.codex.r1": [INFRA]}) == [again, explain, validate]
    assert steps("both", {"b.codex.r1": [INFRA], "a.codex.r1": [CUT]}) == [resume, again, explain]
    # A trial that is to be retried has no result yet.
    assert steps("retried", {"b.codex.r1": [INFRA]}, retries=1) == [resume, explain]
    assert steps("canary", {"b.codex.r1": [INFRA]}, is_canary=True) == [explain, validate]
    assert steps("failed", {"a.codex.r1": [YES], "b.codex.r1": [NO]})[0] == explain


def test_markdown_groups_failures_by_mission_and_cause(tmp_path: Path) -> None:
    late = {**UNSURE, "outcome": Outcome.TIMED_OUT, "code": "limit.turn"}
    lie = {**NO, "expectation": expectation(met=True, keys={"verified": True})}
    tries = {
        **repeats("ask", "codex", NO, NO),
        **repeats("say", "codex", NOT_STATED, STATED),
        **repeats("fix", "codex", late, YES),
        **repeats("lie", "codex", lie),
    }
    page = render_markdown(reported(tmp_path, tries))
    assert page.split("## Failed or not as expected (4)\n\n")[1].split("\n\n")[0].splitlines() == [
        "- ask, not verified by its probes: ask.codex.r1.1, ask.codex.r2.1",
        "- say, not as expected: answer: say.codex.r1.1",
        "- fix, limit.turn: fix.codex.r1.1",
    ]
    assert "## Failed, as expected (1)\n\n- lie, not verified by its probes: lie.codex.r1.1\n" in page


@pytest.mark.long
def test_nothing_below_the_title_of_a_report_wraps_to_the_margin(tmp_path: Path) -> None:
    found = reported(tmp_path, TWO, gates=GatesSpec(pair=True))
    for width in range(len(CAMPAIGN), 100):
        lines = shown(found, width=width).splitlines()
        assert [line for line in lines[1:] if line and not line.startswith("  ")] == []


def test_the_same_is_told_in_markdown_with_nothing_that_could_be_markup(tmp_path: Path) -> None:
    text = render_markdown(reported(tmp_path, TWO, gates=GatesSpec(pair=True, coverage=0.5)))
    assert "| codex | 4 | 3/3 | 100 % (34–100) | 100 % | 100 % | 3/3 | 21 | ? | $2.00 | 1.5 s | 1.5 s |\n" in text
    assert "Verdict: **infrastructure failed** (exit 3).\n" in text
    assert "## Blocked by the pair gate\n\n- ask: scored results: codex 2, claude 1\n" in text
    sly = render_markdown(reported(tmp_path / "sly", {"<b>`x`|.codex.r1": [CUT]}))
    assert "\\<b\\>\\`x\\`\\|.codex.r1" in sly


def test_in_junit_a_failure_is_the_agents_an_error_is_not_and_what_says_nothing_is_skipped(tmp_path: Path) -> None:
    report = reported(tmp_path, {**TWO, "sure.codex.r1": [UNSURE]}, gates=GatesSpec(pair=True, coverage=0.5))
    suites = ElementTree.fromstring(render_junit(report))
    counts = {
        suite.get("name"): [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] for suite in suites
    }
    assert counts == {"codex": ["5", "0", "0", "2"], "claude": ["4", "1", "1", "1"], "gates": ["2", "1", "0", "0"]}
    told = {
        f"{case.get('classname')} {case.get('name')}": [
            (each.tag, each.get("message")) for each in case if each.tag != "properties"
        ]
        for case in suites.iter("testcase")
    }
    assert told == {
        f"{CAMPAIGN}.codex ask r1": [],
        f"{CAMPAIGN}.codex ask r2": [],
        f"{CAMPAIGN}.codex fix r1": [],
        f"{CAMPAIGN}.codex new r1": [("skipped", "never tried")],
        f"{CAMPAIGN}.codex sure r1": [("skipped", "nothing could judge it")],
        f"{CAMPAIGN}.claude ask r1": [("failure", "not verified by its probes")],
        f"{CAMPAIGN}.claude ask r2": [("error", "provider.error")],
        f"{CAMPAIGN}.claude fix r1": [],
        f"{CAMPAIGN}.claude new r1": [("skipped", "cut off")],
        f"{CAMPAIGN}.gates coverage": [],
        f"{CAMPAIGN}.gates pair": [("failure", "ask: scored results: codex 2, claude 1")],
    }


def test_junit_cases_have_passed_and_verified_as_properties_and_fail_as_expected_says(tmp_path: Path) -> None:
    lie = {**NO, "expectation": expectation(met=True, keys={"verified": True})}
    surprise = {**YES, "expectation": expectation(met=False, keys={"verified": False})}
    report = reported(tmp_path, {"lie.codex.r1": [lie], "surprise.codex.r1": [surprise], "say.codex.r1": [STATED]})
    cases = {case.get("name"): case for case in ElementTree.fromstring(render_junit(report)).iter("testcase")}
    properties = {
        name: {each.get("name"): each.get("value") for each in case.iter("property")} for name, case in cases.items()
    }
    assert properties["lie r1"] == {"passed": "no", "verified": "no"}
    assert properties["surprise r1"] == {"passed": "yes", "verified": "yes"}
    assert properties["say r1"] == {"passed": "yes", "verified": "unknown"}
    assert [name for name, case in cases.items() if case.find("failure") is not None] == ["surprise r1"]
    assert [(each.mission_id, each.why) for each in report.failures] == [
        ("lie", "not verified by its probes"),
        ("surprise", "not as expected: verified"),
    ]


def test_junit_reports_findings_that_belong_to_no_attempt_as_errors(tmp_path: Path) -> None:
    paths = tried(tmp_path, {"a.codex.r1": [YES]})
    paths.ledger.write_bytes(b"")
    report = load_campaign(paths, root=RootPaths(tmp_path))
    [suite] = [each for each in ElementTree.fromstring(render_junit(report)) if each.get("name") == "evidence"]
    assert (report.exit, suite.get("errors")) == (Exit.EVIDENCE, "1")


def test_the_report_survives_the_way_over_the_disk(tmp_path: Path) -> None:
    found = reported(tmp_path, TWO)
    assert msgspec.json.decode(msgspec.json.encode(found), type=CampaignReport) == found


def test_report_names_the_missions_that_were_selected(tmp_path: Path) -> None:
    paths = tried(tmp_path, repeats("ask", "codex", STATED, YES))
    paths.spec_snapshot.mkdir()
    index = {"given": {"select": {"ids": ["ask"], "tags": ["fast"]}, "flows": None}, "scripts": {}}
    paths.snapshot_index.write_bytes(msgspec.json.encode(index))
    report = load_campaign(paths, root=RootPaths(tmp_path))
    assert report.selected == SelectSpec(ids=["ask"], tags=["fast"])
    assert "  missions  only those named ask, tagged fast" in shown(report).splitlines()
    assert "only those" not in shown(reported(tmp_path / "whole", TWO))


def test_report_shows_rates_of_missions_with_and_without_probes_apart(tmp_path: Path) -> None:
    tries = {**repeats("ask", "codex", STATED, NOT_STATED), **repeats("fix", "codex", YES, NO)}
    report = reported(tmp_path, tries)
    headings, [flow] = flow_table(report)
    assert dict(zip(headings, flow, strict=True)) == {
        "flow": "codex",
        "trials": "4",
        "verified": "1/2",
        "rate (95 %)": "50 % (9–91)",
        "pass@2": "100 %",
        "pass^2": "0 %",
        "no probes": "1/2",
        "expected": "2/4",
        "tokens": "28",
        "reasoning": "?",
        "cost": "?",
        "p50": "1.5 s",
        "p95": "1.5 s",
    }
    lines = shown(report).splitlines()
    assert (
        "  Not as expected. With probes: 1 of 2 verified. Without probes: 1 of 2 passed. As expected: 2 of 4." in lines
    )
