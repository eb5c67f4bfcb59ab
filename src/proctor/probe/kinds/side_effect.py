"""The probe kind `side_effect`: run a trigger in the fence, and compare outside what it changed.

Files and databases are read by Proctor itself, when no process of the trigger is left. Only the calls to the sink, the
exit code and the response are observed by a program in the fence.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec

from proctor.evidence.artifacts import Judged
from proctor.probe.changes import Tree, ViewState, find_changes, read_after, read_before
from proctor.probe.command import format_bytes, judge_missing
from proctor.probe.kind import Judgement, Layout, ProbeReference, ProbeWorkspace
from proctor.probe.model import Verdict
from proctor.probe.observe import observe
from proctor.probe.services import (
    MARGIN_S,
    HttpExchange,
    OutputObservation,
    ServiceObservation,
    ServiceSteps,
    describe_code,
    describe_exchange,
    find_service_problems,
    join_problems,
    judge_absent,
    judge_unobserved,
    program_result,
)
from proctor.probe.sqlite import SIBLINGS, QueryError, SqlValue, query
from proctor.probe.view import Subject
from proctor.spec.duration import parse_duration_s
from proctor.spec.glob import fits
from proctor.spec.json_value import is_same_json, parse_json
from proctor.spec.service_probes import ChangeKind, SideEffect, SinkCall, StatedChange
from proctor.workspace.name import quoted
from proctor.workspace.walk import EntryKind, open_regular

_NAMED: Final = 5
_LEAST_S: Final = 0.1
_QUERIES_S: Final = 5.0
"""Longest duration of all queries of one moment together."""
_SHOWN_CHARS: Final = 200
_KEPT_ROWS: Final = 100
_KEPT_CHANGES: Final = 1_000


class _Observation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class EndObservation(_Observation, frozen=True, kw_only=True):
    """How a command ended."""

    exit: int | None
    left: list[str]


class CommandObservation(_Observation, frozen=True, kw_only=True):
    """What a command did."""

    start_error: str | None = None
    ended: EndObservation | None = None
    output: OutputObservation | None = None


class CallObservation(_Observation, frozen=True, kw_only=True):
    """A request that arrived at the sink."""

    method: str
    path: str
    body: str


class SinkObservation(_Observation, frozen=True, kw_only=True):
    """What arrived at the sink."""

    calls: list[CallObservation]
    is_cut: bool
    """Whether there was more than the sink records, or something that is not HTTP."""


class EffectObservation(_Observation, frozen=True, kw_only=True):
    """What the program in the fence observed."""

    service: ServiceObservation | None
    exchanges: list[HttpExchange]
    command: CommandObservation | None
    sink: SinkObservation


class CommandSteps(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A command that the program in the fence runs."""

    argv: tuple[str, ...]
    within_s: float
    is_service: bool = False


