"""Compares an attempt with the expectation of its mission. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from proctor.event.claim import Claim
from proctor.event.command import command_line
from proctor.event.metrics import Metrics
from proctor.event.outcome import Outcome
from proctor.event.trace import ToolCall
from proctor.evidence.artifacts import Expectation, ExpectKey
from proctor.spec.expect import ExpectedVerdict, ExpectSpec, ResultExpect, TraceExpect, WorkspaceExpect
from proctor.spec.glob import fits
from proctor.spec.json_value import is_same_json
from proctor.spec.pattern import compile_pattern
from proctor.spec.pointer import ABSENT, at_pointer

_SHOWN_CHARS = 200
_SHOWN_PATHS = 5


def judge(
    expect: ExpectSpec,
    *,
    outcome: Outcome,
    verified: ExpectedVerdict,
    claim: Claim,
    metrics: Metrics | None = None,
    calls: Iterable[ToolCall] = (),
    changed: Sequence[str] | None = (),
    is_unjudged: bool = False,
) -> Expectation:
    """Compare everything that the mission expects. `met` is None if it expects nothing.

    What the probes could not judge (`verified` is unknown, or `is_unjudged`), and a trace that the runtime cannot see,
    does not count as an unmet expectation: if everything else is met, `met` is None.

    `metrics` and `calls`, the rows of the trace, are needed if `expect.trace` is set. `changed` are the changed paths,
    or None if they are not all known.

    >>> no, done = ExpectedVerdict.NO, Outcome.COMPLETED
    >>> judge(ExpectSpec(verified=no), outcome=done, verified=no, claim=Claim())
    Expectation(met=True, keys={'verified': True}, unmet=())
    >>> judge(ExpectSpec(verified=no), outcome=done, verified=ExpectedVerdict.UNKNOWN, claim=Claim())
    Expectation(met=None, keys={'verified': None}, unmet=())
    >>> judge(ExpectSpec(answer="4"), outcome=done, verified=no, claim=Claim(answer="5")).unmet
    ("answer: expected '4', got '5'",)
    """
    unmet: dict[ExpectKey, list[str]] = {}
    undecided: set[ExpectKey] = set()
    values: tuple[tuple[ExpectKey, str | None, str | None], ...] = (
        ("verified", expect.verified, verified),
        ("outcome", expect.outcome, outcome),
        ("answer", expect.answer, claim.answer),
    )
    for key, wanted, got in values:
        if key == "verified" and wanted != got and (is_unjudged or got is ExpectedVerdict.UNKNOWN):
            undecided |= set() if wanted is None else {key}
        elif wanted is not None:
            unmet[key] = [] if wanted == got else [f"{key}: expected {_word(wanted)}, got {_word(got)}"]
    if expect.matches is not None:
        is_found = _is_found(expect.matches, claim.answer)
        miss = f"answer: expected a match of {expect.matches!r}, got {_word(claim.answer)}"
        unmet["answer"] = [*unmet.get("answer", ()), *(() if is_found else (miss,))]
    # An empty `result`, `trace` or `workspace` states nothing, so it cannot be met either.
    if expect.result not in (None, ResultExpect()):
        unmet["result"] = list(_find_unmet_result(expect.result, claim.result))
    if expect.trace not in (None, TraceExpect()):
        assert metrics is not None, "metrics are needed for expect.trace"
        if metrics.tool_calls is None:
            undecided.add("trace")
        else:
            unmet["trace"] = list(_find_unmet_trace(expect.trace, metrics, calls))
    if expect.workspace not in (None, WorkspaceExpect()):
        unmet["workspace"] = list(_find_unmet_workspace(expect.workspace, changed))
    is_undecided = not unmet or (bool(undecided) and not any(unmet.values()))
    return Expectation(
        met=None if is_undecided else not any(unmet.values()),
        keys={**dict.fromkeys(undecided), **{key: not missed for key, missed in unmet.items()}},
        unmet=tuple(miss for missed in unmet.values() for miss in missed),
    )


def _is_found(pattern: str, answer: str | None) -> bool:
    return answer is not None and compile_pattern(pattern).search(answer) is not None


def _find_unmet_result(expect: ResultExpect, result: Any) -> Iterator[str]:
    if expect.equals is not None and not is_same_json(expect.equals, result):
        yield f"result: expected {_shown(expect.equals)}, got {_shown(result)}"
    for pointer in expect.has:
        if at_pointer(result, pointer) is ABSENT:
            yield f"result: expected something at {pointer}, got {_shown(result)}"
    for pointer in expect.non_empty:
        found = at_pointer(result, pointer)
        if found is ABSENT or found is None or found in ("", [], {}):
            yield f"result: expected {pointer} not to be empty, got {_shown(None if found is ABSENT else found)}"


def _find_unmet_trace(expect: TraceExpect, metrics: Metrics, calls: Iterable[ToolCall]) -> Iterator[str]:
    for most, got, what in (
        (expect.max_tool_calls, metrics.tool_calls, "tool calls"),
        (expect.max_failures, metrics.tool_failures, "failed tool calls"),
        (expect.max_repeats, metrics.longest_streak, "equal tool calls in a row"),
    ):
        if most is not None and got is not None and got > most:
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


def _find_unmet_workspace(expect: WorkspaceExpect, changed: Sequence[str] | None) -> Iterator[str]:
    if changed is None:
        yield "workspace: workspace.diff was truncated, so not all changed paths are known"
        return
    try:
        yield from _find_unmet_paths(expect, changed)
    except ValueError as error:  # a spec that was not linted must not end the run
        yield f"workspace: invalid glob: {error}"


def _find_unmet_paths(expect: WorkspaceExpect, changed: Sequence[str]) -> Iterator[str]:
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
    return value.value if isinstance(value, Outcome | ExpectedVerdict) else repr(value)
