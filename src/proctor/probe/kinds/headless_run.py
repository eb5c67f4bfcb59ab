"""The probe kind `headless_run`: run a command and compare its exit code and, if specified, its complete stdout."""

import os
from typing import Final

from proctor.errors import MachineError
from proctor.probe.kind import MAX_OUTPUT_BYTES, Judgement, ProbeWorkspace
from proctor.probe.missing import find_missing
from proctor.probe.model import Fault, Verdict
from proctor.probe.tail import head
from proctor.spec.argv import argv_of
from proctor.spec.duration import parse_duration_s
from proctor.spec.probes import HeadlessRun
from proctor.transport.process import ProcessResult

_SHOWN_CHARS: Final = 200


async def judge(spec: HeadlessRun, workspace: ProbeWorkspace) -> Judgement:
    """Run the command of `spec` in the workspace and judge its result."""
    argv = argv_of(spec.command)
    missing = _judge_missing(argv, workspace)
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
        at_fault = Fault.WORKSPACE if _is_in_workspace(argv[0]) else Fault.MACHINE
        return Judgement(verdict=Verdict.UNAVAILABLE, summary=str(problem), argv=argv, fault=at_fault)
    summary = _describe_exit(finished, timeout_s=timeout_s)
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
    elif _may_have_been_killed(finished):
        verdict, fault = Verdict.UNAVAILABLE, Fault.MACHINE
        summary = f"{summary}, which the containment cannot distinguish from death by a signal"
    return Judgement(verdict=verdict, summary=summary, argv=argv, finished=finished, fault=fault)


def _judge_missing(argv: tuple[str, ...], workspace: ProbeWorkspace) -> Judgement | None:
    """Return the judgement if the program does not exist, or None if it does.

    A tool missing on the machine says nothing about the workspace. A program missing in the workspace is a failure.
    """
    program = argv[0]
    if _is_in_workspace(program):
        place = workspace.view.find(program)
        is_file = place is not None and place.is_file()
        if place is not None and is_file and os.access(place, os.X_OK):
            return None
        what = "is not executable" if is_file else "is not in the workspace"
        return Judgement(verdict=Verdict.FAIL, summary=f"{program} {what}", argv=argv)
    if workspace.has_tool(program):
        return None
    workspace.note_missing(program)
    summary = f"{program} is not on this machine"
    return Judgement(verdict=Verdict.UNAVAILABLE, summary=summary, argv=argv, fault=Fault.MACHINE)


def _is_in_workspace(program: str) -> bool:
    return "/" in program and not program.startswith("/")


def _may_have_been_killed(finished: ProcessResult) -> bool:
    """Return whether the expected exit code may really be death by a signal, such as a kill when out of memory."""
    if finished.exit is None or finished.exit.is_exact:
        return False
    # When its child is killed by SIGKILL, unshare exits 1 and writes a message.
    return finished.exit.signal is not None or finished.stderr_cut or b"unshare: " in finished.stderr


def _describe_exit(finished: ProcessResult, *, timeout_s: float) -> str:
    if finished.timed_out:
        return f"did not end within {timeout_s:g} s"
    if finished.exit is None:
        return "ended in an unknown way"
    # Both are shown if the wrapper cannot distinguish an exit code from a signal.
    code = None if finished.exit.code is None else f"exited {finished.exit.code}"
    signal = None if finished.exit.signal is None else f"was killed by signal {finished.exit.signal}"
    return " or ".join(each for each in (code, signal) if each)


def _format_stdout(finished: ProcessResult, workspace: ProbeWorkspace) -> str:
    data = finished.stdout
    text = head(data, redactor=workspace.redactor, limit_chars=_SHOWN_CHARS + 1, is_cut=finished.stdout_cut)
    shown = repr(text[:_SHOWN_CHARS])
    return shown if len(text) <= _SHOWN_CHARS and not finished.stdout_cut else f"{shown}… ({len(data)} bytes)"
