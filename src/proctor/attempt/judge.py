"""Whether an attempt came out as its spec expects. Pure; each miss says what was wanted and what was found."""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from proctor.event.claim import Claim
from proctor.event.command import command_line
from proctor.event.metrics import Metrics
from proctor.event.outcome import Outcome
from proctor.event.trace import ToolCall
from proctor.evidence.artifacts import Expectation
from proctor.spec.expect import ExpectSpec, ResultExpect, TraceExpect, Verified, WorkspaceExpect
from proctor.spec.glob import fits
from proctor.spec.pattern import compile_pattern
from proctor.spec.pointer import ABSENT, at_pointer

NOTHING = ExpectSpec()

_SHOWN_CHARS = 200
_SHOWN_PATHS = 5


def judge(
    expect: ExpectSpec,
    *,
    outcome: Outcome,
    verified: Verified,
    claim: Claim,
    metrics: Metrics | None = None,
    calls: Iterable[ToolCall] = (),
    changed: Sequence[str] | None = (),
) -> Expectation:
    """Each thing the spec states is compared; where it states nothing there is nothing to meet.

    `metrics`, and `calls`, the rows of the trace, are needed where it states something of that. `changed` are the
    paths that were, or None where not all of them are known.

    >>> judge(ExpectSpec(verified=Verified.NO), outcome=Outcome.COMPLETED, verified=Verified.NO, claim=Claim())
    Expectation(met=True, misses=())
    >>> judge(ExpectSpec(answer="4"), outcome=Outcome.COMPLETED, verified=Verified.NO, claim=Claim(answer="5")).misses
    ("answer: expected '4', got '5'",)
    """
    if expect == NOTHING:
        return Expectation(met=None, misses=())
    misses = [
        f"{name}: expected {_word(wanted)}, got {_word(got)}"
        for name, wanted, got in (
            ("verified", expect.verified, verified),
            ("outcome", expect.outcome, outcome),
            ("answer", expect.answer, claim.answer),
        )
        if wanted is not None and wanted != got
    ]
    if expect.matches is not None and not _is_found(expect.matches, claim.answer):
        misses.append(f"answer: expected a match of {expect.matches!r}, got {_word(claim.answer)}")
    if expect.result is not None:
        misses += _result_misses(expect.result, claim.result)
    if expect.trace is not None:
        assert metrics is not None, "a trace has its numbers"
        misses += _trace_misses(expect.trace, metrics, calls)
    if expect.workspace is not None:
        misses += _workspace_misses(expect.workspace, changed)
    return Expectation(met=not misses, misses=tuple(misses))


def _is_found(pattern: str, answer: str | None) -> bool:
    return answer is not None and compile_pattern(pattern).search(answer) is not None


def _result_misses(expect: ResultExpect, result: Any) -> Iterator[str]:
    if expect.equals is not None and not _is_same(expect.equals, result):
        yield f"result: expected {_shown(expect.equals)}, got {_shown(result)}"
    for pointer in expect.has:
        if at_pointer(result, pointer) is ABSENT:
            yield f"result: expected something at {pointer}, got {_shown(result)}"
    for pointer in expect.non_empty:
        found = at_pointer(result, pointer)
        if found is ABSENT or found is None or found in ("", [], {}):
            yield f"result: expected {pointer} not to be empty, got {_shown(None if found is ABSENT else found)}"


def _is_same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 is 1.0, and true is not 1."""
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case dict(), dict():
            return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
        case list(), list():
            return len(one) == len(other) and all(map(_is_same, one, other))
        case _:
            return bool(one == other)


def _trace_misses(expect: TraceExpect, metrics: Metrics, calls: Iterable[ToolCall]) -> Iterator[str]:
    for most, got, what in (
        (expect.max_tool_calls, metrics.tool_calls, "tool calls"),
        (expect.max_failures, metrics.tool_failures, "failed tool calls"),
        (expect.max_repeats, metrics.longest_streak or 0, "equal tool calls in a row"),
    ):
        if most is not None and got > most:
            yield f"trace: expected at most {most} {what}, got {got}"
    unused, not_run = dict.fromkeys(expect.tools), dict.fromkeys(expect.commands)
    for call in calls:
        line, names = command_line(call), (call.name, call.kind, f"{call.kind}:{call.name}")
        for glob in [each for each in unused if any(fnmatchcase(name, each) for name in names)]:
            del unused[glob]
        for prefix in [each for each in not_run if line is not None and line.startswith(each)]:
            del not_run[prefix]
    yield from (f"trace: expected a call of {tool}, got none" for tool in unused)
    yield from (f"trace: expected a command that begins with {prefix!r}, got none" for prefix in not_run)


def _workspace_misses(expect: WorkspaceExpect, changed: Sequence[str] | None) -> Iterator[str]:
    if changed is None:
        yield "workspace: more was changed than workspace.diff tells, so not all of it is known"
        return
    try:
        yield from _changed_misses(expect, changed)
    except ValueError as error:  # a spec that was never checked, which is no reason to end a run
        yield f"workspace: no glob: {error}"


def _changed_misses(expect: WorkspaceExpect, changed: Sequence[str]) -> Iterator[str]:
    for glob in expect.changed:
        if not any(fits(path, glob) for path in changed):
            yield f"workspace: expected a change of {glob}, got {_listed(changed)}"
    for glob in expect.untouched:
        if touched := [path for path in changed if fits(path, glob)]:
            yield f"workspace: expected no change of {glob}, got {_listed(touched)}"
    if expect.only is not None:
        others = [path for path in changed if not any(fits(path, glob) for glob in expect.only)]
        if others:
            allowed = f"changes of {' or '.join(expect.only)} only" if expect.only else "no change at all"
            yield f"workspace: expected {allowed}, got {_listed(others)}"


def _listed(paths: Sequence[str]) -> str:
    more = len(paths) - _SHOWN_PATHS
    return ", ".join(map(repr, paths[:_SHOWN_PATHS])) + (f" and {more} more" if more > 0 else "") or "none"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _word(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value.value if isinstance(value, Outcome | Verified) else repr(value)
