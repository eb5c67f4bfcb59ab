"""Convert a command of a spec to argv, and argv to text. Pure."""

import shlex
from collections.abc import Sequence

_SHELL = ("bash", "-c")


def argv_of(command: list[str] | str) -> tuple[str, ...]:
    """Return the argv of a command. A string is run with `bash -c`, so that `&&` and pipes work.

    >>> argv_of("make db && ls"), argv_of(["make", "db"])
    (('bash', '-c', 'make db && ls'), ('make', 'db'))
    """
    return (*_SHELL, command) if isinstance(command, str) else tuple(command)


def shell_command(argv: Sequence[str]) -> str:
    """Return an argv as a command for bash: as the spec has it, or quoted where a word needs it.

    >>> shell_command(argv_of("make db && ls")), shell_command(["cat", "greet me.txt"])
    ('make db && ls', "cat 'greet me.txt'")
    """
    return argv[2] if is_shell(argv) else shlex.join(argv)


def is_shell(argv: Sequence[str]) -> bool:
    """Return whether the command is a string of the spec, which bash runs."""
    return len(argv) == 3 and tuple(argv[:2]) == _SHELL
