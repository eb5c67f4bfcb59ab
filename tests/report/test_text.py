"""What reports look like: at 100 columns, without colour, and with nothing an agent could make a terminal obey."""

import io

from rich.console import Console, Group, RenderableType
from rich.text import Text

from proctor.errors import Bucket, Exit
from proctor.event.outcome import Outcome
from proctor.evidence.reader import Finding
from proctor.ids import AttemptId, FlowId, MissionId
from proctor.report.campaign import CampaignReport, build_report
from proctor.report.campaign_state import CampaignState, fold_rows
from proctor.report.markdown import render_markdown
from proctor.report.row import AttemptRow
from proctor.report.sections import conclude
from proctor.report.text import render_attempts, render_conclusion
from proctor.report.text import render_report as render_body
from tests.report.made import CAMPAIGN, RUN, row


def shown(what: RenderableType, *, width: int = 100) -> str:
    written = io.StringIO()
    Console(file=written, width=width, no_color=True, markup=False, emoji=False, highlight=False).print(what)
    return "".join(f"{line.rstrip()}\n" for line in written.getvalue().splitlines())


def render_report(report: CampaignReport, *, title: str) -> RenderableType:
    return Group(render_body(report, title=title), Text(), render_conclusion(report))


def report_of(*rows: AttemptRow) -> CampaignReport:
    return build_report(CampaignState(campaign_id=CAMPAIGN, run_ids=(RUN,), folded=fold_rows(rows)))


ASK = row(
    attempt_id=AttemptId("ask.codex.r1.1"),
    mission_id=MissionId("ask"),
    claimed=True,
    met=True,
    tool_calls=0,
    tokens=1785,
    duration_ms=532,
    reasons=("the mission has no probe",),
)
CLAIM = row(
    attempt_id=AttemptId("claim.codex.r1.1"),
    mission_id=MissionId("claim"),
    claimed=True,
    verified=False,
    met=False,
    unmet=("verified: expected yes, got no",),
    tool_calls=1,
    tokens=None,
    duration_ms=61_000,
    reasons=("`make test`: exited 1",),
)
LATE = row(
    attempt_id=AttemptId("late.codex.r1.1"),
    mission_id=MissionId("late"),
    outcome=Outcome.TIMED_OUT,
    code="limit.turn",
    bucket=Bucket.AGENT,
    todo="Raise it.",
    detail="the turn ran past 3000 ms",
    tool_calls=1,
    tokens=9,
    duration_ms=3100,
)


def test_report_shows_what_was_claimed_what_was_verified_and_why() -> None:
    assert shown(render_report(report_of(ASK, CLAIM, LATE), title="a title")) == (
        "a title\n"
        "  trials  complete: 3 of 3 have a result\n"
        "  usage   3 attempts; ≥ 1,794 tokens, cost ?\n"
        "\n"
        "  mission/flow  runtime           outcome    claimed  verified  passed  expected  tools        time\n"
        "  ask/codex     codex_app_server  completed  yes      unknown   –       yes           0      532 ms\n"
        "  claim/codex   codex_app_server  completed  yes      NO        NO      NO            1  1 min 01 s\n"
        "  late/codex    codex_app_server  timed_out  –        unknown   NO      –             1       3.1 s\n"
        "\n"
        "  ask/codex    verified unknown: the mission has no probe\n"
        "  claim/codex  expected to be verified, but the probe failed\n"
        "  claim/codex  verified NO: `make test`: exited 1\n"
        "  late/codex   limit.turn (agent): the turn ran past 3000 ms\n"
        "  late/codex   to do: Raise it.\n"
        "\n"
        "  Not scored: the probes could not judge (1)\n"
        "    ask, the mission has no probe: ask.codex.r1.1\n"
        "\n"
        "  Infrastructure failed. With probes: 0 of 2 verified. As expected: 1 of 2. Could not be judged: 1\n"
        "  of 3 results.\n"
        "  claim.codex.r1.1: claimed yes, verified NO\n"
    )


def test_the_same_report_in_markdown_escapes_what_an_agent_may_have_written() -> None:
    sly = row(verified=False, reasons=("printed `|<b>x</b>|`\n# Heading",))
    text = render_markdown(report_of(sly))
    head = "Not as expected. With probes: 0 of 1 verified. As expected: 0 of 1. Verdict: **not as expected** (exit 1)."
    assert text.startswith(f"# {CAMPAIGN}\n\n{head}")
    assert (
        "| fix/codex | codex_app_server | completed | – | **NO** | **NO** | **NO** | 0 | ? | ? | 0 ms | runs/r/" in text
    )
    assert "- fix/codex: verified NO: printed \\`\\|\\<b\\>x\\</b\\>\\|\\` · # Heading\n" in text


def test_escape_sequences_never_reach_the_terminal() -> None:
    nasty = "\x1b[2J\x1b]0;owned\x07\u202e"
    sly = row(
        mission_id=MissionId(nasty),
        flow_id=FlowId(nasty),
        code="peer.refused",
        detail=nasty,
        reasons=(nasty,),
        unmet=(nasty,),
        findings=(Finding(code="evidence.digest", file=nasty, detail=nasty),),
    )
    out = shown(render_report(report_of(sly), title="t")) + shown(render_attempts([sly], sly.findings))
    assert not {char for char in out if not char.isprintable()} - {"\n"}
    assert "\\x1b[2J" in out


def test_repeats_are_told_apart_by_their_attempts() -> None:
    twice = report_of(ASK, row(attempt_id=AttemptId("ask.codex.r2.1"), mission_id=MissionId("ask")))
    out = shown(render_report(twice, title="t"))
    assert "  attempt         runtime " in out
    assert "| attempt | runtime |" in render_markdown(twice)
    assert "  ask.codex.r1.1  codex_app_server  completed" in out
    assert "  ask.codex.r2.1  codex_app_server  completed" in out


