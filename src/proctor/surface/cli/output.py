"""Write the output of commands: results to stdout, as JSON alone or as text; warnings and errors to stderr."""

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
"""Width of text that does not go to a terminal."""


def take_streams() -> None:
    """Let stdout and stderr accept any text that evidence may contain, even if the caller closed them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        getattr(sys, name).reconfigure(errors="backslashreplace")


class Output:
    """The output of one command."""

    def __init__(self, *, is_json: bool) -> None:
        self.is_json = is_json

    def json(self, value: Any, *, is_indented: bool = False) -> None:
        """Print a value as JSON on stdout: on one line, or indented if wanted or on a terminal."""
        _write(to_json(value, is_indented=is_indented or sys.stdout.isatty()), sys.stdout)

    def text(self, text: str | bytes) -> None:
        """Print text, or JSON of `to_json`, on stdout unchanged, even with --json."""
        _write(text, sys.stdout)

    def show(self, *renderables: "RenderableType", is_wrapped: bool = True) -> None:
        """Print text on stdout, unless JSON was requested. Unwrapped lines can be copied as a whole."""
        if not self.is_json:
            _write(render(renderables, sys.stdout, is_wrapped=is_wrapped), sys.stdout)

    def plain(self, *renderables: "RenderableType") -> str:
        """Return what `show` would print without a terminal."""
        return render(renderables, io.StringIO())

    def note(self, *renderables: "RenderableType") -> None:
        """Print text on stderr, in unwrapped lines that can be copied as a whole."""
        _write(render(renderables, sys.stderr, is_wrapped=False), sys.stderr)

    def fail(self, *errors: ProctorError, formatter: CommandFormatter) -> int:
        """Print errors and what to do about them, and return the exit code."""
        each = [one for error in errors for one in error.all_errors]
        # If the output cannot be written, the exit code still reports the error.
        with suppress(MachineError):
            if self.is_json:
                described = [describe(error, formatter) for error in each]
                self.json({"error": described[0]} if len(described) == 1 else {"errors": described})
            else:
                from proctor.surface.cli.blocks import error_block

                blocks = [part for error in each for part in ("", error_block(error, formatter))]
                self.note(*blocks[1:])
        return each[0].exit


def describe(error: ProctorError, formatter: CommandFormatter) -> dict[str, Any]:
    """Return an error as it is printed with --json. Every field is always present.

    `todo` is the one advice: the suggestion, or what the table of codes says in general if there is no suggestion.
    """
    meaning = error.meaning
    suggestion = None if error.suggestion is None else formatter.spell(error.suggestion)
    return {
        "code": error.code,
        "what": error.what,
        "file": error.file,
        "line": error.line,
        "key": error.key,
        "suggestion": suggestion,
        "means": meaning.means,
        "todo": formatter.spell(meaning.todo) if suggestion is None else suggestion,
        "retryable": meaning.retryable,
    }


def to_json(value: Any, *, is_indented: bool) -> bytes:
    """Return a value as JSON on one line, or indented, with a line end. Text that is not UTF-8 is escaped."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        data = json.dumps(msgspec.to_builtins(value)).encode()
    # Indenting a report of 10,000 attempts takes as long as encoding it.
    return (msgspec.json.format(data, indent=2) if is_indented else data) + b"\n"


def console_on(stream: TextIO, *, into: TextIO | None = None) -> "Console":
    """Return a console with the width and colours of `stream` that writes to `into`, by default the stream itself."""
    # Imported when used: it takes half the time of a short command.
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


def _write(text: str | bytes, stream: TextIO) -> None:
    try:
        if isinstance(text, str):
            stream.write(text)
        elif isinstance(stream, io.TextIOWrapper):
            # As it is: a report of 10,000 attempts has 11 MB, and would be copied three times as text.
            stream.flush()
            stream.buffer.write(text)
        else:
            stream.write(text.decode())
        stream.flush()
    except OSError as error:
        # The interpreter flushes the stream again at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        # If the reader has gone away (EIO: a terminal), the command continues for its effects and its exit code.
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise disk_error(error, path=Path(stream.name)) from error
