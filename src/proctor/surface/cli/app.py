"""The command line: the table of commands, and the one place where errors become messages and an exit code."""

import gc
import importlib
import os
import shlex
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from proctor import __version__
from proctor.errors import Exit, InputError, MachineError, ProctorError
from proctor.report.ambiguous import AmbiguousError
from proctor.spec.suggest import nearest
from proctor.surface.cli.command import Command, DeclinedError, call, help_width
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output, take_streams

HERE = "proctor.surface.cli"
_CANDIDATES = 8

# A command's module is imported when the command is called, which keeps short commands fast.
COMMANDS = {
    "demo": ("demo", "Run four example missions on the real Codex, offline and free."),
    "init": ("init", "Inspect a repository and write a first spec for it."),
    "try": ("try_", "Give one task to several agents in this repository and compare them."),
    "run": ("run", "Run a campaign, record evidence and judge the results."),
    "campaign run": ("campaign_run", "Run a campaign (same as `run`)."),
    "campaign canary": ("campaign_run", "Run the first missions of a campaign as a separate sample."),
    "campaign resume": ("campaign_run", "Resume a campaign that was interrupted or is incomplete."),
    "campaign cancel": ("campaign_cancel", "Stop a running campaign."),
    "retry": ("retry", "Retry selected trials of a campaign."),
    "campaign status": ("campaign_status", "Show the status of a campaign, running or not."),
    "campaign list": ("campaign_status", "List the campaigns in the evidence root."),
    "campaign lint": ("lint", "Check a spec for errors without running it."),
    "probe check": ("probe", "Test the probes of missions without an agent."),
    "suite plan": ("suite", "Show a suite's missions and the trials they expand to."),
    "suite run": ("suite", "Run a suite's missions on selected runtimes."),
    "parity": ("parity", "Run the same missions in two flows or runtimes and compare them."),
    "regrade": ("regrade", "Judge the work of sealed attempts again, without an agent."),
    "report": ("evidence", "Recompute a report from the evidence files (slow, thorough)."),
    "validate": ("evidence", "Check that evidence is complete and unchanged."),
    "campaign report": ("campaign_report", "Show a campaign's report (fast, from its index)."),
    "campaign publish-check": ("campaign_report", "Check whether a campaign's results are fit to publish."),
    "compare": ("compare", "Compare two flows or campaigns (paired significance test)."),
    "sign": ("verify", "Sign the seals of evidence with an SSH key."),
    "verify": ("verify", "Check evidence, and who signed it."),
    "attempt list": ("attempt", "List the attempts in the evidence root."),
    "attempt show": ("attempt", "Show the files of an attempt."),
    "attempt explain": ("attempt", "Explain an attempt: what happened, and what to do next."),
    "attempt rederive": ("attempt", "Rebuild an attempt's derived files from its frames."),
    "attempt cancel": ("attempt_cancel", "Cancel one attempt of a running campaign."),
    "attempt export": ("export", "Export an attempt to a format that other tools read."),
    "session new": ("session", "Create a session that continues in another process."),
    "session say": ("session", "Ask one turn in a session, and print the answer."),
    "session talk": ("session", "Talk in a session, line by line."),
    "session show": ("session", "Show a session with its sittings and turns."),
    "session list": ("session", "List the sessions in the evidence root."),
    "session search": ("session", "Find entries of a session by words."),
    "session compact": ("session", "Have the agent shorten the history of a session."),
    "session reset": ("session", "Begin a new history in a session."),
    "session fork": ("session", "Copy a session under another id."),
    "session delete": ("session", "Delete a session."),
    "session verify": ("session", "Compare a session with the evidence of its turns."),
    "runtimes list": ("runtimes", "List the runtimes and the agent programs they would run."),
    "runtimes conformance": ("runtimes", "Test a runtime's declared capabilities with the real agent."),
    "runtimes new": ("runtimes", "Write the package of a new runtime."),
    "runtimes matrix": ("runtimes", "Show declared and proven capabilities of all runtimes."),
    "engines list": ("engines", "List the context engines."),
    "engines check": ("engines", "Test a context engine."),
    "feedback": ("feedback", "From inside an attempt: report whether the task is done."),
    "note": ("note", "From inside an attempt: record a note."),
    "model serve": ("model", "Serve the scripted model on loopback."),
    "doctor": ("doctor", "Check this machine and clean up after dead runs."),
    "gc": ("gc", "Delete old evidence by age or size."),
    "pin": ("gc", "Protect a campaign from `gc`."),
    "contract": ("contract", "Print the files, events, commands and codes that programs may rely on."),
    "schema": ("contract", "Print the JSON Schema of a file, a row or a spec."),
    "completion": ("contract", "Print a shell completion script."),
}

_HEAD = """\
usage: proctor COMMAND ...

Run coding agents and record evidence of what they did.

commands:
"""
_FOOT = """
options:
  -h, --help            Show this help; after a command, its help.
  --version             Print the version.

exit codes of all commands:
  0 ok, 1 not as expected, 2 wrong usage or invalid input, 3 infrastructure,
  4 inconclusive or partial, 5 evidence invalid, 130 interrupted

example:
  proctor demo
"""


