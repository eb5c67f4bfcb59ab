"""Two attempts compared: each aspect can differ, and only what a rule knows explains a difference."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.event.outcome import Outcome
from proctor.event.trace import ToolCall
from proctor.evidence.artifacts import Feedback, RunnerRef
from proctor.evidence.layout import AttemptPaths
from proctor.fact import Authority, Fact
from proctor.ids import AttemptId, CallId, Digest, RuntimeId, TurnId
from proctor.report.parity import Aspect, AspectComparison, compare
from proctor.report.view import AttemptView
from tests.report.made import report

ID = AttemptId("fix.a.r1.1")


def call(command: str, *, kind: Any = "command", ok: bool = True, **given: Any) -> ToolCall:
    return ToolCall(
        attempt=ID,
        session=None,
        call=CallId("c"),
        turn=TurnId("t"),
        kind=kind,
        name="shell",
        input=given or {"command": command},
        ok=ok,
        status="completed",
        began_at_ms=1,
    )


def view(*calls: ToolCall, facts: dict[str, Fact] | None = None, **changes: Any) -> AttemptView:
    runner = RunnerRef(
        attempt_id=ID,
        runtime_id=RuntimeId("one"),
        transport="stdio",
        process_id=None,
        session_id=None,
        thread_id=None,
        is_fresh_session=True,
        facts=facts or {},
    )
    return AttemptView(
        paths=AttemptPaths(Path("nowhere")),
        record=None,
        prompt=None,
        tool_calls=calls,
        transcript=(),
        runner=runner,
        feedback=Feedback(attempt_id=ID, claimed=True, answer="42", frame=1, problem=None, result=None),
        probes=(),
        diff=None,
        report=report(ID, **changes),
        seal=None,
        findings=(),
    )


def apart(left: AttemptView, right: AttemptView, *, is_usage_scripted: bool = True) -> dict[Aspect, str | None]:
    compared = compare(left, right, is_usage_scripted=is_usage_scripted)
    assert [each.aspect for each in compared] == list(Aspect)
    return {each.aspect: each.why for each in compared if not each.is_equal}


def with_metrics(of: AttemptView, **changes: Any) -> AttemptView:
    assert of.report is not None
    metrics = msgspec.structs.replace(of.report.metrics, **changes)
    return replace(of, report=msgspec.structs.replace(of.report, metrics=metrics))


SAME = view(call("/bin/bash -lc 'echo hi'"))
NO_CLAIM = Feedback(attempt_id=ID, claimed=None, answer=None, frame=1, problem=None, result=None)


@pytest.mark.requirement("runtime.parity")
def test_the_same_work_is_the_same_however_an_agent_spells_it() -> None:
    assert apart(SAME, view(call("echo hi"))) == {}
    deep = call("", kind="patch", changes=[{"path": "/w/one/greet.py", "kind": "update"}])
    assert apart(view(deep), view(call("", kind="patch", changes=[{"path": "greet.py"}]))) == {}


@pytest.mark.requirement("runtime.parity")
@pytest.mark.parametrize(
    ("other", "aspect"),
    [
        (view(call("echo hi"), outcome=Outcome.FAILED), Aspect.OUTCOME),
        (view(call("echo hi"), code="provider.unauthorized"), Aspect.OUTCOME),
        (view(call("echo hi"), verified=None), Aspect.VERIFIED),
        (
            replace(
                SAME, feedback=Feedback(attempt_id=ID, claimed=None, answer=None, frame=1, problem=None, result=None)
            ),
            Aspect.CLAIM,
        ),
        (view(call("echo hi"), workspace_digest_after=Digest("sha256:1")), Aspect.WORKSPACE),
        (view(call("echo ho")), Aspect.TOOL_CALLS),
        (view(call("echo hi", ok=False)), Aspect.TOOL_CALLS),
        (with_metrics(SAME, tool_failures=1), Aspect.METRICS),
    ],
)
def test_any_other_difference_is_told_and_nothing_explains_it(other: AttemptView, aspect: Aspect) -> None:
    assert apart(SAME, other) == {aspect: None}


def test_parity_explains_different_usage_only_if_the_script_does_not_fix_it() -> None:
    assert SAME.report is not None
    usage = SAME.report.metrics.usage
    assert usage is not None
    assert usage.tokens is not None
    dearer = msgspec.structs.replace(usage, tokens=msgspec.structs.replace(usage.tokens, input=6))
    other = with_metrics(SAME, usage=dearer)
    assert apart(SAME, other) == {Aspect.USAGE: None}
    [why] = apart(SAME, other, is_usage_scripted=False).values()
    assert why is not None
    assert "length of the request" in why
    [why] = apart(SAME, with_metrics(SAME, usage=None)).values()
    assert why is not None
    assert "did not report tokens" in why


def test_calls_that_a_runtime_cannot_see_are_explained_by_its_own_fact() -> None:
    unseen = {"toolCalls": Fact(value="unseen", authority=Authority.DECLARED, source="capabilities")}
    blind = with_metrics(view(facts=unseen), tool_calls=0)
    assert {aspect for aspect, why in apart(SAME, blind).items() if why} == {Aspect.TOOL_CALLS, Aspect.METRICS}
    assert set(apart(SAME, with_metrics(view(), tool_calls=0)).values()) == {None}
    assert apart(SAME, with_metrics(blind, turns=7))[Aspect.METRICS] is None


def test_why_a_command_failed_need_not_be_known_but_that_it_failed_must() -> None:
    unseen = {"toolCalls": Fact(value="unseen", authority=Authority.DECLARED, source="capabilities")}
    refused = view(outcome=Outcome.FAILED, code="provider.unauthorized")
    exited = view(facts=unseen, outcome=Outcome.FAILED, code="agent.exit-status")
    assert bool(apart(refused, exited)[Aspect.OUTCOME])
    assert apart(SAME, exited)[Aspect.OUTCOME] is None
    assert apart(refused, view(outcome=Outcome.FAILED, code="agent.exit-status")) == {Aspect.OUTCOME: None}


def test_a_look_that_changes_nothing_is_explained_and_a_failure_beside_it_is_not() -> None:
    look = msgspec.structs.replace(call("", kind="other"), name="Read")
    looking = with_metrics(view(call("echo hi"), look), tool_calls=3)
    assert {aspect: bool(why) for aspect, why in apart(SAME, looking).items()} == {
        Aspect.TOOL_CALLS: True,
        Aspect.METRICS: True,
    }
    failing = with_metrics(looking, tool_failures=1)
    assert apart(SAME, failing)[Aspect.METRICS] is None
    elsewhere = view(call("echo hi"), look, workspace_digest_after=Digest("sha256:1"))
    assert apart(SAME, elsewhere) == {Aspect.WORKSPACE: None, Aspect.TOOL_CALLS: None}


def test_what_is_not_the_same_counts_as_explained_only_with_a_reason() -> None:
    told = AspectComparison(aspect=Aspect.USAGE, left=1, right=2, is_equal=False)
    assert (told.is_explained, msgspec.structs.replace(told, why="so").is_explained) == (False, True)
