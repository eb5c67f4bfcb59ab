"""Declare and parse commands: a function with keyword arguments, whose docstring is the help text."""

import argparse
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from proctor.errors import InputError, disk_error
from proctor.spec.suggest import nearest
from proctor.surface.cli.command_formatter import ROOT_VARIABLE

WIDTH = 100
DEFAULT_ROOT = ".proctor"


class DeclinedError(Exception):
    """The user was asked whether to continue, and said no. The command prints the text, if any, and exits 0."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument or an option: its names, and the keyword arguments of `add_argument`."""

    names: tuple[str, ...]
    settings: dict[str, Any]


def argument(*names: str, **settings: Any) -> Argument:
    return Argument(names, settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command. `call` gets every argument by keyword and returns the exit code."""

    call: Callable[..., int]
    example: str
    arguments: tuple[Argument, ...] = ()


def _folder(word: str) -> Path:
    """Parse a path, and reject an empty one: an unset shell variable must not mean the current folder."""
    if not word:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(word)


ROOT = argument(
    "--root",
    metavar="DIR",
    type=_folder,
    default=None,
    help=f"Evidence root (default: ${ROOT_VARIABLE}, or {DEFAULT_ROOT}).",
)
JSON = argument("--json", dest="as_json", action="store_true", help="Print the result as JSON on stdout.")

PROGRESS = argument(
    "--progress",
    dest="rows_to",
    metavar="FILE",
    type=Path,
    default=None,
    help="Append progress events to FILE as JSON Lines (`-` for stdout).",
)


def root_or_default(root: Path | None) -> Path:
    """Return the evidence root: `root` if given, else the environment variable's, else the default."""
    return root or Path(os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)


def evidence_root(root: Path | None) -> Path:
    """Return the evidence root if it is a folder or can be created.

    Raises InputError if it is or lies in a file, and MachineError if access is denied.
    """
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
    """Return whether a path exists. Raises OSError if access is denied, unlike `Path.exists` in some Pythons."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def call(name: str, command: Command, words: Sequence[str]) -> int:
    """Parse the arguments and call the command. Raises InputError if they are not valid for it."""
    return command.call(**parse(name, command, words))


def parse(name: str, command: Command, words: Sequence[str]) -> dict[str, Any]:
    """Return the parsed arguments by name."""
    # The width of the terminal is only needed for help, and is slow to find out.
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
    parser.add_argument("-h", "--help", action="help", help="Show this help.")
    given, unknown = parser.parse_known_args(words)
    if unknown:
        options = [name for each in command.arguments for name in each.names if name.startswith("-")]
        near = nearest(unknown[0].partition("=")[0], [*options, "--help"])
        what = f"unrecognized arguments: {' '.join(unknown)}"
        raise InputError("usage", what, suggestion=f"Did you mean `{near}`?" if near else f"{parser.prog} --help")
    return vars(given)


class _Parser(argparse.ArgumentParser):
    """Raises errors instead of printing them."""

    def error(self, message: str) -> NoReturn:
        raise InputError("usage", message, suggestion=f"{self.prog} --help")


class _Format(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap  # slow to import, and only needed for help

        # Paragraphs with indented lines are printed as they are.
        paragraphs = text.split("\n\n")
        return "\n\n".join(each if "\n " in each else textwrap.fill(each, width) for each in paragraphs)


def help_width() -> int:
    """Return the width of help texts: that of the terminal, up to a readable maximum."""
    import shutil  # slow to import, and only needed for help

    return min(shutil.get_terminal_size((WIDTH, 0)).columns, WIDTH)
