"""How a command is declared: a function of keyword arguments, its docstring as help, and the words that fill it."""

import argparse
import inspect
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from proctor.errors import InputError

WIDTH = 100
ROOT_VARIABLE = "PROCTOR_ROOT"
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


ROOT = argument(
    "--root",
    metavar="DIR",
    type=Path,
    default=None,
    help=f"Where evidence is kept; else ${ROOT_VARIABLE}, else {DEFAULT_ROOT}.",
)
JSON = argument("--json", dest="as_json", action="store_true", help="Print JSON on stdout, and nothing else there.")


def root_or_default(root: Path | None) -> Path:
    return root or Path(os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)


def root_option(root: Path | None) -> str:
    """What a suggested command needs in order to find the same evidence."""
    return "" if root is None else f" --root {shlex.quote(str(root))}"


def call(name: str, command: Command, words: Sequence[str]) -> int:
    """Parse the words and do it. InputError where they are not what the command takes."""
    parser = _Parser(
        prog=f"proctor {name}",
        description=inspect.cleandoc(command.call.__doc__ or ""),
        epilog=f"example:\n  {command.example}",
        formatter_class=_Format,
        allow_abbrev=False,
        add_help=False,
    )
    for each in command.arguments:
        parser.add_argument(*each.names, **each.settings)
    parser.add_argument("-h", "--help", action="help", help="Show this and end.")
    return command.call(**vars(parser.parse_args(words)))


class _Parser(argparse.ArgumentParser):
    """A mistake is raised, not printed."""

    def error(self, message: str) -> NoReturn:
        raise InputError("usage", message, suggestion=f"{self.prog} --help")


class _Format(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=WIDTH, max_help_position=24)