def run() -> None:
    """Run the command in `sys.argv` and exit with its code."""
    take_streams()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # SIGHUP is ignored under nohup, and must stay so: the process should outlive the terminal.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _terminated)
    # If the parent process ignored it, the exit status of every child, also of git, would read as 0.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    words = sys.argv[1:]
    code = answer(words)
    # Skips the garbage collection at exit: the process ends and frees its memory anyway.
    gc.freeze()
    # The output is complete: another signal must not change the exit code.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def find_command(name: str) -> Command:
    """Import and return the declaration of a command in COMMANDS."""
    module = importlib.import_module(f"{HERE}.{COMMANDS[name][0]}")
    found: Command = module.COMMANDS[name]
    return found


def _terminated(_: int, __: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def answer(words: Sequence[str]) -> int:
    """Run the command in `words` and return its exit code. Every error is printed, none is raised."""
    output = Output(is_json="--json" in words)
    formatter = CommandFormatter.in_words(words)
    try:
        return _dispatch(words, output)
    except DeclinedError as error:
        if output.is_json:
            output.json({"isDeclined": True})
        output.note(str(error) or "Nothing was run.")
        return Exit.OK
    except KeyboardInterrupt:
        # No campaign was running, which alone could be resumed: `drive` handles the signals that reach one.
        output.fail(ProctorError("run.interrupted", "interrupted"), formatter=formatter)
        return Exit.INTERRUPTED
    except AmbiguousError as error:
        return output.fail(_with_candidates(error, words), formatter=formatter)
    except Exception as error:
        return output.fail(*_leaves(error), formatter=formatter)


def _dispatch(words: Sequence[str], output: Output) -> int:
    for length in (1, 2):
        name = " ".join(words[:length])
        if name in COMMANDS:
            return call(name, find_command(name), words[length:])
    match words:
        case ["--version", *_]:
            output.text(f"proctor {__version__}\n")
        case ["help", word, *rest]:
            return _dispatch([word, *rest, "--help"], output)
        case [] | ["-h" | "--help" | "help", *_]:
            output.text(_HEAD + _format_commands(COMMANDS) + _FOOT)
        case [group] | [group, "-h" | "--help", *_] if members := _members(group):
            output.text(f"usage: proctor {group} COMMAND ...\n\ncommands:\n{_format_commands(members)}\n")
            output.text(f"example:\n  {find_command(members[0]).example}\n")
        case _:
            raise _unknown_command(words)
    return Exit.OK


def _members(group: str) -> list[str]:
    return [name for name in COMMANDS if name.startswith(f"{group} ")]


def _format_commands(names: Iterable[str]) -> str:
    import textwrap  # slow to import, and only needed for help

    return "".join(
        f"{textwrap.fill(COMMANDS[name][1], help_width(), initial_indent=f'  {name:24}', subsequent_indent=' ' * 26)}\n"
        for name in names
    )


def _unknown_command(words: Sequence[str]) -> InputError:
    is_group = bool(_members(words[0]))
    name = " ".join(words[: 2 if is_group else 1])
    suggested = "\n".join(f"proctor {shlex.join(each)}" for each in _similar_commands(words))
    fallback = f"proctor {words[0]} --help" if is_group else "proctor --help"
    return InputError("usage", f"unknown command `{name}`", suggestion=suggested or fallback)


def _similar_commands(words: Sequence[str]) -> list[list[str]]:
    """Return the command lines that may have been meant, with the other words of the one that was typed."""
    group = nearest(words[0], {name.partition(" ")[0] for name in COMMANDS if " " in name})
    if group is not None and len(words) > 1:
        near = nearest(words[1], [name.partition(" ")[2] for name in _members(group)])
        if near is not None:
            return [[group, near, *words[2:]]]
        if group == words[0]:
            return []
    # The last word of a command is often typed alone, as in `proctor lint`.
    last = nearest(words[0], {name.rpartition(" ")[2] for name in COMMANDS})
    meant = [last] if last in COMMANDS else [name for name in COMMANDS if last and name.endswith(f" {last}")]
    return [[*name.split(), *words[1:]] for name in meant if name]


def _with_candidates(error: AmbiguousError, words: Sequence[str]) -> InputError:
    """Return the error with one complete command line per candidate as its suggestion."""
    candidates = [
        f"proctor {shlex.join(name if word == error.word else word for word in words)}"
        for name in error.names[:_CANDIDATES]
    ]
    if len(candidates) < len(error.names):
        candidates.append(f"and {len(error.names) - len(candidates)} more")
    return InputError(error.code, error.what, suggestion="\n".join(candidates))


def _leaves(error: BaseException) -> list[ProctorError]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    if isinstance(error, FileNotFoundError) and not _has_current_folder():
        return [InputError("usage", "the current folder was deleted", suggestion="Change to a folder that exists.")]
    return [error if isinstance(error, ProctorError) else _unexpected(error)]


def _has_current_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _unexpected(error: BaseException) -> ProctorError:
    """Return an internal error with the innermost line of Proctor's code instead of a traceback."""
    import traceback

    if os.environ.get("PROCTOR_DEBUG"):
        traceback.print_exception(error)
    ours = Path(__file__).parents[2]
    steps = traceback.extract_tb(error.__traceback__)
    step = next((step for step in reversed(steps) if Path(step.filename).is_relative_to(ours)), None)
    return MachineError(
        "run.harness",
        f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
        file=None if step is None else str(Path(step.filename).relative_to(ours.parent)),
        line=None if step is None else step.lineno,
        suggestion="Report it as a bug, with the traceback that PROCTOR_DEBUG=1 prints.",
    )
