"""What was expected of a real attempt is judged again from its evidence alone, and a forged judgement is found."""

import json
from typing import Any

import pytest

from proctor.evidence.artifacts import Expectation
from proctor.evidence.layout import ATTEMPT, REPORT, AttemptPaths
from tests.attempt.forge import alter_json, reseal
from tests.attempt.recorded import codes, strictly
from tests.lab import report_of

pytestmark = pytest.mark.real_agent


@pytest.mark.requirement("suite.run")
def test_expectations_over_answer_trace_and_workspace_of_a_real_agent_are_met(fix: AttemptPaths) -> None:
    assert report_of(fix).expectation == Expectation(
        met=True, keys={"answer": True, "trace": True, "workspace": True}, unmet=()
    )
    assert strictly(fix).status == "valid"


@pytest.mark.requirement("suite.run")
@pytest.mark.parametrize(
    "expect",
    [
        {"matches": "^Eve"},
        {"trace": {"max_tool_calls": 1}},
        {"trace": {"commands": ["rm "]}},
        {"workspace": {"untouched": ["greet.txt"]}},
        {},
    ],
)
def test_a_judgement_that_the_evidence_does_not_give_is_found(fix: AttemptPaths, expect: dict[str, Any]) -> None:
    alter_json(fix.attempt, expect=expect)
    reseal(fix)
    assert codes(strictly(fix)) == {("evidence.derived", REPORT)}


def test_a_diff_that_was_emptied_no_longer_meets_what_was_met(fix: AttemptPaths) -> None:
    fix.workspace_diff.write_text("")
    reseal(fix)
    assert ("evidence.derived", REPORT) in codes(strictly(fix))


def test_violations_of_a_policy_that_the_tool_calls_do_not_give_are_found(fix: AttemptPaths) -> None:
    assert report_of(fix).policy_violations == ()
    alter_json(fix.report, policyViolations=["c1: web:search is not allowed"])
    reseal(fix)
    assert codes(strictly(fix)) == {("evidence.derived", REPORT)}


def test_violations_of_a_policy_that_are_left_out_are_found(fix: AttemptPaths) -> None:
    alter_json(fix.attempt, tools={"deny": ["command:cat *"]})
    reseal(fix)
    assert codes(strictly(fix)) == {("evidence.derived", REPORT)}


@pytest.mark.parametrize("field", ["policyViolations", "hasChangedFiles", "metrics"])
def test_report_without_what_every_report_has_is_invalid(fix: AttemptPaths, field: str) -> None:
    metrics = {**json.loads(fix.report.read_bytes())["metrics"], "turns": None}
    alter_json(fix.report, **{field: metrics if field == "metrics" else None})
    reseal(fix)
    # Null tool calls are those of a runtime that cannot see them, which the frames of this one contradict.
    code = "evidence.derived" if field == "policyViolations" else "evidence.schema"
    assert (code, REPORT) in codes(strictly(fix))


def test_record_without_its_expectation_is_invalid(fix: AttemptPaths) -> None:
    alter_json(fix.attempt, expect=None)
    reseal(fix)
    assert ("evidence.schema", ATTEMPT) in codes(strictly(fix))
