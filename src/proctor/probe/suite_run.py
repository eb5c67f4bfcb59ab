"""What kinds of probe that run tests share: restore files, plant control tests, run, and read the JUnit report.

The tests share a process with the product. A product that knows a test by name can forge its result, so the verdict is
labelled `inside`. What forges all results at once also forges those of the control tests, and is caught.
"""

import hashlib
import os
import re
import secrets
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

import anyio.to_thread

from proctor.errors import MachineError
from proctor.probe.command import describe_exit, is_in_workspace, judge_missing, may_have_been_killed, replace_out
from proctor.probe.junit import ReportedTest, ReportError, TestState, read_report
from proctor.probe.kind import Judgement, Layout, ProbeReference, ProbeWorkspace, UntouchedTree
from proctor.probe.missing import find_missing
from proctor.probe.model import ControlsRecord, Fault, TestsRecord, Verdict
from proctor.probe.protect import (
    PYTEST_FILES,
    SHARED_FILES,
    Restoration,
    make_parents,
    plan_restoration,
    read_untouched,
    restore,
)
from proctor.probe.view import Subject
from proctor.probe.written import find_written
from proctor.spec.argv import argv_of
from proctor.spec.duration import parse_duration_s
from proctor.spec.probe_options import CONTROL_TOKEN, OUT
from proctor.spec.suite_probes import ControlFiles, SuiteOptions
from proctor.workspace.name import quoted
from proctor.workspace.snapshot import snapshot

MAX_BASELINE_TESTS: Final = 20_000
"""Most tests that can be compared with those of the untouched workspace."""
BAD_STATES: Final = (TestState.FAILED, TestState.ERROR)

_REPORT: Final = "report.xml"
_NAMED: Final = 3
_NAME_CHARS: Final = 80
_HASH_CHARS: Final = 12
_TESTS_FAILED: Final = 1
"""Exit code of pytest if all tests ran and some failed, as one control test does."""

# The workspace is put on sys.path as `python -m pytest` puts it, but not before pytest and the plugins of its
# environment are imported: a module or an entry point of the workspace must not take their place.
_RUN_PYTEST: Final = """\
import sys
here = sys.path.pop(0)
try:
    import pytest
except ModuleNotFoundError as error:
    sys.exit(f"python: No module named {error.name}")
class Workspace:
    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self):
        sys.path.insert(0, here)
sys.exit(pytest.main(plugins=[Workspace()]))
"""

# Both styles of tests: what forges the results of one may leave the other alone.
_CONTROLS: Final = """\
import unittest


def test_{0}():
    pass


def test_{1}():
    raise AssertionError("{1}")


class Test{2}(unittest.TestCase):
    def test_{2}(self):
        pass

    def test_{3}(self):
        self.fail("{3}")
"""


class FindWrong(Protocol):
    """Says what a believable report shows against the workspace: the rule of one kind of probe."""

    def __call__(self, tests: Sequence[ReportedTest], *, before: TestsRecord | None) -> str | None:
        """Return what is wrong; None if nothing is. `before` describes the tests of the untouched workspace; it is None
        if they were not run before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Controls:
    """Control tests by a random word in their names."""

    passing: tuple[str, ...]
    failing: tuple[str, ...]
    file: str = ""
    """A random word in the name of their file; empty if that has none."""
    is_message_known: bool
    """Whether the message of a failing test contains its word."""

    def owns(self, test: ReportedTest) -> bool:
        """Return whether a test is a control test, or represents their file."""
        words = (*self.passing, *self.failing, *filter(None, [self.file]))
        return any(word in test.name or word in test.classname for word in words)

    def judge(self, tests: Sequence[ReportedTest]) -> ControlsRecord:
        """Compare the control tests of a report with what is written in them."""

        def all_are(word: str, state: TestState, message: str) -> bool:
            found = [test for test in tests if word in test.name]
            return bool(found) and all(test.state is state and message in test.message for test in found)

        return ControlsRecord(
            passing_passed=all(all_are(word, TestState.PASSED, "") for word in self.passing),
            failing_failed=all(
                all_are(word, TestState.FAILED, word if self.is_message_known else "") for word in self.failing
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How the tests of one run are started."""

    controls: _Controls
    control_file: str = ""
    """Path of the control file for pytest."""
    settings: str = ""
    """Path of pytest's settings."""
    is_untouched: bool


# ── before the view is made ──


