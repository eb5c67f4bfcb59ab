"""The probe kind `headless_run`: run a command and compare its exit code and, if specified, its complete stdout."""

from typing import Final

from proctor.errors import MachineError
from proctor.evidence.artifacts import Judged
from proctor.probe.command import describe_exit, is_in_workspace, judge_missing, may_have_been_killed
from proctor.probe.kind import MAX_OUTPUT_BYTES, Judgement, ProbeWorkspace
from proctor.probe.missing import find_missing
from proctor.probe.model import Fault, Verdict
from proctor.probe.tail import head
from proctor.spec.argv import argv_of
from proctor.spec.command_probes import HeadlessRun
from proctor.spec.duration import parse_duration_s
from proctor.transport.process import ProcessResult

_SHOWN_CHARS: Final = 200


async def judge(spec: HeadlessRun, workspace: ProbeWorkspace) -> Judgement:
    """Run the command of `spec` in the workspace and judge its result."""
    argv = argv_of(spec.command)
    missing = judge_missing(argv, workspace)
    if missing is not None:
        return missing
    expected = None if spec.stdout is None else spec.stdout.encode()
    timeout_s = parse_duration_s(spec.timeout)
    try:
        finished = await workspace.run(
            argv,
            timeout_s=timeout_s,
            # One byte more than expected, so that longer output never looks equal.
            max_output_bytes=max(MAX_OUTPUT_BYTES, len(expected or b"") + 1),
        )
    except MachineError as problem:
        # A program of the workspace that cannot be started, such as a script whose interpreter does not exist.
        at_fault = Fault.WORKSPACE if is_in_workspace(argv[0]) else Fault.MACHINE
        return Judgement(verdict=Verdict.UNAVAILABLE, summary=str(problem), argv=argv, fault=at_fault)
    summary = describe_exit(finished, timeout_s=timeout_s)
    verdict = Verdict.PASS
    fault: Fault | None = None
    if finished.timed_out:
        verdict = Verdict.FAIL
    elif finished.exit is None:
        verdict, fault = Verdict.UNAVAILABLE, Fault.MACHINE
    elif finished.exit.code != spec.exit:
        verdict = Verdict.FAIL
        if (absent := find_missing(spec.command, finished, has_tool=workspace.has_tool)) is not None:
            verdict, fault, summary = Verdict.UNAVAILABLE, absent.fault, f"{absent.name} is not on this machine"
    elif expected is not None and finished.stdout != expected:
        verdict = Verdict.FAIL
        summary = f"{summary} and printed {_format_stdout(finished, workspace)}"
    elif may_have_been_killed(finished):
        verdict, fault = Verdict.UNAVAILABLE, Fault.MACHINE
        summary = f"{summary}, which the containment cannot distinguish from death by a signal"
    judged = Judged.INSIDE if expected is None else Judged.OUTSIDE
    return Judgement(verdict=verdict, summary=summary, argv=argv, finished=finished, fault=fault, judged=judged)


def _format_stdout(finished: ProcessResult, workspace: ProbeWorkspace) -> str:
    data = finished.stdout
    text = head(data, redactor=workspace.redactor, limit_chars=_SHOWN_CHARS + 1, is_cut=finished.stdout_cut)
    shown = repr(text[:_SHOWN_CHARS])
    return shown if len(text) <= _SHOWN_CHARS and not finished.stdout_cut else f"{shown}… ({len(data)} bytes)"
