"""The probe kind `unit_tests`: all tests pass, and none is skipped or missing that ran on the untouched workspace."""

from collections.abc import Sequence

from proctor.probe.junit import ReportedTest, TestState
from proctor.probe.kind import Judgement, ProbeWorkspace
from proctor.probe.model import TestsRecord
from proctor.probe.suite_run import BAD_STATES, hash_of, judge_suite, list_tests, number_of_tests
from proctor.spec.suite_probes import UnitTests


async def judge(spec: UnitTests, workspace: ProbeWorkspace) -> Judgement:
    """Run the tests and judge their report."""
    return await judge_suite(spec, workspace, find_wrong)


def find_wrong(tests: Sequence[ReportedTest], *, before: TestsRecord | None) -> str | None:
    """Return what the report says against the workspace; None if nothing. `before` is that of the untouched one."""
    if not tests:
        return "the report contains no test"
    bad = [test for test in tests if test.state in BAD_STATES]
    if bad:
        return f"{len(bad)} of {number_of_tests(len(tests))} failed: {list_tests(bad)}"
    skipped = [test for test in tests if test.state is TestState.SKIPPED]
    ran = set() if before is None else {*before.ran, *before.not_imported}
    lost = [test for test in skipped if hash_of(test) in ran]
    if lost:
        return f"{number_of_tests(len(lost))} skipped that ran on the untouched workspace: {list_tests(lost)}"
    if len(skipped) == len(tests):
        return f"{number_of_tests(len(skipped))} skipped and none passed: {list_tests(skipped)}"
    # Once a file can be imported, its tests are reported in its place.
    absent = set() if before is None else {*before.ran} - {hash_of(test) for test in tests}
    if absent:
        return f"{number_of_tests(len(absent))} missing in the report that ran on the untouched workspace"
    return None