def lay_out_suite(spec: SuiteOptions, *, subject: Subject, reference: ProbeReference, folder: Path) -> Layout:
    """Restore what decides about the test run, and plant the control tests."""
    untouched = reference.untouched
    is_untouched = untouched is None or untouched.tree.digest == subject.digest
    restored, planted = folder / "restored", folder / "planted"
    for each in (restored, planted):
        make_parents("", layer=each, like=subject.folder)
    restoration = Restoration()
    if untouched is not None and not is_untouched:
        # pytest gets its settings by another way, so that a mission may be about these files.
        names: Collection[str] = () if spec.command is None else SHARED_FILES
        now = subject.tree or snapshot(subject.folder)
        restoration = plan_restoration(untouched.tree, now, protect=reference.protect, names=names)
        if restoration.tampered:
            return Layout(tampered=restoration.tampered)
        restore(restoration.restored, untouched, layer=restored)
    if spec.command is None:
        base = untouched or UntouchedTree(folder=subject.folder, tree=subject.tree or snapshot(subject.folder))
        plan = _plant_for_pytest(spec, subject, base, layer=planted, is_untouched=is_untouched)
    else:
        assert spec.controls is not None, "the spec was checked"
        controls = _plant_files(spec.controls, reference, subject, layer=planted)
        plan = _Plan(controls=controls, is_untouched=is_untouched)
    report = None if spec.report is None or spec.report.startswith(OUT) else spec.report
    return Layout(
        over=(restored, planted),
        # A report that is already there says nothing about this run.
        removed=(*restoration.removed, *filter(None, [report])),
        keep_changes=report is not None,
        plan=plan,
    )


def _plant_for_pytest(
    spec: SuiteOptions, subject: Subject, base: UntouchedTree, *, layer: Path, is_untouched: bool
) -> _Plan:
    words = [_word() for _ in range(4)]
    file = _word()
    folder = _control_folder(spec.paths, subject.folder)
    control_file = str(PurePosixPath(folder, f"test_{file}.py"))
    _write(control_file, _CONTROLS.format(*words).encode(), layer=layer, like=subject.folder)
    settings, content = _find_settings(spec.paths, base)
    if content is not None:
        _write(settings, content, layer=layer, like=subject.folder)
    controls = _Controls(passing=(words[0], words[2]), failing=(words[1], words[3]), file=file, is_message_known=True)
    return _Plan(controls=controls, control_file=control_file, settings=settings, is_untouched=is_untouched)


def _plant_files(controls: ControlFiles, reference: ProbeReference, subject: Subject, *, layer: Path) -> _Controls:
    words = _word(), _word()
    for path, word in zip((controls.passing, controls.failing), words, strict=True):
        name = PurePosixPath(path).name.replace(CONTROL_TOKEN, word)
        content = reference.sources[path].replace(CONTROL_TOKEN.encode(), word.encode())
        _write(str(PurePosixPath(controls.into, name)), content, layer=layer, like=subject.folder)
    return _Controls(passing=(words[0],), failing=(words[1],), is_message_known=False)


def _word() -> str:
    """Return a random word that is part of a valid name in most languages."""
    return f"c{secrets.token_hex(8)}"


def _write(path: str, content: bytes, *, layer: Path, like: Path) -> None:
    make_parents(path, layer=layer, like=like)
    (layer / path).write_bytes(content)


def _control_folder(paths: Sequence[str], workspace: Path) -> str:
    """Return the folder of the first path: the control tests are reached by all that reaches the tests there."""
    top = workspace.resolve()
    found = [_path_of(path) for path in paths]
    first = next((path for path in found if (top / path).is_dir()), None)
    if first is None:
        first = str(PurePosixPath(found[0]).parent)
    # Without links: a folder of a layer hides a link to a folder.
    place = Path(os.path.realpath(top / first))
    return str(place.relative_to(top)) if place.is_relative_to(top) else first


def _path_of(argument: str) -> str:
    """
    >>> _path_of("tests/test_shop.py::test_total")
    'tests/test_shop.py'
    """
    return argument.partition("::")[0]


def _find_settings(paths: Sequence[str], base: UntouchedTree) -> tuple[str, bytes | None]:
    """Return the path of the settings that pytest would use in the untouched workspace, and what to write there.

    Files that hold only settings are restored, and nothing needs to be written. Of another file a copy is made beside
    it, because the mission may be to change it. Without settings an empty file is made at the top.
    """
    common = PurePosixPath(os.path.commonpath([_path_of(path) for path in paths]))
    for folder in (common, *common.parents):
        for name in (*PYTEST_FILES, *SHARED_FILES):
            content = read_untouched(str(folder / name), base)
            if content is not None and _has_settings(name, content):
                if name in PYTEST_FILES:
                    return str(folder / name), None
                return str(folder / f"{_word()}{PurePosixPath(name).suffix}"), content
    return f"{_word()}.ini", b""


