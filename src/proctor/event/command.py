"""Find the command line of a tool call, without the shell that the agent wraps around it. Pure."""

import shlex
from typing import Final

from proctor.event.trace import ToolCall

_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash"})


def command_line(call: ToolCall) -> str | None:
    """Return the command line that a call ran, without the shell around it; None if it ran no command."""
    match call.kind, call.input:
        case "command", {"command": str(command)}:
            return bare_command(command)
        case _:
            return None


def bare_command(command: str) -> str:
    """Remove a wrapping `sh -c` from a command line.

    >>> bare_command("/bin/bash -lc 'echo $((6 * 7))'")
    'echo $((6 * 7))'
    >>> bare_command("bash -n script.sh"), bare_command("echo 'unclosed")
    ('bash -n script.sh', "echo 'unclosed")
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    match words:
        case [shell, "-c" | "-lc", inner] if shell.rpartition("/")[2] in _SHELLS:
            return inner
        case _:
            return command
