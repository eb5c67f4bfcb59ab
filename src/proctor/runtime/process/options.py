"""The flow options of the `process` runtime."""

import resource
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from proctor import decoding
from proctor.errors import InputError
from proctor.event.claim import MARKER

Text = Annotated[str, Meta(min_length=1)]
Status = Annotated[int, Meta(ge=0, le=255)]

PROMPT: Final = "{prompt}"
PROMPT_FILE: Final = "{prompt_file}"
MOST_ARGUMENT_BYTES: Final = 32 * resource.getpagesize() - 1
"""The longest argument that Linux passes to a program, without the NUL at its end (MAX_ARG_STRLEN)."""


class ResultFrom(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the command's result is read from. Exactly one of the two is set."""

    file: Text | None = None
    """A file that the command writes, relative to the workspace."""
    marker: Text | None = None
    """The beginning of the last output line."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a flow that runs a command."""

    command: Annotated[list[Text], Meta(min_length=1)] | Text
    """The argv as a list, or a line for `bash -c`."""
    prompt: Literal["stdin", "argument", "file"] = "stdin"
    """How the command gets the prompt."""
    result: ResultFrom = ResultFrom(marker=MARKER)
    """Where its result is read from."""
    exit: Status | Annotated[list[Status], Meta(min_length=1)] = 0
    """The exit status, or statuses, of a completed turn."""

    @property
    def argv(self) -> list[str]:
        # The arguments after the name become $1, $2 and so on.
        return ["bash", "-c", self.command, "bash"] if isinstance(self.command, str) else self.command

    @property
    def good_exits(self) -> list[int]:
        return [self.exit] if isinstance(self.exit, int) else self.exit

    @property
    def prompt_bytes(self) -> int | None:
        """The longest prompt that fits into the argv, in bytes. None if the prompt is no argument.

        >>> limit = Options(command="agent", prompt="argument").prompt_bytes
        >>> limit - Options(command=["agent", "<{prompt}>"], prompt="argument").prompt_bytes
        2
        """
        if self.prompt != "argument":
            return None
        words = self.command if isinstance(self.command, list) else []
        rooms = [
            (MOST_ARGUMENT_BYTES - len(word.replace(PROMPT, "").encode(errors="backslashreplace")))
            // word.count(PROMPT)
            for word in words
            if PROMPT in word
        ]
        return min(rooms, default=MOST_ARGUMENT_BYTES)

    def argv_with(self, prompt: str, *, file: str) -> list[str]:
        """Return the argv with the prompt or its file inserted at the placeholder, or else appended.

        >>> Options(command=["agent", "-p", "{prompt}", "-v"], prompt="argument").argv_with("Go.", file="")
        ['agent', '-p', 'Go.', '-v']
        >>> Options(command='agent "$1"', prompt="file").argv_with("Go.", file="/tmp/p")
        ['bash', '-c', 'agent "$1"', 'bash', '/tmp/p']
        """
        if self.prompt == "stdin":
            return self.argv
        place, given = (PROMPT, prompt) if self.prompt == "argument" else (PROMPT_FILE, file)
        # Not in a string, where the shell would interpret it.
        if isinstance(self.command, list) and any(place in word for word in self.command):
            return [word.replace(place, given) for word in self.command]
        return [*self.argv, given]


NAMES: Final = frozenset(Options.__struct_fields__)


def read_options(options: Mapping[str, Any]) -> Options:
    """Decode the options. Raises InputError if they are invalid."""
    if "command" not in options:
        what = "a process needs `command`: a list of words, or a line for bash"
        raise InputError("spec.missing-key", what, key="command")
    try:
        read = decoding.convert(options, Options)
    except msgspec.ValidationError as error:
        raise InputError("spec.type", str(error)) from error
    if (read.result.file is None) == (read.result.marker is None):
        raise InputError("spec.type", "`result` names a file or a marker", key="result")
    if read.result.file is not None and not _is_inside(read.result.file):
        raise InputError("spec.type", f"{read.result.file!r} is not inside the workspace", key="result.file")
    return read


def _is_inside(path: str) -> bool:
    """
    >>> _is_inside("out/result.json"), _is_inside("../result.json"), _is_inside("/result.json")
    (True, False, False)
    """
    parts = PurePosixPath(path).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts
