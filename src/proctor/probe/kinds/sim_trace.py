"""The probe kind `sim_trace`: run a seeded simulation three times, and judge the rows that it prints.

Proctor reads the rows as they are printed and keeps none, so that a long trace needs no more memory than a short one.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count, zip_longest
from typing import Final

import anyio
import anyio.to_thread

from proctor.errors import MachineError
from proctor.evidence.artifacts import Judged
from proctor.evidence.redact import Redactor
from proctor.probe.command import describe_exit, is_in_workspace, judge_missing, may_have_been_killed
from proctor.probe.kind import MAX_OUTPUT_BYTES, Judgement, ProbeWorkspace
from proctor.probe.missing import find_missing
from proctor.probe.model import Fault, Verdict
from proctor.probe.tail import tail
from proctor.probe.trace_laws import TraceReader
from proctor.probe.view import View
from proctor.probe.written import start_afresh
from proctor.spec.duration import parse_duration_s
from proctor.spec.trace_probes import SimTrace
from proctor.transport.process import ProcessResult

_TRACE: Final = "trace.txt"
_TRACE_AGAIN: Final = "trace-again.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trace:
    """A run that ended as it should."""

    finished: ProcessResult
    """How it ended, with the beginning of its trace."""
    digest: str
    """The SHA-256 of the whole trace."""


async def judge(spec: SimTrace, workspace: ProbeWorkspace) -> Judgement:
    """Run the simulation with a seed, with the same seed again and with another one, and judge the three traces."""
    judgement = await _judge_runs(spec, workspace)
    return replace(judgement, judged=Judged.OUTSIDE)


async def _judge_runs(spec: SimTrace, workspace: ProbeWorkspace) -> Judgement:
    seed, other_seed = spec.seeds
    missing = judge_missing(spec.argv_with(seed), workspace)
    if missing is not None:
        return missing
    ends_at = anyio.current_time() + parse_duration_s(spec.timeout)

    async def run(seed: int, view: View, *, reader: TraceReader | None) -> _Trace | Judgement:
        return await _run(spec, workspace, spec.argv_with(seed), view=view, reader=reader, ends_at=ends_at)

    first = await run(seed, workspace.view, reader=TraceReader(spec.laws, ticks=spec.ticks))
    if isinstance(first, Judgement):
        return first
    again = await run(seed, await start_afresh(workspace), reader=None)
    if isinstance(again, Judgement):
        return again
    failed = Judgement(verdict=Verdict.FAIL, summary="", argv=spec.argv_with(seed), finished=again.finished)
    if again.digest != first.digest:
        files = {_TRACE: first.finished, _TRACE_AGAIN: again.finished}
        artifacts = await _keep(files, workspace.redactor)
        return replace(failed, summary=_describe_difference(first.finished, again.finished), artifacts=artifacts)
    other = await run(other_seed, await start_afresh(workspace), reader=TraceReader(spec.laws, ticks=spec.ticks))
    if isinstance(other, Judgement):
        return other
    if other.digest == first.digest:
        artifacts = await _keep({_TRACE: other.finished}, workspace.redactor)
        summary = "two different seeds give the same trace"
        return replace(
            failed, summary=summary, argv=spec.argv_with(other_seed), finished=other.finished, artifacts=artifacts
        )
    summary = f"{spec.ticks:,} ticks with each of two seeds, and the same trace again with the first"
    return Judgement(verdict=Verdict.PASS, summary=summary, argv=spec.argv_with(seed), finished=first.finished)


async def _run(
    spec: SimTrace,
    workspace: ProbeWorkspace,
    argv: tuple[str, ...],
    *,
    view: View,
    reader: TraceReader | None,
    ends_at: float,
) -> _Trace | Judgement:
    """Run the simulation once. Return the judgement if that already fails, or cannot be judged."""
    timeout_s = parse_duration_s(spec.timeout)
    late = Judgement(verdict=Verdict.FAIL, summary=f"the runs did not end within {timeout_s:g} s", argv=argv)
    digest = hashlib.sha256()

    def take(chunk: bytes) -> None:
        digest.update(chunk)
        if reader is not None:
            reader.feed(chunk)

    if anyio.current_time() >= ends_at:
        return late
    try:
        finished = await workspace.run(argv, timeout_s=ends_at - anyio.current_time(), view=view, stdout_to=take)
    except MachineError as problem:
        if anyio.current_time() >= ends_at:
            return late
        at_fault = Fault.WORKSPACE if is_in_workspace(argv[0]) else Fault.MACHINE
        return Judgement(verdict=Verdict.UNAVAILABLE, summary=str(problem), argv=argv, fault=at_fault)
    judgement = _judge_end(spec, workspace, argv, finished)
    if judgement is None and reader is not None and (wrong := reader.end()) is not None:
        judgement = Judgement(verdict=Verdict.FAIL, summary=wrong, argv=argv, finished=finished)
    if judgement is None:
        return _Trace(finished=finished, digest=digest.hexdigest())
    if finished.timed_out:
        judgement = replace(late, finished=finished)
    return replace(judgement, artifacts=await _keep({_TRACE: finished}, workspace.redactor))


def _judge_end(
    spec: SimTrace, workspace: ProbeWorkspace, argv: tuple[str, ...], finished: ProcessResult
) -> Judgement | None:
    """Return the judgement if a run did not end by itself with exit code 0; None if it did."""
    summary = describe_exit(finished, timeout_s=parse_duration_s(spec.timeout))
    judgement = Judgement(verdict=Verdict.FAIL, summary=summary, argv=argv, finished=finished)
    unavailable = replace(judgement, verdict=Verdict.UNAVAILABLE, fault=Fault.MACHINE)
    if finished.timed_out:
        return judgement
    if finished.exit is None:
        return unavailable
    if finished.exit.code != 0:
        absent = find_missing(spec.command, finished, has_tool=workspace.has_tool)
        if absent is not None:
            return replace(unavailable, fault=absent.fault, summary=f"{absent.name} is not on this machine")
        return judgement
    if may_have_been_killed(finished):
        what = "which the containment cannot distinguish from death by a signal"
        return replace(unavailable, summary=f"{summary}, {what}")
    return None


def _describe_difference(first: ProcessResult, again: ProcessResult) -> str:
    """Say where two traces differ, as far as their beginnings show it."""
    lines = zip(count(1), zip_longest(first.stdout.split(b"\n"), again.stdout.split(b"\n")), strict=False)
    tick = next((tick for tick, (one, other) in lines if one != other), None)
    what = "two runs with the same seed differ"
    return f"{what} after the first {MAX_OUTPUT_BYTES:,} bytes" if tick is None else f"tick {tick:,}: {what}"


async def _keep(traces: Mapping[str, ProcessResult], redactor: Redactor) -> dict[str, bytes]:
    """Return the beginning of each trace as a file."""

    def render(finished: ProcessResult) -> bytes:
        text = tail(finished.stdout, redactor=redactor, is_cut=finished.stdout_cut, limit_bytes=2 * MAX_OUTPUT_BYTES)
        return text.encode(errors="backslashreplace")

    return await anyio.to_thread.run_sync(lambda: {name: render(each) for name, each in traces.items()})