Rows = list[list[SqlValue]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueryResult:
    """The rows of one query, or why there are none."""

    rows: Rows | None = None
    problem: str = ""


def lay_out(spec: SideEffect, *, subject: Subject, reference: ProbeReference, folder: Path) -> Layout:
    """Keep what the trigger changes."""
    del spec, subject, reference, folder
    return Layout(keep_changes=True)


async def judge(spec: SideEffect, workspace: ProbeWorkspace) -> Judgement:
    """Run the trigger of `spec` and judge what it changed."""
    argv = spec.argv
    missing = judge_missing(argv, workspace)
    if missing is not None:
        return replace(missing, judged=Judged.OUTSIDE)
    timeout_s = parse_duration_s(spec.timeout)
    began_s = anyio.current_time()
    before = await anyio.to_thread.run_sync(read_before, workspace.view)
    rows_before = await anyio.to_thread.run_sync(_query_all, spec, before.tree, workspace)
    left_s = max(timeout_s - (anyio.current_time() - began_s), _LEAST_S)
    seen = await observe(workspace, "effect", _steps(spec, left_s), EffectObservation, timeout_s=left_s, records=argv)
    observed = seen.value
    if observed is None:
        return judge_unobserved(argv, seen.finished, timeout_s=timeout_s)
    exit_code, output = _how_it_ended(observed)
    finished = program_result(seen.finished, exit_code=exit_code, output=output)
    problems = [*_find_trigger_problems(spec, observed, timeout_s=timeout_s)]
    if problems:
        absent = judge_absent(_command(spec), workspace, finished)
        if absent is not None:
            return replace(absent, argv=argv, finished=finished)
    judgement = Judgement(verdict=Verdict.FAIL, summary="", argv=argv, finished=finished, judged=Judged.OUTSIDE)
    return await anyio.to_thread.run_sync(
        lambda: _judge_effects(spec, workspace, judgement, problems, before, rows_before, observed.sink)
    )


def _steps(spec: SideEffect, timeout_s: float) -> ServiceSteps | CommandSteps:
    if spec.service is not None and spec.request is not None:
        return ServiceSteps.of(spec.service, [spec.request], timeout=timeout_s)
    return CommandSteps(argv=spec.argv, within_s=max(timeout_s - MARGIN_S, timeout_s / 2))


def _command(spec: SideEffect) -> list[str] | str:
    return spec.command or (spec.service.start if spec.service is not None else [])


def _how_it_ended(observed: EffectObservation) -> tuple[int | None, OutputObservation | None]:
    if observed.command is not None:
        ended = observed.command.ended
        return None if ended is None else ended.exit, observed.command.output
    service = observed.service
    if service is None:
        return None, None
    return None if service.stop is None else service.stop.exit, service.output


def _find_trigger_problems(spec: SideEffect, observed: EffectObservation, *, timeout_s: float) -> Iterator[str]:
    if spec.command is None:
        ready = None if observed.service is None else observed.service.ready
        is_asked = ready is not None and ready.is_listening
        if observed.service is None or (is_asked and len(observed.exchanges) != 1):
            yield "what was observed cannot be read"
            return
        for exchange in observed.exchanges:
            if exchange.problem is not None and spec.request is not None:
                yield f"{spec.request.method} {spec.request.path[:100]} {describe_exchange(exchange)}"
        yield from find_service_problems(observed.service)
        return
    ended = None if observed.command is None else observed.command.ended
    if ended is None:
        error = None if observed.command is None else observed.command.start_error
        yield f"the command could not be started: {(error or '')[:_SHOWN_CHARS]}"
        return
    if ended.exit is None:
        yield f"did not end within {timeout_s:g} s"
    elif ended.exit != spec.exit:
        yield describe_code(ended.exit)
    if ended.left:
        yield f"it left processes behind: {', '.join(name[:40] for name in ended.left[:_NAMED])}"


# ── what changed ──


def _judge_effects(
    spec: SideEffect,
    workspace: ProbeWorkspace,
    judgement: Judgement,
    problems: Sequence[str],
    before: ViewState,
    rows_before: Sequence[_QueryResult],
    sink: SinkObservation,
) -> Judgement:
    """Compare files, databases and calls. Reads the disk."""
    after = read_after(workspace.view, before)
    changes = find_changes(before, after)
    rows_after = _query_all(spec, after, workspace)
    found = [
        *problems,
        *_find_file_problems(spec, changes, after, workspace),
        *_find_row_problems(spec, rows_before, rows_after, workspace),
        *_find_call_problems(spec, sink, workspace),
    ]
    counts = f"{_count(len(changes), 'file')} changed, {_count(len(sink.calls), 'call')} arrived at the sink"
    kept = {
        "changes": {quoted(path): change.value for path, change in [*changes.items()][:_KEPT_CHANGES]},
        "queries": [
            {"before": _shown_rows(old), "after": _shown_rows(new)}
            for old, new in zip(rows_before, rows_after, strict=True)
        ],
        "calls": sink.calls,
    }
    return replace(
        judgement,
        verdict=Verdict.FAIL if found else Verdict.PASS,
        summary=join_problems(found) or counts,
        artifacts={"effects.json": msgspec.json.format(msgspec.json.encode(kept), indent=2)},
    )


def _find_file_problems(
    spec: SideEffect, changes: Mapping[str, ChangeKind], after: Tree, workspace: ProbeWorkspace
) -> Iterator[str]:
    stated = {each.path: each.change for each in spec.changes}
    databases = {f"{each.database}{suffix}" for each in spec.queries for suffix in ("", *SIBLINGS)}
    counted = {
        path: change
        for path, change in changes.items()
        if path in stated or (path not in databases and not any(fits(path, glob) for glob in spec.allow))
    }
    if counted != stated:
        named = [f"{change.value} {quoted(path)}" for path, change in [*counted.items()][:_NAMED]]
        more = f" and {len(counted) - _NAMED} more" if len(counted) > _NAMED else ""
        yield f"files: {', '.join(named)}{more}" if named else "no file changed"
    for each in spec.changes:
        if each.golden is not None and counted.get(each.path) is each.change:
            yield from _find_content_problem(each, workspace.reference.sources[each.golden], after, workspace)


def _find_content_problem(change: StatedChange, golden: bytes, after: Tree, workspace: ProbeWorkspace) -> Iterator[str]:
    entry = after[change.path]
    if entry.item.kind is not EntryKind.FILE:
        yield f"{quoted(change.path)} is not a file"
        return
    try:
        with open_regular(entry.place) as file:
            content = file.read(max(len(golden), _SHOWN_CHARS * 4) + 1)
    except OSError as error:
        yield f"{quoted(change.path)} cannot be read ({error.strerror})"
        return
    if content != golden:
        yield f"{quoted(change.path)} contains {format_bytes(content, workspace)}"


def _query_all(spec: SideEffect, tree: Tree, workspace: ProbeWorkspace) -> list[_QueryResult]:
    results = list[_QueryResult]()
    deadline_s = time.monotonic() + _QUERIES_S
    for each in spec.queries:
        try:
            rows = query(tree, each.database, each.sql, folder=workspace.tools, within_s=deadline_s - time.monotonic())
        except QueryError as problem:
            results.append(_QueryResult(problem=str(problem)))
        else:
            results.append(_QueryResult(rows=rows))
    return results


def _find_row_problems(
    spec: SideEffect, before: Sequence[_QueryResult], after: Sequence[_QueryResult], workspace: ProbeWorkspace
) -> Iterator[str]:
    for each, old, new in zip(spec.queries, before, after, strict=True):
        if each.before is not None and not is_same_json(each.before, old.rows):
            yield f"before the trigger, {_describe_rows(each.database, old, workspace)}"
        if not is_same_json(each.after, new.rows):
            yield _describe_rows(each.database, new, workspace)


def _describe_rows(database: str, result: _QueryResult, workspace: ProbeWorkspace) -> str:
    # The text of an error can quote the query, which no agent needs to know.
    if result.rows is None:
        return f"{quoted(database)} {result.problem.partition(' (')[0]}"
    shown = format_bytes(msgspec.json.encode(_shown_rows(result)), workspace)
    return f"the query of {quoted(database)} returned {_count(len(result.rows), 'row')}: {shown}"


def _shown_rows(result: _QueryResult) -> Any:
    return result.problem if result.rows is None else result.rows[:_KEPT_ROWS]


def _find_call_problems(spec: SideEffect, sink: SinkObservation, workspace: ProbeWorkspace) -> Iterator[str]:
    if sink.is_cut:
        yield "the sink received more than it records, or requests that are not valid HTTP"
        return
    calls = sink.calls
    if len(calls) != len(spec.calls) or not all(map(_is_call, spec.calls, calls)):
        named = [f"{call.method[:20]} {call.path[:60]}" for call in calls[:_NAMED]]
        bodies = next((format_bytes(call.body.encode(errors="replace"), workspace) for call in calls if call.body), "")
        shown = f": {', '.join(named)}" if named else ""
        yield f"{_count(len(calls), 'call')} arrived at the sink{shown}{f' with {bodies}' if bodies else ''}"


def _is_call(expected: SinkCall, call: CallObservation) -> bool:
    if (expected.method, expected.path) != (call.method, call.path):
        return False
    try:
        data = call.body.encode("latin-1")
        if expected.body is not None and data != expected.body.encode():
            return False
        return expected.json is None or is_same_json(expected.json, parse_json(data), ignore=expected.ignore)
    except (ValueError, RecursionError):
        return False


def _count(number: int, noun: str) -> str:
    """
    >>> _count(1, "file"), _count(0, "file")
    ('1 file', '0 files')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
