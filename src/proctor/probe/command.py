"""What kinds of probe that run a command share: whether its program exists, how it ended, and what it printed."""

import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from proctor.errors import MachineError
from proctor.probe.kind import MAX_OUTPUT_BYTES, Judgement, ProbeWorkspace
from proctor.probe.missing import find_missing
from proctor.probe.model import Fault, Verdict
from proctor.probe.tail import head
from proctor.probe.view import View
from proctor.spec.argv import argv_of
from proctor.spec.probe_options import OUT
from proctor.transport.process import ProcessResult

_SHOWN_CHARS: Final = 200


def _find_nothing(_: ProcessResult) -> str | None:
    return None


async def judge_command(
    command: list[str] | str,
    workspace: ProbeWorkspace,
    *,
    exit_code: int,
    timeout_s: float,
    find_wrong: Callable[[ProcessResult], str | None] = _find_nothing,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    stdin: bytes = b"",
    view: View | None = None,
) -> Judgement:
    """Run a command, and judge how it ended and what `find_wrong` says about it.

    `find_wrong` is called if the exit code is as expected. It returns what was observed, or None if nothing is wrong.
    """
    argv = argv_of(command)
    missing = judge_missing(argv, workspace)
    if missing is not None:
        return missing
    try:
        finished = await workspace.run(
            argv,
            timeout_s=timeout_s,
            max_output_bytes=max_output_bytes,
            stdin=stdin,
            view=view,
        )
    except MachineError as problem:
        # A program of the workspace that cannot be started, such as a script whose interpreter does not exist.
        at_fault = Fault.WORKSPACE if is_in_workspace(argv[0]) else Fault.MACHINE
        return Judgement(verdict=Verdict.UNAVAILABLE, summary=str(problem), argv=argv, fault=at_fault)
    ended = describe_exit(finished, timeout_s=timeout_s)
    judgement = Judgement(verdict=Verdict.FAIL, summary=ended, argv=argv, finished=finished)
    if finished.timed_out:
        return judgement
    if finished.exit is None:
        return replace(judgement, verdict=Verdict.UNAVAILABLE, fault=Fault.MACHINE)
    if finished.exit.code != exit_code:
        if (absent := find_missing(command, finished, has_tool=workspace.has_tool)) is None:
            return judgement
        summary = f"{absent.name} is not on this machine"
        return replace(judgement, verdict=Verdict.UNAVAILABLE, fault=absent.fault, summary=summary)
    if (wrong := find_wrong(finished)) is not None:
        return replace(judgement, summary=f"{ended} and {wrong}")
    if may_have_been_killed(finished):
        summary = f"{ended}, which the containment cannot distinguish from death by a signal"
        return replace(judgement, verdict=Verdict.UNAVAILABLE, fault=Fault.MACHINE, summary=summary)
    return replace(judgement, verdict=Verdict.PASS)


def replace_out(command: list[str] | str, out: str) -> list[str] | str:
    """Return a command with `{out}` replaced by a folder, quoted for a shell where one runs it.

    >>> replace_out("make >{out}/log", "/a b"), replace_out(["make", "-C", "{out}"], "/a b")
    ("make >'/a b'/log", ['make', '-C', '/a b'])
    """
    if isinstance(command, str):
        return command.replace(OUT, shlex.quote(out))
    return [word.replace(OUT, out) for word in command]


def format_bytes(data: bytes, workspace: ProbeWorkspace, *, is_cut: bool = False) -> str:
    """Return the redacted beginning of what a program printed or wrote, and its size if that is not all."""
    text = head(data, redactor=workspace.redactor, limit_chars=_SHOWN_CHARS + 1, is_cut=is_cut)
    shown = repr(text[:_SHOWN_CHARS])
    return shown if len(text) <= _SHOWN_CHARS and not is_cut else f"{shown}… ({len(data)} bytes)"


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
