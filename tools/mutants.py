"""Check that requirements are proven by the tests that cite them: break the code, and run only those tests.

Each entry of mutants.toml names a requirement, a file, the text to replace and the replacement. The checkout is copied,
one mutant at a time is applied to the copy, and the tests that cite the requirement run there, those without an agent
first, until one fails. At the end, the tests that caught a mutant must pass without one. `python -m tools.mutants ROW`
selects mutants by the beginning of their requirement.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pytest

LIST: Final = Path("tools/mutants.toml")
TESTS: Final = ("tests", "examples/plugins/notes/tests", "examples/plugins/pi/tests")
SOURCES: Final = ("src", "examples/plugins/notes/src", "examples/plugins/pi/src")
TIMEOUT_S: Final = 900.0
_SLOW: Final = re.compile(r"\bmark\.(real_agent|agent|proctor_process|long)\b|\b(quickstart|recorded|run|lab)\b")
_STARTS_PROCESSES: Final = ("examples", "tests/acceptance", "tests/contain", "tests/probe", "tests/transport")
_FAST: Final = "fast and not long"
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+::[^\s\[]+)", re.MULTILINE)


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One deliberate defect."""

    row: str
    """Id of the requirement that the defect violates."""
    what: str
    """The defect, in a few words."""
    file: str
    """Path of the file, relative to the checkout."""
    find: str
    """The text to replace. It occurs exactly once in the file."""
    replace: str
    """The replacement."""


class MutantList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of mutants.toml."""

    mutant: list[Mutant]
    """The mutants."""


class MutantError(Exception):
    """A mutant cannot be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the citing tests say about one mutant."""

    mutant: Mutant
    caught_by: str | None
    """The first test that failed; None if all passed."""
    duration_s: float


# ── the tests that cite a requirement ──


def citing_tests(checkout: Path) -> Mapping[str, list[str]]:
    """Return the node ids of the tests that cite each requirement, those first that look fast and start no process."""
    found: dict[str, list[tuple[bool, bool, str]]] = {}
    for file in sorted(path for folder in TESTS for path in (checkout / folder).rglob("test_*.py")):
        for row, is_slow, name in _citations(ast.parse(file.read_text())):
            test = f"{file.relative_to(checkout)}::{name}"
            found.setdefault(row, []).append((is_slow, test.startswith(_STARTS_PROCESSES), test))
    return {row: list(dict.fromkeys(test for *_, test in sorted(tests))) for row, tests in found.items()}


def _citations(module: ast.Module) -> Iterator[tuple[str, bool, str]]:
    """Yield the row, whether the test looks slow, and the test's name."""
    shared = [ast.unparse(each.value) for each in module.body if isinstance(each, ast.Assign) and _is_marks(each)]
    for test in module.body:
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
            marks = " ".join([*shared, *map(ast.unparse, test.decorator_list)])
            is_slow = _SLOW.search(f"{marks} {ast.unparse(test.args)}") is not None
            for row in re.findall(r"mark\.requirement\('([^']+)'\)", marks):
                yield row, is_slow, test.name


def _is_marks(assignment: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in assignment.targets)


# ── one mutant ──


def mutate(mutant: Mutant, text: str) -> str:
    """Return the text with the defect. Raises MutantError if the text to replace does not occur exactly once.

    >>> mutate(Mutant(row="a.b", what="", file="f", find="a <= b", replace="a < b"), "if a <= b:")
    'if a < b:'
    """
    count = text.count(mutant.find)
    if count != 1:
        raise MutantError(f"{mutant.file}: the text to replace occurs {count} times, not once: {mutant.find!r}")
    return text.replace(mutant.find, mutant.replace)


