"""The `process` runtime cannot see tool calls: what depends on them is unknown there, never 0 and never met."""

import json
from typing import Any

import pytest

from proctor.evidence.summary import UNKNOWN
from tests.lab import Lab, jsonl, mission, report_of, say_done
from tests.report.made import expectation
from tests.runtime.process.commands import flow

pytestmark = pytest.mark.requirement("evidence.trace")

CLAIM = """touch made; echo 'PROCTOR-RESULT: {"done": true, "answer": "4"}'"""
TRACE = {"answer": "4", "trace": {"max_tool_calls": 0}}
DENY = {"deny": ["command:*"]}


def spec(lab: Lab) -> str:
    lab.is_other_agent_allowed = True
    probes = [{"kind": "headless_run", "command": ["test", "-e", "made"]}]
    return str(
        lab.write_spec(
            [
                mission("ask", say_done(), expect=TRACE),
                mission("make", say_done(), expect={**TRACE, "verified": "yes"}, probes=probes),
                mission("wrong", say_done(), expect={**TRACE, "answer": "5"}),
            ],
            flow=flow(CLAIM, id="sh", tools=DENY),
        )
    )


@pytest.fixture
def rows(lab: Lab) -> dict[str, Any]:
    """The counted attempts of a campaign whose tool calls cannot be seen, by mission."""
    said = lab.proctor("run", spec(lab), "--json")
    assert said.returncode == 1, said.stdout + said.stderr
    return {row["missionId"]: row for row in json.loads(said.stdout)["attempts"]}


def test_expectations_and_counts_are_unknown_where_tool_calls_cannot_be_seen(lab: Lab, rows: dict[str, Any]) -> None:
    [met, keys] = (rows["ask"]["summary"]["expectation"][name] for name in ("met", "keys"))
    assert (met, keys) == (None, {"answer": True, "trace": None})
    counts = ("toolCalls", "mcpCalls", "toolFailures", "toolRetries", "toolOutputBytes", "isStuck", "policyViolations")
    assert {name: rows["ask"]["summary"][name] for name in counts} == dict.fromkeys(counts)
    # Another expectation that is unmet is unmet all the same.
    assert rows["wrong"]["summary"]["expectation"]["met"] is False

    said = lab.proctor("campaign", "report", "--attempts", "--json")
    report = json.loads(said.stdout)
    [ask] = [each["flows"]["sh"] for each in report["missions"] if each["missionId"] == "ask"]
    assert (ask["unverified"]["scored"], report["score"]["toolCallsUnknown"]) == (0, 3)
    # Probes judge what they see; the expectation about the trace stays open.
    assert (rows["make"]["summary"]["verified"], rows["make"]["summary"]["expectation"]["met"]) == (True, None)
    assert (report["score"]["expected"], report["score"]["unexpected"], report["score"][UNKNOWN]) == (0, 1, 1)
    [tools] = [gate for gate in report["gates"] if gate["name"] == "tools"]
    assert [(each["why"], each["isUnknown"]) for each in tools["blocked"]] == [
        ("its runtime cannot see tool calls, so this is unknown", True)
    ] * 3
    page = lab.proctor("campaign", "report", "--format", "md").stdout
    assert "- sh: unknown for 3 results, because the runtime cannot see tool calls\n" in page
    lab.assert_all_evidence_is_valid()


def test_transcript_and_explanation_do_not_count_unseen_tool_calls(lab: Lab, rows: dict[str, Any]) -> None:
    assert rows["ask"]["state"] == "sealed"
    paths = lab.attempts()["ask.sh.r1.1"]
    assert report_of(paths).policy_violations is None
    assert "1 turn, unknown tool calls, " in jsonl(paths.transcript)[-1]["text"]
    explained = lab.proctor("attempt", "explain", "ask").stdout
    assert "Actions   unknown tool calls, ? tokens\n  unknown: the runtime cannot see tool calls\n" in explained
    assert json.loads(lab.proctor("attempt", "explain", "ask", "--json").stdout)["toolCalls"] is None
    assert "\n  ask.sh.r1.1 " in lab.proctor("attempt", "list").stdout


def test_campaign_is_inconclusive_if_only_tool_calls_cannot_be_judged(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    work = mission("ask", say_done(), expect={"answer": "4"})
    run = lab.proctor("run", str(lab.write_spec([work], flow=flow(CLAIM, id="sh", tools=DENY))))
    assert run.returncode == 4, run.stdout + run.stderr


def test_lint_says_which_rules_about_tool_calls_will_be_unknown(lab: Lab) -> None:
    said = lab.proctor("campaign", "lint", spec(lab))
    text = " ".join((said.stdout + said.stderr).split())
    assert "flow `sh`: whether `tools` is obeyed will be unknown: process cannot see tool calls" in text
    assert "flow `sh`: `expect.trace` of ask, make, wrong will be unknown: process cannot see tool calls" in text


def test_unseen_trace_leaves_content_open_unless_something_else_is_wrong() -> None:
    assert expectation(met=None, keys={"answer": True, "trace": None}).content_holds is None
    assert expectation(met=False, keys={"answer": False, "trace": None}).content_holds is False
    assert expectation(met=True, keys={"answer": True, "trace": True}).content_holds is True