def _has_settings(name: str, content: bytes) -> bool:
    """Return whether pytest takes its settings from this file.

    >>> [_has_settings("tox.ini", text) for text in (b"[tox]\\n", b"[tox]\\n[pytest]\\n")]
    [False, True]
    """
    match name:
        case "tox.ini":
            return re.search(rb"^\[pytest\]", content, re.MULTILINE) is not None
        case "setup.cfg":
            return re.search(rb"^\[tool:pytest\]", content, re.MULTILINE) is not None
        case "pyproject.toml":
            try:
                return "pytest" in tomllib.loads(content.decode()).get("tool", {})
            except (ValueError, AttributeError):
                return False
        case _:
            return True


# ── the run and its report ──


async def judge_suite(
    spec: SuiteOptions, workspace: ProbeWorkspace, find_wrong: FindWrong, *, records_states: bool = False
) -> Judgement:
    """Run the tests and judge their report. With `records_states` the row of the untouched workspace says how each of
    its tests ended, and other reports can only be judged with such a row."""
    argv, report = _command(spec, workspace.layout.plan, workspace)
    judgement, tests = await _run(spec, workspace, argv, report)
    if tests is not None:
        judgement = _judge_report(spec, workspace, judgement, tests, find_wrong, records_states=records_states)
    # What was added to the command means nothing to a reader, and the files that it names are gone.
    return replace(judgement, argv=spec.argv)


async def _run(
    spec: SuiteOptions, workspace: ProbeWorkspace, argv: tuple[str, ...], report: str
) -> tuple[Judgement, tuple[ReportedTest, ...] | None]:
    """Run the tests. Return the tests of their report; without one, None and the judgement about that."""
    missing = judge_missing(argv, workspace)
    if missing is not None:
        return missing, None
    for path in map(_path_of, spec.paths):
        if path != "." and workspace.view.find(path) is None:
            summary = f"{quoted(path)} is not in the workspace"
            return Judgement(verdict=Verdict.FAIL, summary=summary, argv=argv), None
    timeout_s = parse_duration_s(spec.timeout)
    try:
        finished = await workspace.run(argv, timeout_s=timeout_s)
    except MachineError as problem:
        at_fault = Fault.WORKSPACE if is_in_workspace(argv[0]) else Fault.MACHINE
        return Judgement(verdict=Verdict.UNAVAILABLE, summary=str(problem), argv=argv, fault=at_fault), None
    ended = describe_exit(finished, timeout_s=timeout_s)
    judgement = Judgement(verdict=Verdict.FAIL, summary=ended, argv=argv, finished=finished)
    if finished.timed_out:
        return judgement, None
    if finished.exit is None:
        return replace(judgement, verdict=Verdict.UNAVAILABLE, fault=Fault.MACHINE), None
    try:
        place = find_written(report, view=workspace.view, out=workspace.out)
        if place is None:
            raise ReportError("there is no report")
        tests = await anyio.to_thread.run_sync(read_report, place)
    except ReportError as problem:
        command = ["python", "-m", "pytest"] if spec.command is None else spec.command
        if (absent := find_missing(command, finished, has_tool=workspace.has_tool)) is not None:
            summary = f"{absent.name} is not on this machine"
            return replace(judgement, verdict=Verdict.UNAVAILABLE, fault=absent.fault, summary=summary), None
        return replace(judgement, summary=f"{ended}, and {problem}"), None
    return judgement, tests


def _command(spec: SuiteOptions, plan: _Plan, workspace: ProbeWorkspace) -> tuple[tuple[str, ...], str]:
    """Return the command line, and the path of the report in the workspace or below `{out}`."""
    out = str(workspace.out)
    if spec.command is None:
        options = (
            *("-c", plan.settings, f"--rootdir={PurePosixPath(plan.settings).parent}"),
            # Otherwise the control tests would not run, or nothing would run after them.
            *("--continue-on-collection-errors", "--maxfail=0"),
            *("-o", "junit_family=xunit2", f"--junitxml={out}/{_REPORT}"),
        )
        return (spec.python, "-c", _RUN_PYTEST, *options, *spec.paths, plan.control_file), f"{OUT}/{_REPORT}"
    assert spec.report is not None, "the spec was checked"
    return argv_of(replace_out(spec.command, out)), spec.report


