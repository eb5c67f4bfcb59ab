"""What a spec expects of result, trace and workspace: nought is a limit, and each miss says what was found."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.attempt.judge import judge
from proctor.event.claim import Claim
from proctor.event.metrics import Metrics, MetricsFold
from proctor.event.model import ToolBegan, ToolEnded, ToolKind
from proctor.event.outcome import Outcome
from proctor.event.trace import ToolCall
from proctor.evidence.artifacts import Expectation
from proctor.ids import AttemptId, CallId, TurnId
from proctor.spec.expect import ExpectedVerdict, ExpectSpec, ResultExpect, TraceExpect, WorkspaceExpect


def call(name: str = "shell", given: Any = None, *, kind: ToolKind = "command", ok: bool | None = True) -> ToolCall:
    return ToolCall(
        attempt=AttemptId("a"),
        session=None,
        call=CallId("c"),
        turn=TurnId("t"),
        kind=kind,
        name=name,
        input=given,
        ok=ok,
        status="",
        began_at_ms=0,
    )


def ran(command: str, *, ok: bool = True) -> ToolCall:
    return call(given={"command": f"/bin/bash -lc '{command}'"}, ok=ok)


CALLS = (
    ran("git status"),
    ran("pytest -q", ok=False),
    ran("pytest -q", ok=False),
    ran("pytest -q"),
    call("apply_patch", {"changes": []}, kind="patch"),
    call("search", {"q": "x"}, kind="mcp", ok=None),
)
CHANGED = ("src/greet.py", "src/deep/names.py", "notes.md")
CLAIM = Claim(
    claimed=True, answer="It is 42.", result={"total": 3, "items": ["a"], "note": "", "ok": True, "n/a": None, "o": {}}
)


def measured(calls: Iterable[ToolCall]) -> Metrics:
    fold = MetricsFold()
    for at, each in enumerate(calls):
        call: dict[str, Any] = {"call": CallId(f"c{at}"), "turn": each.turn, "kind": each.kind, "name": each.name}
        fold.feed(ToolBegan(**call, input=each.input, frame=at, at_ms=0))
        if each.ok is not None:
            fold.feed(ToolEnded(**call, ok=each.ok, status="", frame=at, at_ms=0))
    return fold.finish()


def judged(expect: ExpectSpec, **more: Any) -> Expectation:
    given = {"outcome": Outcome.COMPLETED, "verified": ExpectedVerdict.UNKNOWN, "claim": CLAIM, "calls": CALLS}
    more["metrics"] = measured(more.get("calls", CALLS))
    return judge(expect, **{**given, "changed": CHANGED, **more})


MET = [
    ExpectSpec(answer="It is 42."),
    ExpectSpec(matches=r"\b42\b"),
    ExpectSpec(matches="(?i)IT IS"),
    ExpectSpec(
        result=ResultExpect(equals={"total": 3.0, "items": ["a"], "note": "", "ok": True, "n/a": None, "o": {}})
    ),
    ExpectSpec(result=ResultExpect(has=["/total", "/items/0", "/note", "/n~1a", ""])),
    ExpectSpec(result=ResultExpect(non_empty=["/total", "/items", "/ok"])),
    ExpectSpec(trace=TraceExpect(max_tool_calls=6, max_failures=2, max_repeats=3)),
    ExpectSpec(trace=TraceExpect(tools=["shell", "patch", "mcp:search", "apply_*"])),
    ExpectSpec(trace=TraceExpect(commands=["git status", "pytest"])),
    ExpectSpec(workspace=WorkspaceExpect(changed=["src/*.py", "src/**/names.py", "notes.md"])),
    ExpectSpec(workspace=WorkspaceExpect(untouched=["tests/", "*.py"], only=["src/", "*.md"])),
]


@pytest.mark.requirement("suite.run")
@pytest.mark.parametrize("expect", MET)
def test_what_came_out_as_stated_is_met(expect: ExpectSpec) -> None:
    found = judged(expect)
    assert (found.met, set(found.keys.values()), found.unmet) == (True, {True}, ())


MISSED = [
    (ExpectSpec(matches="^42"), "answer: expected a match of '^42', got 'It is 42.'"),
    (
        ExpectSpec(result=ResultExpect(equals={"total": 3})),
        'result: expected {"total":3}, got {"total":3,"items":["a"],"note":"","ok":true,"n/a":null,"o":{}}',
    ),
    (
        ExpectSpec(result=ResultExpect(has=["/items/1"])),
        'result: expected something at /items/1, got {"total":3,"items":["a"],"note":"","ok":true,"n/a":null,"o":{}}',
    ),
    (ExpectSpec(result=ResultExpect(non_empty=["/note"])), 'result: expected /note not to be empty, got ""'),
    (ExpectSpec(result=ResultExpect(non_empty=["/n~1a"])), "result: expected /n~1a not to be empty, got nothing"),
    (ExpectSpec(result=ResultExpect(non_empty=["/o"])), "result: expected /o not to be empty, got {}"),
    (ExpectSpec(result=ResultExpect(non_empty=["/none"])), "result: expected /none not to be empty, got nothing"),
    (ExpectSpec(trace=TraceExpect(max_tool_calls=5)), "trace: expected at most 5 tool calls, got 6"),
    (ExpectSpec(trace=TraceExpect(max_tool_calls=0)), "trace: expected at most 0 tool calls, got 6"),
    (ExpectSpec(trace=TraceExpect(max_failures=0)), "trace: expected at most 0 failed tool calls, got 2"),
    (
        ExpectSpec(trace=TraceExpect(max_repeats=2)),
        "trace: expected at most 2 equal tool calls in a row, got 3",
    ),
    (
        ExpectSpec(trace=TraceExpect(max_repeats=0)),
        "trace: expected at most 0 equal tool calls in a row, got 3",
    ),
    (ExpectSpec(trace=TraceExpect(tools=["web"])), "trace: expected a call of web, got none"),
    (
        ExpectSpec(trace=TraceExpect(commands=["git commit"])),
        "trace: expected a command that begins with 'git commit', got none",
    ),
    (
        ExpectSpec(workspace=WorkspaceExpect(changed=["*.py"])),
        "workspace: expected a change of *.py, got 'src/greet.py', 'src/deep/names.py', 'notes.md'",
    ),
    (
        ExpectSpec(workspace=WorkspaceExpect(untouched=["src/**"])),
        "workspace: expected no change of src/**, got 'src/greet.py', 'src/deep/names.py'",
    ),
    (
        ExpectSpec(workspace=WorkspaceExpect(only=["src/*"])),
        "workspace: expected changes of src/* only, got 'src/deep/names.py', 'notes.md'",
    ),
    (
        ExpectSpec(workspace=WorkspaceExpect(only=[])),
        "workspace: expected no change at all, got 'src/greet.py', 'src/deep/names.py', 'notes.md'",
    ),
    (
        ExpectSpec(workspace=WorkspaceExpect(only=["[z-a]"])),
        "workspace: invalid glob: in `[z-a]` z comes after a",
    ),
]


@pytest.mark.requirement("suite.run")
@pytest.mark.parametrize(("expect", "miss"), MISSED)
def test_what_did_not_is_told_with_what_was_found(expect: ExpectSpec, miss: str) -> None:
    found = judged(expect)
    key = miss.partition(":")[0]
    assert (found.met, found.unmet) == (False, (miss,))
    assert [name for name, is_met in found.keys.items() if not is_met] == [key]


def test_a_pointer_to_an_entry_that_no_list_has_finds_nothing() -> None:
    beyond = f"/items/{'9' * 5000}"  # more digits than int() takes
    [miss] = judged(ExpectSpec(result=ResultExpect(has=[beyond]))).unmet
    assert miss.startswith(f"result: expected something at {beyond}, got ")


def test_calls_are_equal_where_the_metrics_say_so() -> None:
    calls = [call(given={"count": 1}), call(given={"count": True}), call(given={"count": 1})]
    assert measured(calls).longest_streak == 1
    assert judged(ExpectSpec(trace=TraceExpect(max_repeats=1)), calls=calls).met is True


@pytest.mark.requirement("suite.run")
def test_all_misses_are_told_and_nothing_stated_is_nothing_to_meet() -> None:
    everything = ExpectSpec(
        verified=ExpectedVerdict.YES,
        outcome=Outcome.FAILED,
        answer="no",
        matches="no",
        result=ResultExpect(has=["/no"]),
        trace=TraceExpect(max_tool_calls=0),
        workspace=WorkspaceExpect(only=[]),
    )
    assert len(judged(everything, verified=ExpectedVerdict.NO).unmet) == 7
    assert judged(ExpectSpec()) == Expectation(met=None, keys={}, unmet=())


def test_an_attempt_that_left_nothing_meets_only_what_allows_nothing() -> None:
    nothing = {"claim": Claim(), "calls": (), "changed": ()}
    none = ExpectSpec(
        trace=TraceExpect(max_tool_calls=0, max_failures=0, max_repeats=0), workspace=WorkspaceExpect(only=[])
    )
    assert judged(none, **nothing).met is True
    some = ExpectSpec(matches="", result=ResultExpect(has=["/a"]), trace=TraceExpect(tools=["*"]))
    assert len(judged(some, **nothing).unmet) == 3


def test_of_a_diff_that_was_cut_nothing_is_taken_for_known() -> None:
    found = judged(ExpectSpec(workspace=WorkspaceExpect(untouched=["secret"])), changed=None)
    assert found.unmet == ("workspace: workspace.diff was truncated, so not all changed paths are known",)


@pytest.mark.parametrize(("one", "other"), [(True, 1), (1, True), (False, 0), ([True], [1]), ({"a": 1}, {"a": True})])
def test_true_is_no_number(one: Any, other: Any) -> None:
    expect = ExpectSpec(result=ResultExpect(equals={"x": one}))
    assert judged(expect, claim=Claim(result={"x": other})).met is False


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_a_result_equals_what_json_spells_the_same(one: Any, other: Any) -> None:
    spelled = [msgspec.json.encode({"x": value}, order="deterministic") for value in (one, other)]
    expect = ExpectSpec(result=ResultExpect(equals={"x": one}))
    assert judged(expect, claim=Claim(result={"x": other})).met is (spelled[0] == spelled[1])
