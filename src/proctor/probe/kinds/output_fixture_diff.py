"""The probe kind `output_fixture_diff`: run a command twice and compare the files that it writes with goldens.

Both runs see a workspace without those files, and nothing that the other run left, so that a file counts only if each
run wrote it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from proctor.evidence.artifacts import Judged
from proctor.probe.command import format_bytes, judge_command, replace_out
from proctor.probe.kind import Judgement, Layout, ProbeReference, ProbeWorkspace
from proctor.probe.model import Fault, Verdict
from proctor.probe.output_formats import UnreadableOutput, read_output
from proctor.probe.view import Subject, View
from proctor.probe.written import MAX_WRITTEN_BYTES, find_written, read_written, start_afresh
from proctor.spec.command_probes import OutputFile, OutputFixtureDiff, OutputFormat
from proctor.spec.duration import parse_duration_s
from proctor.spec.json_value import is_same_json
from proctor.spec.probe_options import OUT
from proctor.workspace.name import quoted
from proctor.workspace.remove import remove

_RUNS: Final = 2
_NAMED: Final = 3
_SLACK_BYTES: Final = 1024 * 1024
_GROWTH: Final = 2
"""A file this many times as large as its golden, plus the slack, differs from it and is not parsed: a few bytes of JSON
can need a hundred bytes of memory."""
_SUFFIXES: Final = {OutputFormat.BYTES: "bin", OutputFormat.TEXT: "txt"}

Outputs = Sequence[bytes | None]


def lay_out(spec: OutputFixtureDiff, *, subject: Subject, reference: ProbeReference, folder: Path) -> Layout:
    """Leave out files that the command is to write: one that is already there says nothing about a run."""
    paths = tuple(output.path for output in spec.outputs if not output.path.startswith(OUT))
    return Layout(removed=paths, keep_changes=bool(paths))


async def judge(spec: OutputFixtureDiff, workspace: ProbeWorkspace) -> Judgement:
    """Run the command in two fresh views, and compare what it wrote."""
    try:
        goldens = await anyio.to_thread.run_sync(_read_goldens, spec, workspace.reference.sources)
    except UnreadableOutput as problem:
        # No agent can cause this, or change it.
        summary = f"the golden of {problem}"
        return Judgement(verdict=Verdict.UNAVAILABLE, summary=summary, argv=spec.argv, fault=Fault.MACHINE)
    runs, judgements = list[Outputs](), list[Judgement]()
    for number in range(_RUNS):
        view = workspace.view if number == 0 else await start_afresh(workspace)
        await anyio.to_thread.run_sync(_remove_outputs, spec, view, workspace.out)
        judgement = await judge_command(
            replace_out(spec.command, str(workspace.out)),
            workspace,
            exit_code=spec.exit,
            timeout_s=parse_duration_s(spec.timeout),
            view=view,
        )
        judgement = replace(judgement, argv=spec.argv, judged=Judged.OUTSIDE)
        if judgement.verdict is not Verdict.PASS:
            return replace(judgement, summary=f"run {number + 1} {judgement.summary}")
        judgements.append(judgement)
        runs.append(await anyio.to_thread.run_sync(_read_outputs, spec, view, workspace.out))
    return await anyio.to_thread.run_sync(lambda: _compare(spec, workspace, judgements[-1], goldens, runs))


def _remove_outputs(spec: OutputFixtureDiff, view: View, out: Path) -> None:
    """Remove outputs from a copy that a link or a patch has brought there. The changes to an overlay are empty."""
    for output in spec.outputs:
        place = find_written(output.path, view=view, out=out)
        if place is not None:
            remove(place)


def _read_goldens(spec: OutputFixtureDiff, sources: Mapping[str, bytes]) -> list[Any]:
    """Return the values of the goldens. Raises UnreadableOutput if one does not have its format."""
    found = list[Any]()
    for number, output in enumerate(spec.outputs, start=1):
        try:
            found.append(read_output(sources[output.golden], output))
        except UnreadableOutput as problem:
            raise UnreadableOutput(f"output {number} {problem}") from problem
    return found


def _read_outputs(spec: OutputFixtureDiff, view: View, out: Path) -> Outputs:
    return [read_written(output.path, view=view, out=out) for output in spec.outputs]


def _compare(
    spec: OutputFixtureDiff,
    workspace: ProbeWorkspace,
    judgement: Judgement,
    goldens: Sequence[Any],
    runs: Sequence[Outputs],
) -> Judgement:
    wrong, artifacts = list[str](), dict[str, bytes]()
    for at, (output, golden) in enumerate(zip(spec.outputs, goldens, strict=True)):
        written = [run[at] for run in runs]
        most = len(workspace.reference.sources[output.golden]) * _GROWTH + _SLACK_BYTES
        problem = _find_difference(output, golden, written, workspace, most=min(most, MAX_WRITTEN_BYTES))
        if problem is not None:
            wrong.append(f"{quoted(output.path)} {problem}")
            artifacts |= dict(_kept(output, written, number=at + 1))
    if not wrong:
        count = f"{len(goldens)} output{'' if len(goldens) == 1 else 's'}"
        return replace(judgement, summary=f"{count} compared in {_RUNS} runs")
    more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    summary = f"{'; '.join(wrong[:_NAMED])}{more}"
    return replace(judgement, verdict=Verdict.FAIL, summary=summary, artifacts=artifacts)


def _find_difference(
    output: OutputFile, golden: Any, written: Sequence[bytes | None], workspace: ProbeWorkspace, *, most: int
) -> str | None:
    """Return what was observed if an output is not as it should be in both runs; None if it is."""
    values = list[Any]()
    for number, data in enumerate(written, start=1):
        if data is None:
            return f"was not written as a regular file by run {number}"
        if len(data) > MAX_WRITTEN_BYTES:
            return f"is larger than {MAX_WRITTEN_BYTES // 1024**2} MiB"
        if len(data) > most:
            return f"has {len(data):,} bytes: {format_bytes(data, workspace)}"
        try:
            values.append(read_output(data, output))
        except UnreadableOutput as problem:
            return f"{problem}: {format_bytes(data, workspace)}"
    shown = [format_bytes(data, workspace) for data in written if data is not None]
    if not is_same_json(values[0], values[1]):
        return f"differs between two runs: {shown[0]}, then {shown[1]}"
    # Equal values: if the first is as it should be, so is the second.
    return None if is_same_json(values[0], golden) else f"contains {shown[0]}"


def _kept(output: OutputFile, written: Sequence[bytes | None], *, number: int) -> Iterator[tuple[str, bytes]]:
    """Yield the files to keep of an output, by name; only one if both runs wrote the same."""
    suffix = _SUFFIXES.get(output.format, output.format.value)
    for run, data in enumerate(written, start=1):
        if data is not None and len(data) <= MAX_WRITTEN_BYTES and (run == 1 or data != written[0]):
            yield f"output-{number}-run-{run}.{suffix}", data