def _judge_report(
    spec: SuiteOptions,
    workspace: ProbeWorkspace,
    judgement: Judgement,
    reported: Sequence[ReportedTest],
    find_wrong: FindWrong,
    *,
    records_states: bool,
) -> Judgement:
    plan: _Plan = workspace.layout.plan
    baseline = workspace.reference.baseline
    tests = [test for test in reported if not plan.controls.owns(test)]
    controls = plan.controls.judge(reported)
    is_comparable = len(tests) <= MAX_BASELINE_TESTS
    record = count_tests(
        tests,
        is_baseline=plan.is_untouched and is_comparable,
        # A mutant is laid over the untouched workspace too, but then there is a row of the workspace without it.
        has_states=records_states and plan.is_untouched and baseline is None and is_comparable,
    )
    judgement = replace(judgement, controls=controls, tests=record)
    unfit = _find_unfit(controls, judgement, is_pytest=spec.command is None)
    if unfit is not None and plan.is_untouched:
        # No agent has been here, so that settings of the tests keep the control tests from running.
        return replace(judgement, verdict=Verdict.UNAVAILABLE, fault=Fault.WORKSPACE, summary=unfit)
    if plan.is_untouched and not is_comparable:
        summary = f"the report has more than {MAX_BASELINE_TESTS:,} tests"
        return replace(judgement, verdict=Verdict.UNAVAILABLE, fault=Fault.WORKSPACE, summary=summary)
    if unfit is not None:
        return replace(judgement, summary=f"tampered: {unfit}")
    before = None if baseline is None else baseline.tests
    if records_states and before is None and not (plan.is_untouched and baseline is None):
        summary = "the tests of the untouched workspace are not known"
        return replace(judgement, verdict=Verdict.UNAVAILABLE, fault=Fault.MACHINE, summary=summary)
    wrong = find_wrong(tests, before=before)
    if wrong is not None:
        return replace(judgement, summary=wrong)
    if judgement.finished is not None and may_have_been_killed(judgement.finished):
        summary = f"{judgement.summary}, which the containment cannot distinguish from death by a signal"
        return replace(judgement, verdict=Verdict.UNAVAILABLE, fault=Fault.MACHINE, summary=summary)
    return replace(judgement, verdict=Verdict.PASS, summary=_describe(record))


def _describe(record: TestsRecord) -> str:
    failed = record.failed + record.errors
    others = [f"{count} {what}" for count, what in ((failed, "failed"), (record.skipped, "skipped")) if count]
    return ", ".join([f"{number_of_tests(record.passed)} passed", *others])


def _find_unfit(controls: ControlsRecord, judgement: Judgement, *, is_pytest: bool) -> str | None:
    """Return why the report cannot be believed; None if it can."""
    if not controls.failing_failed:
        return "a control test that fails is not reported as failed"
    if not controls.passing_passed:
        return "a control test that passes is not reported as passed"
    finished = judgement.finished
    if is_pytest and (finished is None or finished.exit is None or finished.exit.code != _TESTS_FAILED):
        return f"{judgement.summary} although a control test failed"
    return None


def count_tests(tests: Sequence[ReportedTest], *, is_baseline: bool, has_states: bool) -> TestsRecord:
    """Count the tests of a report. With `is_baseline` and `has_states`, others can be compared with them."""

    def count(state: TestState) -> int:
        return sum(test.state is state for test in tests)

    # pytest reports a file that cannot be imported as a test without a class.
    files = {hash_of(test) for test in tests if test.state is TestState.ERROR and not test.classname}
    ran = {hash_of(test) for test in tests if test.state is not TestState.SKIPPED} - files
    states = states_of(tests) if has_states else {}
    return TestsRecord(
        passed=count(TestState.PASSED),
        failed=count(TestState.FAILED),
        errors=count(TestState.ERROR),
        skipped=count(TestState.SKIPPED),
        ran=tuple(sorted(ran)) if is_baseline else (),
        not_imported=tuple(sorted(files)) if is_baseline else (),
        failed_tests=tuple(sorted(key for key, state in states.items() if state in BAD_STATES and key not in files)),
        skipped_tests=tuple(sorted(key for key, state in states.items() if state is TestState.SKIPPED)),
    )


def states_of(tests: Iterable[ReportedTest]) -> dict[str, TestState]:
    """Return how each test ended, by the hash of its name. If a name is reported more than once, the worst counts."""
    found: dict[str, TestState] = {}
    for test in tests:
        key = hash_of(test)
        found[key] = max(test.state, found.get(key, TestState.PASSED))
    return found


def hash_of(test: ReportedTest) -> str:
    """Return the hash by which a row of the untouched workspace names a test."""
    return hash_name(test.full_name)


def hash_name(name: str) -> str:
    """
    >>> hash_name("tests.test_shop::test_total")
    'a30ad9029c92'
    """
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARS]


def number_of_tests(count: int) -> str:
    """
    >>> number_of_tests(1), number_of_tests(2000)
    ('1 test', '2,000 tests')
    """
    return f"{count:,} test{'' if count == 1 else 's'}"


def list_tests(tests: Sequence[ReportedTest]) -> str:
    """Return the names of the first few tests, and how many more there are."""
    names = list(dict.fromkeys(test.full_name[:_NAME_CHARS] for test in tests))
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(quoted(name) for name in names[:_NAMED])}{more}"
