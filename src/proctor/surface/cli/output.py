"""Where a command's words go: JSON alone on stdout when asked for, else text for people; the rest to stderr."""

import errno
import io
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from proctor.errors import MachineError, ProctorError, disk_error
from proctor.surface.cli.command_formatter import CommandFormatter

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDTH = 100
"""Of text that goes to no terminal."""


def take_streams() -> None:
    """Make stdout and stderr take whatever evidence holds, even where the caller closed them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        getattr(sys, name).reconfigure(errors="backslashreplace")


class Output:
    """One command's way to speak."""

    def __init__(self, *, is_json: bool) -> None:
        self.is_json = is_json

    def json(self, value: Any) -> None:
        """A value whole."""
        _say(spell(value), sys.stdout)

    def text(self, text: str) -> None:
        """As it is, whatever was asked for."""
        _say(text, sys.stdout)

    def show(self, *renderables: "RenderableType", is_wrapped: bool = True) -> None:
        """For people, on stdout; nothing where JSON is wanted there. What is not wrapped can be copied whole."""
        if not self.is_json:
            _say(render(renderables, sys.stdout, is_wrapped=is_wrapped), sys.stdout)

    def plain(self, *renderables: "RenderableType") -> str:
        """What `show` would say where there is no terminal."""
        return render(renderables, io.StringIO())

    def note(self, *renderables: "RenderableType") -> None:
        """For people, on stderr, in lines that can be copied whole."""
        _say(render(renderables, sys.stderr, is_wrapped=False), sys.stderr)

    def fail(self, *errors: ProctorError, calling: CommandFormatter) -> int:
        """Say what is wrong and what to do about it; gives the exit code."""
        each = [one for error in errors for one in error.all_errors]
        # Where nothing can be said any more, the exit code still tells.
        with suppress(MachineError):
            if self.is_json:
                told = [describe(error, calling) for error in each]
                self.json({"error": told[0]} if len(told) == 1 else {"errors": told})
            else:
                from proctor.surface.cli.blocks import error_block

                blocks = [part for error in each for part in ("", error_block(error, calling))]
                self.note(*blocks[1:])
        return each[0].exit


def describe(error: ProctorError, calling: CommandFormatter) -> dict[str, Any]:
    """An error as JSON tells it; every field is always there."""
    meaning = error.meaning
    return {
        "code": error.code,
        "what": error.what,
        "file": error.file,
        "line": error.line,
        "key": error.key,
        "suggestion": None if error.suggestion is None else calling.spell(error.suggestion),
        "means": meaning.means,
        "todo": calling.spell(meaning.todo),
        "retryable": meaning.retryable,
    }


def spell(value: Any) -> str:
    """JSON for people and programs. What UTF-8 cannot spell, such as half a surrogate pair, is written as an escape."""
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), indent=2) + "\n"


def console_on(stream: TextIO, *, into: TextIO | None = None) -> "Console":
    """As wide and as colourful as that stream, whatever it is that is written to."""
    # Imported when used: half the time of a short command.
    from rich.console import Console

    is_terminal = stream.isatty()
    width = os.get_terminal_size(stream.fileno()).columns if is_terminal else WIDTH
    return Console(
        file=into or stream,
        force_terminal=True if is_terminal else None,
        width=None if "COLUMNS" in os.environ else width or WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
    )


def render(renderables: Iterable["RenderableType"], stream: TextIO, *, is_wrapped: bool = True) -> str:
    written = io.StringIO()
    console = console_on(stream, into=written)
    for each in renderables:
        console.print(each, soft_wrap=not is_wrapped)
    text = written.getvalue()
    return text if console.is_terminal else "".join(f"{line.rstrip()}\n" for line in text.split("\n")[:-1])


def _say(text: str, stream: TextIO) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        # The interpreter flushes once more at its end and must not stumble over it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        # Where the reader has left, what is still to be done, and the exit code, matter all the same.
        # A terminal that is gone says EIO.
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise disk_error(error, path=Path(stream.name)) from error