def test_a_long_report_shows_what_is_not_as_it_should_be() -> None:
    fine = [
        row(attempt_id=AttemptId(f"m{n}.codex.r1.1"), mission_id=MissionId(f"m{n}"), verified=True) for n in range(60)
    ]
    out = shown(render_report(report_of(*fine, CLAIM), title="t"))
    assert "claim/codex" in out
    assert "m7/codex" not in out
    assert "  60 other attempts as expected; --json lists all\n" in out


def test_attempts_that_do_not_count_are_told_apart_and_never_among_those_that_do() -> None:
    first = row(outcome=Outcome.CRASHED, code="peer.hangup", n=1, is_superseded=True)
    again = row(attempt_id=AttemptId("fix.codex.r1.2"), verified=True, n=2)
    report = report_of(first, again)
    out = shown(render_report(report, title="t"))
    assert out.count("crashed") == 0
    assert "  not counted, because another attempt of the trial counts: fix.codex.r1.1\n" in out
    assert "  With probes: 1 of 1 verified. As expected: 1 of 1.\n" in out
    markdown = render_markdown(report)
    assert markdown.count("| crashed |") == 0
    assert f"## Not counted\n\nOther attempts of these trials:\n\n- {RUN}/fix.codex.r1.1: crashed" in markdown


def test_a_narrow_terminal_costs_columns_but_never_the_name() -> None:
    assert shown(render_attempts([CLAIM], ()), width=60).splitlines()[1:] == [
        "  attempt           outcome    verified  expected",
        "  claim.codex.r1.1  completed  NO        NO",
    ]
    for width in range(20, 100):
        assert "claim.codex.r1.1" in shown(render_attempts([CLAIM], ()), width=width)


def test_the_id_of_an_attempt_is_never_folded_where_a_line_can_hold_it() -> None:
    id_ = "rewrite-the-importer-in-small-steps.claude-on-server.r12.3"
    long = row(attempt_id=AttemptId(id_))
    assert shown(render_attempts([long, CLAIM], ()), width=80).splitlines()[1:3] == [
        "  attempt                                                     outcome",
        f"  {id_}  completed",
    ]
    for width in range(len(id_) + 4, 120):
        assert id_ in shown(render_attempts([long], ()), width=width)


def test_long_names_stand_above_what_is_said_of_them_and_never_squeeze_it() -> None:
    reasons = ("`make test`: exited 1 without a word about what it had been looking for",)
    rows = [
        row(
            attempt_id=AttemptId(f"rewrite-the-importer-in-steps.codex.r{n}.1"),
            verified=False,
            met=False,
            unmet=("verified: expected yes, got no",),
            reasons=reasons,
        )
        for n in range(1, 5)
    ]
    assert shown(render_report(report_of(*rows), title="t"), width=80).splitlines()[8:17] == [
        "  rewrite-the-importer-in-steps.codex.r4.1  completed  NO        NO",
        "",
        "  rewrite-the-importer-in-steps.codex.r1.1,",
        "  rewrite-the-importer-in-steps.codex.r2.1,",
        "  rewrite-the-importer-in-steps.codex.r3.1 and 1 more",
        "    expected to be verified, but the probe failed",
        "    verified NO: `make test`: exited 1 without a word about what it had been",
        "    looking for",
        "",
    ]


def test_nothing_below_the_title_wraps_to_the_margin() -> None:
    for width in range(20, 100):
        lines = shown(render_report(report_of(ASK, CLAIM, LATE), title="t"), width=width).splitlines()
        assert [line for line in lines[1:] if line and not line.startswith("  ")] == []


def test_conclusion_counts_verified_and_expected_results() -> None:
    yes, no = row(trial=None, verified=True), row(trial=None, verified=False)
    assert conclude(report_of(yes, yes)) == "With probes: 2 of 2 verified. As expected: 2 of 2."
    assert conclude(report_of(yes, no)) == "Not as expected. With probes: 1 of 2 verified. As expected: 1 of 2."
    lost = row(trial=None, evidence="invalid")
    assert conclude(report_of(yes, lost)) == (
        "Evidence invalid. With probes: 1 of 1 verified. As expected: 1 of 1. Invalid evidence: 1 attempt."
    )


def test_conclusion_says_how_many_results_could_not_be_judged() -> None:
    yes, unsure = row(trial=None, verified=True), row(trial=None, verified=None)
    assert conclude(report_of(yes, unsure)) == (
        "Inconclusive. With probes: 1 of 1 verified. As expected: 1 of 1. Could not be judged: 1 of 2 results."
    )


def test_an_error_that_came_as_json_is_told_by_its_message() -> None:
    raw = '{"error":{"message":"no such model","type":"invalid_request_error","param":null}}'
    out = shown(render_report(report_of(row(code="agent.turn-failed", bucket=Bucket.AGENT, detail=raw)), title="t"))
    assert "  fix/codex  agent.turn-failed (agent): no such model\n" in out


def test_damaged_evidence_verifies_nothing() -> None:
    damaged = row(evidence="invalid", verified=None)
    out = shown(render_report(report_of(damaged), title="t"))
    assert "  fix/codex     codex_app_server  INVALID  –        unknown" in out
    assert report_of(damaged).exit == Exit.EVIDENCE


def test_a_report_of_no_attempt_can_be_shown() -> None:
    assert shown(render_report(report_of(), title="a title")) == (
        "a title\n"
        "  trials  incomplete: 0 of 0 have a result\n"
        "  usage   0 attempts; 0 tokens, cost ?\n"
        "\n"
        "  Inconclusive. No results.\n"
    )
