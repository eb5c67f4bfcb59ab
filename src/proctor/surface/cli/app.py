"""The command line: which commands there are, and the one place where whatever goes wrong becomes words and a code."""

import gc
import importlib
import os
import shlex
import signal
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from proctor import __version__
from proctor.errors import Exit, InputError, MachineError, ProctorError
from proctor.report.ambiguous import AmbiguousError
from proctor.spec.suggest import nearest
from proctor.surface.cli.command import Command, call, help_width
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output, take_streams

HERE = "proctor.surface.cli"
_CANDIDATES = 8

# A command's module is imported when that command is called, and what only mistakes and help need, with these.
COMMANDS = {
    "init": ("init", "Look at a repository, and write a first spec for it."),
    "try": ("try_", "Compare agents on this repository, now."),
    "run": ("run", "Run a campaign, keep its evidence, and judge it."),
    "campaign run": ("campaign_run", "Run a campaign: as `run` does."),
    "campaign canary": ("campaign_run", "Try a campaign's first missions, apart from it."),
    "campaign resume": ("campaign_run", "Go on with a campaign that was cut off or stopped."),
    "campaign cancel": ("campaign_cancel", "Have a running campaign end."),
    "retry": ("retry", "Try chosen trials of a campaign once more."),
    "campaign status": ("campaign_status", "How a campaign stands, while it runs or after."),
    "campaign list": ("campaign_status", "Every campaign under the evidence root."),
    "campaign lint": ("lint", "Find all that is wrong with a campaign, and run nothing."),
    "suite plan": ("suite", "What a suite's missions come to on chosen runtimes."),
    "suite run": ("suite", "Run a suite's missions on chosen runtimes."),
    "parity": ("parity", "Run the same missions through two runtimes, and compare."),
    "report": ("evidence", "Work results out again from their evidence."),
    "validate": ("evidence", "Say whether evidence is whole."),
    "campaign report": ("campaign_report", "What came of a campaign: scores, intervals, cost, gates."),
    "campaign publish-check": ("campaign_report", "Say whether a campaign's results may be shown to others."),
    "compare": ("compare", "Hold two flows or campaigns against each other, with significance."),
    "sign": ("verify", "Sign the seals of evidence with an SSH key."),
    "verify": ("verify", "Say what evidence establishes, and who signed it."),
    "attempt list": ("attempt", "Every attempt under the evidence root."),
    "attempt show": ("attempt", "Everything that an attempt left."),
    "attempt explain": ("attempt", "The story of an attempt, and what to do next."),
    "attempt rederive": ("attempt", "Make an attempt's derived files again."),
    "attempt export": ("export", "Write an attempt as rows that other readers know."),
    "runtimes list": ("runtimes", "Ways to drive an agent, and the programs found."),
    "runtimes conformance": ("runtimes", "Check a runtime's declared capabilities on the real agent."),
    "runtimes matrix": ("runtimes", "What runtimes claim, and what they have shown."),
    "feedback": ("feedback", "From inside an attempt: claim how the task went."),
    "note": ("note", "From inside an attempt: put a note on record."),
    "model serve": ("model", "Play a model's script on loopback."),
    "doctor": ("doctor", "Look at this machine, and clean up after dead runs."),
    "gc": ("gc", "Let go of old evidence, by age and size."),
    "pin": ("gc", "Keep a campaign, whatever retention says."),
    "contract": ("contract", "Every file, event, command and code others may rely on."),
    "schema": ("contract", "The JSON Schema of a file, a row or a spec."),
    "completion": ("contract", "A script that completes commands in a shell."),
}

_HEAD = """\
usage: proctor COMMAND ...

Run coding agents through their own runtimes, and keep proof of what they did.

commands:
"""
_FOOT = """
options:
  -h, --help            Show this; after a command, show what it takes.
  --version             Print the version.

exit codes, everywhere:
  0 ok, 1 judged no, 2 usage or bad input, 3 infrastructure,
  4 unverified or partial, 5 evidence invalid, 130 interrupted

example:
  proctor run examples/quickstart.yaml
"""


