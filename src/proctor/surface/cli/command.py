"""How a command is declared: a function of keyword arguments, its docstring as help, and the words that fill it."""

import argparse
import inspect
import os
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from proctor.errors import InputError, disk_error
from proctor.spec.suggest import nearest
from proctor.surface.cli.command_formatter import ROOT_VARIABLE

WIDTH = 100
DEFAULT_ROOT = ".proctor"


@dataclass(frozen=True, slots=True)
class Argument:
    """What argparse calls an argument: its names, and the settings of `add_argument`."""

    names: tuple[str, ...]
    settings: dict[str, Any]


def argument(*names: str, **settings: Any) -> Argument:
    return Argument(names, settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`call` gets every argument by keyword and gives the exit code."""

    call: Callable[..., int]
    example: str
    arguments: tuple[Argument, ...] = ()


def _folder(word: str) -> Path:
    """Nothing would mean the current folder, which a variable that is not set should not."""
    if not word:
        raise argparse.ArgumentTypeError("it names no folder")
    return Path(word)


ROOT = argument(
    "--root",
    metavar="DIR",
    type=_folder,
    default=None,
    help=f"Where evidence is kept; else ${ROOT_VARIABLE}, else {DEFAULT_ROOT}.",
)
JSON = argument("--json", dest="as_json", action="store_true", help="Print JSON on stdout, and nothing else there.")

PROGRESS = argument(
    "--progress",
    dest="rows_to",
    metavar="FILE",
    type=Path,
    default=None,
    help="Add what happens to FILE as JSON, a row a line; - is stdout, where then nothing else goes.",
)


def root_or_default(root: Path | None) -> Path:
    return root or Path(os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)


def evidence_root(root: Path | None) -> Path:
    """The same where it is a folder or can become one; else an InputError. MachineError where it is denied."""
    folder = root_or_default(root)
    full = folder.absolute()
    try:
        there = next(each for each in (full, *full.parents) if _is_there(each))
        is_folder = there.is_dir()
        if is_folder and there == full:
            os.scandir(full).close()
    except OSError as error:
        raise disk_error(error, path=folder) from error
    if not is_folder:
        raise InputError("evidence.root", f"{folder if there == full else there} is a file, not a folder")
    return folder


def _is_there(path: Path) -> bool:
    """OSError where nobody tells: Path.exists does that in some Pythons only."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def call(name: str, command: Command, words: Sequence[str]) -> int:
    """Parse the words and do it. InputError where they are not what the command takes."""
    return command.call(**parse(name, command, words))


def parse(name: str, command: Command, words: Sequence[str]) -> dict[str, Any]:
    """What the words fill in, by the name of the argument."""
    # A formatter is made for each argument, and how wide it is matters only to the one that shows them.
    width = WIDTH if {"-h", "--help"}.isdisjoint(words) else help_width()
    parser = _Parser(
        prog=f"proctor {name}",
        description=inspect.cleandoc(command.call.__doc__ or ""),
        epilog=f"example:\n  {command.example}",
        formatter_class=lambda prog: _Format(prog, width=width, max_help_position=24),
        allow_abbrev=False,
        add_help=False,
    )
    for each in command.arguments:
        parser.add_argument(*each.names, **each.settings)
    parser.add_argument("-h", "--help", action="help", help="Show this and end.")
    given, unknown = parser.parse_known_args(words)
    if unknown:
        options = [name for each in command.arguments for name in each.names if name.startswith("-")]
        near = nearest(unknown[0].partition("=")[0], [*options, "--help"])
        what = f"unrecognized arguments: {' '.join(unknown)}"
        raise InputError("usage", what, suggestion=f"Did you mean `{near}`?" if near else f"{parser.prog} --help")
    return vars(given)


class _Parser(argparse.ArgumentParser):
    """A mistake is raised, not printed."""

    def error(self, message: str) -> NoReturn:
        raise InputError("usage", message, suggestion=f"{self.prog} --help")


class _Format(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        # What is indented is meant to stand as it is.
        paragraphs = text.split("\n\n")
        return "\n\n".join(each if "\n " in each else textwrap.fill(each, width) for each in paragraphs)


def help_width() -> int:
    """As wide as the terminal, but no wider than can be read."""
    import shutil  # as long to load as all of a short command's own modules, and only help is so wide

    return min(shutil.get_terminal_size((WIDTH, 0)).columns, WIDTH)
