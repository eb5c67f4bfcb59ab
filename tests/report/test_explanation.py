"""What a explanation says is to be done next."""

import io
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import AttemptReport
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import Finding
from proctor.ids import AttemptId
from proctor.report.explanation import AttemptExplanation, ProbeSummary, explain
from proctor.report.explanation_text import render_explanation
from proctor.report.view import AttemptView
from proctor.spec.criterion import Role
from tests.report.made import expectation, report

ATTEMPT = AttemptId("fix.codex.r1.1")


def explained(report: AttemptReport, *findings: Finding, diff: str | None = None) -> AttemptExplanation:
    view = AttemptView(
        paths=AttemptPaths(Path("/evidence/a b")),
        record=None,
        prompt=None,
        tool_calls=(),
        transcript=(),
        runner=None,
        feedback=None,
        probes=(),
        diff=diff,
        report=report,
        seal=None,
        findings=findings,
    )
    return explain(view)


def test_explanation_names_an_unmet_expectation_first() -> None:
    missed = report(
        ATTEMPT, expectation=expectation(met=False, unmet=("answer: expected '4', got '5'",), keys={"answer": False})
    )
    assert explained(missed).next == ("An expectation was not met: answer: expected '4', got '5'",)


def test_explanation_of_an_exhausted_script_asks_for_another_step() -> None:
    detail = '{"error":{"message":"the script is exhausted: all of its steps (1) were played"}}'
    explanation = explained(report(ATTEMPT, outcome=Outcome.FAILED, code="agent.turn-failed", detail=detail))
    assert explanation.next == ("The script ran out of steps: add one to the script of the mission.",)


def test_explanation_of_a_failed_probe_names_the_diff_only_if_there_are_changes() -> None:
    failed = report(ATTEMPT, verified=False, claimed=False)
    changed = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    assert explained(failed, diff=changed).next == ("A probe failed: compare its output with the diff.",)
    assert explained(failed, diff="").next == ("A probe failed, and the agent changed nothing.",)


def test_explanation_names_a_policy_violation_and_a_lack_of_progress() -> None:
    metrics = msgspec.structs.replace(report(ATTEMPT).metrics, is_stuck=True, longest_streak=12)
    assert explained(report(ATTEMPT, metrics=metrics, policy_violations=("c1: web:search is not allowed",))).next == (
        "The agent violated the flow's tool policy: c1: web:search is not allowed",
        "The agent made no progress: it repeated one call 12 times in a row. Read tool.calls.jsonl.",
    )


def test_explanation_of_damaged_evidence_verifies_nothing() -> None:
    gone = Finding(code="evidence.missing-file", file="transcript.jsonl", detail="absent")
    altered = Finding(code="evidence.digest", file="workspace.diff", detail="altered")
    explanation = explained(report(ATTEMPT), gone, altered)
    assert (explanation.outcome, explanation.verified, explanation.expectation_met, explanation.evidence) == (
        *(Outcome.COMPLETED, None, None),
        "invalid",
    )
    assert explanation.reasons == ("the evidence is damaged",)
    assert explanation.next == ("Restore it from a backup; do not edit evidence.", "Treat the attempt as damaged.")
    assert explained(report(ATTEMPT), gone).next == ("Run `proctor attempt rederive '/evidence/a b'`.",)


def rendered(report: AttemptReport, **changes: Any) -> str:
    console = Console(file=io.StringIO(), width=100, no_color=True, markup=False)
    explanation = msgspec.structs.replace(explained(report), **changes)
    with console.capture() as captured:
        console.print(render_explanation(explanation))
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def test_explanation_separates_what_was_expected_from_what_was_verified() -> None:
    unsure = {"verified": None, "reasons": ("the mission has no probe",)}
    missed = expectation(met=False, unmet=("answer: expected '7', got '6'",), keys={"answer": False})
    assert (
        "Verified\n  unknown: the mission has no probe\n\nExpected\n  NOT as expected: answer: expected '7', got '6'\n"
    ) in rendered(report(ATTEMPT, **unsure, expectation=missed))
    met = expectation(met=True, keys={"answer": True})
    assert "\nExpected\n  as expected: every key of `expect` is met\n" in rendered(
        report(ATTEMPT, **unsure, expectation=met)
    )


def test_explanation_without_expect_compares_with_the_probes() -> None:
    probe = ProbeSummary(
        kind="headless_run",
        role=Role.GOAL,
        criterion="It works.",
        mutant=None,
        judged=None,
        files=(),
        index=0,
        argv=("true",),
        before="fail",
        after="fail",
        failure=None,
        command="true",
        run_again=None,
    )
    failed = report(ATTEMPT, verified=False, expectation=expectation(met=None, keys={}))
    default = "the mission has no `expect`, so its probes should verify the result"
    assert f"\nExpected\n  NOT as expected: {default}\n" in rendered(failed, probes=(probe,))
    assert "\nExpected\n" not in rendered(failed), "a mission without probes and `expect` expects nothing"


def test_explanation_asks_for_no_probe_where_unknown_is_expected() -> None:
    advice = "Nothing was verified: add a probe to the mission."
    assert explained(report(ATTEMPT, verified=None)).next == (advice,)
    intended = expectation(met=True, keys={"verified": True})
    assert explained(report(ATTEMPT, verified=None, expectation=intended)).next == (
        "Nothing to do: the result is as expected and the evidence is complete.",
    )