def run() -> None:
    """Do what the command line says, and end the process."""
    take_streams()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Whoever started this with nohup wants it to outlive the terminal.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _terminated)
    words = sys.argv[1:]
    code = answer(words)
    # The interpreter ends with a search for cycles in all there is but what is frozen; the process takes it along.
    gc.freeze()
    # All is said: an impatient second signal must not change the exit code.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def find_command(name: str) -> Command:
    """The declaration of a command in COMMANDS."""
    module = importlib.import_module(f"{HERE}.{COMMANDS[name][0]}")
    found: Command = module.COMMANDS[name]
    return found


def _terminated(_: int, __: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def answer(words: Sequence[str]) -> int:
    """Do what these words say; whatever happens, it is told and there is an exit code."""
    output = Output(is_json="--json" in words)
    calling = CommandFormatter.in_words(words)
    try:
        return _obey(words, output)
    except KeyboardInterrupt:
        output.fail(ProctorError("run.cancelled", "interrupted"), calling=calling)
        return Exit.INTERRUPTED
    except AmbiguousError as error:
        return output.fail(_with_candidates(error, words), calling=calling)
    except Exception as error:
        return output.fail(*_leaves(error), calling=calling)


def _obey(words: Sequence[str], output: Output) -> int:
    for length in (1, 2):
        name = " ".join(words[:length])
        if name in COMMANDS:
            return call(name, find_command(name), words[length:])
    match words:
        case ["--version", *_]:
            output.text(f"proctor {__version__}\n")
        case ["help", word, *rest]:
            return _obey([word, *rest, "--help"], output)
        case [] | ["-h" | "--help" | "help", *_]:
            output.text(_HEAD + _listed(COMMANDS) + _FOOT)
        case [group] | [group, "-h" | "--help", *_] if members := _members(group):
            output.text(f"usage: proctor {group} COMMAND ...\n\ncommands:\n{_listed(members)}\n")
            output.text(f"example:\n  {find_command(members[0]).example}\n")
        case _:
            raise _unknown(words)
    return Exit.OK


def _members(group: str) -> list[str]:
    return [name for name in COMMANDS if name.startswith(f"{group} ")]


def _listed(names: Iterable[str]) -> str:
    return "".join(
        f"{textwrap.fill(COMMANDS[name][1], help_width(), initial_indent=f'  {name:24}', subsequent_indent=' ' * 26)}\n"
        for name in names
    )


def _unknown(words: Sequence[str]) -> InputError:
    said = " ".join(words[: 2 if _members(words[0]) else 1])
    near = nearest(" ".join(words[:2]), COMMANDS) or nearest(said, COMMANDS)
    meant = shlex.join([*near.split(), *words[len(near.split()) :]]) if near else "--help"
    return InputError("usage", f"there is no command `{said}`", suggestion=f"proctor {meant}")


def _with_candidates(error: AmbiguousError, words: Sequence[str]) -> InputError:
    """The command once more for each thing that could have been meant."""
    tries = [
        f"proctor {shlex.join(name if word == error.word else word for word in words)}"
        for name in error.names[:_CANDIDATES]
    ]
    if len(tries) < len(error.names):
        tries.append(f"and {len(error.names) - len(tries)} more")
    return InputError(error.code, error.what, suggestion="\n".join(tries))


def _leaves(error: BaseException) -> list[ProctorError]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    if isinstance(error, FileNotFoundError) and not _has_folder():
        return [InputError("usage", "the current folder is gone", suggestion="Change to one that is there.")]
    return [error if isinstance(error, ProctorError) else _unforeseen(error)]


def _has_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _unforeseen(error: BaseException) -> ProctorError:
    """Not a traceback but where it happened: the last line of ours on the way."""
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
        suggestion="PROCTOR_DEBUG=1 shows the traceback.",
    )
