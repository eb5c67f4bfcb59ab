"""Find out from a command's exit status and stderr that a program or module is missing on this machine. Pure.

A shell reports a misspelled program with an exit status like that of a failed check. Such a probe cannot judge, so only
what no workspace could provide is recognized here; everything else is an ordinary failure.
"""

import re
import sys
from collections.abc import Callable, Collection, Iterable
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
_NOT_IMPORTED = re.compile(
    r"errors? during collection|^ImportError while loading conftest|Failed to import test module", re.MULTILINE
)
# Only the last line of an error counts: an earlier one may have been caught.
_IMPORT = re.compile(r"^(?:E +)?ModuleNotFoundError: No module named '([\w.]+)'\s*(?=^[_=!-]{3}|\Z)", re.MULTILINE)
# Modules that newer Pythons no longer have. To replace such an import is a task.
_REMOVED: Final = frozenset(
    "asynchat asyncore cgi cgitb crypt distutils imp imghdr lib2to3 mailcap msilib nntplib pipes smtpd sndhdr spwd "
    "telnetlib uu xdrlib".split()
)


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


def find_foreign_module(output: str, *, files: Iterable[str], names: Collection[str] = ()) -> str | None:
    """Return a module that Python tests cannot import and that no file of the repository should provide, else None.

    `output` is what pytest or unittest printed, `files` are the paths of the repository, and `names` are other names
    that it may provide. A module with the name of a file, a folder or a tested module is one that the agent may write.

    >>> text = "E   ModuleNotFoundError: No module named 'toolz'\\n=====\\n1 error during collection\\n"
    >>> find_foreign_module(text, files=["shop.py", "tests/test_shop.py"])
    'toolz'
    >>> find_foreign_module(text, files=["tests/test_toolz.py"]) is None
    True
    """
    if not _NOT_IMPORTED.search(output):
        return None
    own = {_plain_name(part) for file in files for part in PurePosixPath(file).parts} | {*map(_plain_name, names)}
    own |= sys.stdlib_module_names | _REMOVED
    tops = (name.partition(".")[0] for name in _IMPORT.findall(output))
    return next((top for top in tops if _plain_name(top) not in own), None)


def _plain_name(name: str) -> str:
    """Return the name of the module that a file or a folder is or tests.

    >>> _plain_name("test_shop.py"), _plain_name("My-Shop"), _plain_name("shop_test.py")
    ('shop', 'my_shop', 'shop')
    """
    stem = name.partition(".")[0].lower().replace("-", "_")
    return stem.removeprefix("test_").removesuffix("_test")
