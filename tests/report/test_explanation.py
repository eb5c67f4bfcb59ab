"""What a story says is to be done next."""

from pathlib import Path

import msgspec

from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import AttemptReport
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import Finding
from proctor.ids import AttemptId
from proctor.report.explanation import AttemptExplanation, tell
from proctor.report.view import AttemptView
from tests.report.made import expectation, report

ATTEMPT = AttemptId("fix.codex.r1.1")


def told(report: AttemptReport, *findings: Finding) -> AttemptExplanation:
    view = AttemptView(
        paths=AttemptPaths(Path("/evidence/a b")),
        record=None,
        prompt=None,
        tool_calls=(),
        transcript=(),
        runner=None,
        feedback=None,
        probes=(),
        diff=None,
        report=report,
        seal=None,
        findings=findings,
    )
    return tell(view)


def test_a_missed_expectation_is_named_first() -> None:
    missed = report(
        ATTEMPT, expectation=expectation(met=False, misses=("answer: expected '4', got '5'",), keys={"answer": False})
    )
    assert told(missed).next == ("The expectation was missed: answer: expected '4', got '5'",)


def test_a_script_that_is_played_out_needs_another_step() -> None:
    detail = '{"error":{"message":"the script is exhausted: all of its steps (1) were played"}}'
    story = told(report(ATTEMPT, outcome=Outcome.FAILED, code="agent.turn-failed", detail=detail))
    assert story.next == ("The script has no further step: add one to the script of the mission.",)


def test_a_broken_policy_and_a_lack_of_progress_are_told() -> None:
    metrics = msgspec.structs.replace(report(ATTEMPT).metrics, is_stuck=True, longest_streak=12)
    assert told(report(ATTEMPT, metrics=metrics, policy_violations=("c1: web:search is not allowed",))).next == (
        "It broke the flow's tool policy: c1: web:search is not allowed",
        "It made no progress: the same call 12 times in a row. Read tool.calls.jsonl.",
    )


def test_nothing_is_verified_by_damaged_evidence() -> None:
    gone = Finding(code="evidence.missing-file", file="transcript.jsonl", detail="absent")
    altered = Finding(code="evidence.digest", file="workspace.diff", detail="altered")
    story = told(report(ATTEMPT), gone, altered)
    assert (story.outcome, story.verified, story.expectation_met, story.evidence) == (
        *(Outcome.COMPLETED, None, None),
        "invalid",
    )
    assert story.reasons == ("the evidence is damaged",)
    assert story.next == ("Restore it from a backup; do not edit evidence.", "Treat the attempt as damaged.")
    assert told(report(ATTEMPT), gone).next == ("Run `proctor attempt rederive '/evidence/a b'`.",)
