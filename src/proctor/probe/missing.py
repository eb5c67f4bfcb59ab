"""Find out from a command's exit status and stderr that a program or module is missing on this machine. Pure.

A shell reports a misspelled program with an exit status like that of a failed check. Such a probe cannot judge, so only
what no workspace could provide is recognized here; everything else is an ordinary failure.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from proctor.probe.model import Fault
from proctor.transport.process import ProcessResult

_NOT_FOUND: Final = 127
# bash reports a name that is not on PATH. For a path it says "No such file or directory".
_COMMAND = re.compile(r"^(?:\S*/)?bash: line \d+: ([^\s/:]+): command not found$", re.MULTILINE)
_ENV = re.compile(r"^(?:\S*/)?env: [‘']([^\s/]+)[’']: No such file or directory$", re.MULTILINE)
_LIBRARY = re.compile(r"error while loading shared libraries: ([^\s:]+): cannot open shared object file")
_MODULE = re.compile(r"^\S*python[\d.]*: No module named ([\w.]+)$", re.MULTILINE)
# With one of these, a shell command may define a name itself or get it from the workspace.
_DEFINES = re.compile(
    r"PATH|\bsource\b|(?:^|[;&|({\n]|\b(?:then|do|else))\s*\.\s|\balias\b|\beval\b|\bfunction\b|\(\)|\bhash\b"
)
_TOOLS: Final = frozenset({"coverage", "mypy", "nose2", "nox", "pip", "pyright", "pytest", "ruff", "tox"})
"""Python modules that a machine provides. Any other module may be what the agent is to write."""


@dataclass(frozen=True, slots=True)
class MissingDependency:
    """What a command needs and the machine does not have."""

    name: str
    fault: Fault
    """The workspace's if its content could cause the same message."""


def find_missing(
    command: list[str] | str, finished: ProcessResult, *, has_tool: Callable[[str], bool]
) -> MissingDependency | None:
    """Return what the command needs and the machine does not have, or None if it failed for another reason."""
    if finished.exit is None or finished.stderr_cut:
        return None
    stderr = finished.stderr.decode(errors="replace")
    if finished.exit.code == _NOT_FOUND:
        if isinstance(command, str) and not _DEFINES.search(command):
            words = set(re.findall(r"[^\s;&|<>(){}'\"]+", command))
            missing = [name for name in _COMMAND.findall(stderr) if name in words and not has_tool(name)]
            if missing:
                return MissingDependency(missing[0], Fault.WORKSPACE)
        if (match := _ENV.search(stderr)) is not None and not has_tool(match[1]):
            return MissingDependency(match[1], Fault.WORKSPACE)
        if (match := _LIBRARY.search(stderr)) is not None:
            return MissingDependency(match[1], Fault.WORKSPACE)
    if (match := _MODULE.search(stderr)) is not None and match[1] in _TOOLS and _runs_module(command, match[1]):
        return MissingDependency(f"the Python module {match[1]}", Fault.WORKSPACE)
    return None


def _runs_module(command: list[str] | str, module: str) -> bool:
    """
    >>> _runs_module(["/usr/bin/python3", "-m", "pytest"], "pytest"), _runs_module("cd x && python -m pytest", "pytest")
    (True, True)
    """
    words = command.split() if isinstance(command, str) else command
    return any(
        PurePosixPath(program).name.startswith("python") and option == "-m" and name == module
        for program, option, name in zip(words, words[1:], words[2:], strict=False)
    )
