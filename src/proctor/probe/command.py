"""What kinds of probe that run a command share: whether its program exists, and how it ended."""

import os

from proctor.probe.kind import Judgement, ProbeWorkspace
from proctor.probe.model import Fault, Verdict
from proctor.transport.process import ProcessResult


def judge_missing(argv: tuple[str, ...], workspace: ProbeWorkspace) -> Judgement | None:
    """Return the judgement if the program does not exist, or None if it does.

    A tool missing on the machine says nothing about the workspace. A program missing in the workspace is a failure.
    """
    program = argv[0]
    if is_in_workspace(program):
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


def is_in_workspace(program: str) -> bool:
    """Return whether the program of a command is a path of the workspace.

    >>> [is_in_workspace(program) for program in ("./run", ".venv/bin/python", "python3", "/usr/bin/env")]
    [True, True, False, False]
    """
    return "/" in program and not program.startswith("/")


def may_have_been_killed(finished: ProcessResult) -> bool:
    """Return whether the expected exit code may really be death by a signal, such as a kill when out of memory."""
    if finished.exit is None or finished.exit.is_exact:
        return False
    # When its child is killed by SIGKILL, unshare exits 1 and writes a message.
    return finished.exit.signal is not None or finished.stderr_cut or b"unshare: " in finished.stderr


def describe_exit(finished: ProcessResult, *, timeout_s: float) -> str:
    """Return how a command ended, in words."""
    if finished.timed_out:
        return f"did not end within {timeout_s:g} s"
    if finished.exit is None:
        return "ended in an unknown way"
    # Both are shown if the wrapper cannot distinguish an exit code from a signal.
    code = None if finished.exit.code is None else f"exited {finished.exit.code}"
    signal = None if finished.exit.signal is None else f"was killed by signal {finished.exit.signal}"
    return " or ".join(each for each in (code, signal) if each)