def judge(mutant: Mutant, tests: Sequence[str], *, copy: Path, is_fast: bool = False) -> Judgement:
    """Apply a mutant to the copy, run the tests, and restore the copy. Raises MutantError if they cannot judge."""
    if not tests:
        raise MutantError(f"{mutant.row}: no test cites this requirement")
    path, began_s = copy / mutant.file, time.monotonic()
    whole = path.read_text()
    changed = mutate(mutant, whole)
    try:
        _write(path, changed)
        # In two steps, because conftest.py lets the longest tests start first.
        steps = [_FAST] if is_fast else [_FAST, f"not ({_FAST})"]
        caught_by = next((test for marks in steps for test in failures(tests, "-x", "-m", marks, copy=copy)), None)
    finally:
        _write(path, whole)
    return Judgement(mutant=mutant, caught_by=caught_by, duration_s=time.monotonic() - began_s)


_writes = 0


def _write(path: Path, text: str) -> None:
    """Write a module with a new modification time: bytecode is found by size and second."""
    global _writes  # noqa: PLW0603
    _writes += 1
    path.write_text(text)
    os.utime(path, (time.time() + _writes, time.time() + _writes))


def failures(tests: Sequence[str], *options: str, copy: Path) -> list[str]:
    """Run tests in the copy and return those that fail. Raises MutantError if pytest cannot run them."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(copy / each) for each in SOURCES),
    }
    program = str(Path(sys.executable).with_name("pytest"))
    command = [sys.executable, "tests/offline.py", program, "-q", "-rfE", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, "-p", "no:xdist", *options, *tests],
            check=False,
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise MutantError(f"the tests did not end within {TIMEOUT_S:g} s") from error
    failed = _FAILED.findall(done.stdout)
    if done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED and "-m" in options:
        return []
    if done.returncode not in (0, 1) or bool(done.returncode) is not bool(failed):
        raise MutantError(f"pytest exited with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed


# ── all of them ──


def copy_checkout(checkout: Path, into: Path) -> None:
    """Copy the files that git knows or would add, and link the environment, if there is one."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=checkout,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = checkout / name, into / name
        if source.is_file() or source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    if (checkout / ".venv").exists():
        (into / ".venv").symlink_to((checkout / ".venv").resolve())


def load(path: Path) -> list[Mutant]:
    """Read the list of mutants. Raises MutantError if it is invalid."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=MutantList).mutant
    except (OSError, msgspec.DecodeError) as error:
        raise MutantError(f"{path}: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("rows", nargs="*", help="only mutants of requirements that begin with one of these")
    parser.add_argument("--fast", action="store_true", help="run only tests that start no agent and no Proctor process")
    options = parser.parse_args(arguments)
    wanted = tuple(options.rows) or ("",)
    survived, errors, caught_by = 0, 0, set[str]()
    mutants = [each for each in load(LIST) if each.row.startswith(wanted)]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        copy_checkout(Path.cwd(), copy)
        cited = citing_tests(copy)
        for each in mutants:
            try:
                judgement = judge(each, cited.get(each.row, []), copy=copy, is_fast=options.fast)
            except MutantError as error:
                errors += 1
                print(f"ERROR     {each.row}: {each.what}: {error}", flush=True)
                continue
            survived += judgement.caught_by is None
            result = "SURVIVED " if judgement.caught_by is None else "caught   "
            print(f"{result} {each.row}: {each.what} ({judgement.duration_s:.0f} s)", flush=True)
            if judgement.caught_by is not None:
                caught_by.add(judgement.caught_by)
                print(f"          by {judgement.caught_by}", flush=True)
        for test in failures(sorted(caught_by), copy=copy) if caught_by else ():
            errors += 1
            print(f"ERROR     {test} fails without a mutant, too", flush=True)
        if sys.pycache_prefix is not None:
            shutil.rmtree(f"{sys.pycache_prefix}{copy}", ignore_errors=True)
    print(f"{survived} of {len(mutants)} survived, {errors} could not be judged")
    return 1 if survived or errors else 0


if __name__ == "__main__":
    sys.exit(main())
