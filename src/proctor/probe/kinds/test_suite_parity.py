"""The probe kind `test_suite_parity`: no test of the untouched workspace is lost, newly fails or is newly skipped."""

from collections.abc import Sequence

from proctor.probe.junit import ReportedTest, TestState
from proctor.probe.kind import Judgement, ProbeWorkspace
from proctor.probe.model import TestsRecord
from proctor.probe.suite_run import (
    BAD_STATES,
    hash_name,
    hash_of,
    judge_suite,
    list_tests,
    number_of_tests,
    states_of,
)
from proctor.spec.suite_probes import TestSuiteParity


async def judge(spec: TestSuiteParity, workspace: ProbeWorkspace) -> Judgement:
    """Run the tests and compare each with how it ended on the untouched workspace."""
    return await judge_suite(spec, workspace, find_wrong, records_states=True)


def find_wrong(tests: Sequence[ReportedTest], *, before: TestsRecord | None) -> str | None:
    """Return what changed for the worse since the untouched workspace; None if nothing did.

    Without `before` this is the untouched workspace, in which a test must pass. Tests that were added do not count: the
    probe is about those that were there.
    """
    if before is None:
        is_any_passed = any(test.state is TestState.PASSED for test in tests)
        return None if is_any_passed else f"none of {number_of_tests(len(tests))} passed"
    states = states_of(tests)
    failed = {*before.failed_tests, *before.not_imported}
    ran, skipped = {*before.ran, *before.not_imported}, {*before.skipped_tests}
    worse = [test for test in tests if test.state in BAD_STATES and hash_of(test) in (ran | skipped) - failed]
    if worse:
        return f"{number_of_tests(len({*map(hash_of, worse)}))} newly failed: {list_tests(worse)}"
    lost = [test for test in tests if states[hash_of(test)] is TestState.SKIPPED and hash_of(test) in ran - skipped]
    if lost:
        return f"{number_of_tests(len({*map(hash_of, lost)}))} newly skipped: {list_tests(lost)}"
    absent = (ran | skipped) - {*states} - {key for test in tests for key in _places_of(test)}
    if absent:
        return f"{number_of_tests(len(absent))} of the untouched workspace missing in the report"
    return None


def _places_of(test: ReportedTest) -> list[str]:
    """Return the hashes of the file and the classes that contain a test.

    pytest reports a file that it cannot import, or skips, as a test without a class. Once the file can be used, its
    tests are reported in its place.
    """
    parts = test.classname.split(".")
    return [hash_name(".".join(parts[: end + 1])) for end in range(len(parts))]
