"""Test tiers: which tests start an agent or a Proctor process, and the check that the fast tier starts neither.

A test that drives a real agent is marked `real_agent` or `agent(id)`. A test that runs Proctor, or any code of this
repository, in another Python process is marked `proctor_process`. Every other test gets the mark `fast` and is watched:
a process of either kind that it starts is refused, and the test fails. The check reads command lines, so it does not
see what a program that a test wrote itself starts in turn. An agent may print its version and its schema in any test:
every preflight check reads them, once per cache.
"""

import os
import re
import sys
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Final

import pytest

from proctor.contain.bundled import CODEX_WHEEL, bundled_file
from tests import agents_here

SLOW_MARKS: Final = frozenset({"real_agent", "agent", "proctor_process"})
AGENT_FIXTURES: Final = frozenset({"quickstart", "recorded"})
"""Shared fixtures that run the real Codex: a test that uses one is marked here, as only the first one starts it."""

# The audit events of a process being started, and where each has the program and the command line.
_PROGRAM_INDEX: Final = {"subprocess.Popen": 0, "os.posix_spawn": 0, "os.exec": 0, "os.spawn": 1}
_ARGV_INDEX: Final = {"subprocess.Popen": 1, "os.posix_spawn": 1, "os.exec": 1, "os.spawn": 2}
_EXAMINATIONS: Final = frozenset({"--version", "generate-json-schema"})
_OUR_PACKAGES: Final = "proctor|proctor_notes|proctor_pi|tests|bench|chaos|tools"
_IMPORTS_OURS: Final = re.compile(rf"^(?:.*;)?\s*(?:from|import)\b[^#;\n]*\b(?:{_OUR_PACKAGES})\b", re.MULTILINE)
_SHELL_RUNS_PROCTOR: Final = re.compile(r"(?:^|[;&|])\s*(?:\S*/)?proctor\s", re.MULTILINE)


class _Watch:
    """The fast test that is running, if one is, and what was refused to it."""

    is_on = False
    refused: Final[list[str]] = []


def pytest_configure() -> None:
    sys.addaudithook(_refuse_in_fast_test)


@pytest.hookimpl(trylast=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    if AGENT_FIXTURES.intersection(getattr(item, "fixturenames", ())):
        item.add_marker("real_agent")
    if SLOW_MARKS.isdisjoint(mark.name for mark in item.iter_markers()):
        item.add_marker("fast")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no worker is left with one at the end; then those that wait for other processes."""
    items.sort(key=lambda item: (item.get_closest_marker("long") is None, item.get_closest_marker("fast") is not None))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _Watch.is_on = item.get_closest_marker("fast") is not None
    try:
        return (yield)
    finally:
        _Watch.is_on = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    yield from _failing_if_refused()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    yield from _failing_if_refused()


def _failing_if_refused() -> Generator[None]:
    """Fail also where the code under test caught the refusal, or failed in another way because of it."""
    try:
        yield
    except pytest.fail.Exception:
        take_refusals()
        raise
    finally:
        if messages := take_refusals():
            pytest.fail("\n".join(messages), pytrace=False)


def take_refusals() -> list[str]:
    taken = list(_Watch.refused)
    _Watch.refused.clear()
    return taken


def _refuse_in_fast_test(event: str, args: tuple[object, ...]) -> None:
    if not _Watch.is_on or event not in _ARGV_INDEX:
        return
    words = _as_words(args[_ARGV_INDEX[event]])
    kind = kind_of_slow([*_as_words(args[_PROGRAM_INDEX[event]] or ()), *words])
    if kind is not None:
        message = f"a fast test started {kind} ({' '.join(words)[:200]}): mark it, see tests/tiers.py"
        _Watch.refused.append(message)
        pytest.fail(message)


def _as_words(argv: object) -> list[str]:
    if isinstance(argv, str | bytes | os.PathLike):
        return [os.fsdecode(argv)]
    assert isinstance(argv, Iterable)
    return [os.fsdecode(word) for word in argv]


def kind_of_slow(argv: Sequence[str]) -> str | None:
    """Which kind of process this command line starts that the fast tier must not start; None if neither."""
    if any(_is_agent(word) for word in argv) and _EXAMINATIONS.isdisjoint(argv):
        return "a real agent"
    if any(_is_proctor(argv[at:]) for at in range(len(argv))):
        return "a Proctor process"
    return None


def _is_agent(word: str) -> bool:
    if not word.startswith("/"):
        return False
    file, codex, agents = Path(word).resolve(), bundled_file(CODEX_WHEEL, "bin/codex"), agents_here.FOLDER
    return (codex is not None and file == codex.resolve()) or (
        agents is not None and file.is_file() and file.is_relative_to(agents.resolve())
    )


def _is_proctor(argv: Sequence[str]) -> bool:
    """Whether the command line that begins here is Proctor's, or Python code that imports something of ours."""
    program = Path(argv[0]).name
    if program.startswith("python"):
        return _runs_ours(argv[1:])
    return argv[0].endswith("bin/proctor") or _SHELL_RUNS_PROCTOR.search(argv[0]) is not None


def _runs_ours(argv: Sequence[str]) -> bool:
    match [word for word in argv if not word.startswith("-") or word in {"-c", "-m"}]:
        case ["-m", module, *_]:
            return re.match(rf"(?:{_OUR_PACKAGES})\b", module) is not None
        case ["-c", source, *_]:
            return _IMPORTS_OURS.search(source) is not None
        case [script, *_] if Path(script).is_file():
            return _IMPORTS_OURS.search(Path(script).read_text(errors="replace")) is not None
        case _:
            return False
