"""Structs of a spec: the kinds of probe."""

from proctor.spec.probe_options import ExitCode, ProbeOptions
from proctor.spec.struct import Command, Duration, Spec, Text, Texts


class HeadlessRun(ProbeOptions, tag_field="kind", tag="headless_run", frozen=True, kw_only=True):
    """A probe that runs a command in a view of the workspace."""

    command: Command
    """The command: a list is argv, a string is run with `bash -c`."""

    stdout: str | None = None
    """Standard output that passes, compared byte for byte. Default: not compared."""

    exit: ExitCode = 0
    """Exit status that passes, 0 to 255. Default 0."""

    timeout: Duration = "30s"
    """Longest duration; the probe fails after it. Default 30 s."""


class ControlFiles(Spec, frozen=True, kw_only=True):
    """`controls`: two test files that show whether the command reports what happened."""

    passing: Text
    """Path of a file with a test that passes, relative to the spec's folder. The test's name contains
    `PROCTOR_TOKEN`."""

    failing: Text
    """Path of a file with a test that fails, relative to the spec's folder. The test's name contains
    `PROCTOR_TOKEN`."""

    into: Text
    """Folder of the workspace in which the command finds both files; `.` is the workspace itself."""


class UnitTests(ProbeOptions, tag_field="kind", tag="unit_tests", frozen=True, kw_only=True):
    """A probe that runs tests and reads their JUnit report: pytest on `paths`, or any `command`."""

    paths: Texts = []
    """Files and folders of tests for pytest, relative to the workspace. Default: none; then `command` is required."""

    python: Text = "python3"
    """The Python that runs pytest. Default `python3`."""

    command: Command | None = None
    """A command in place of pytest: a list is argv, a string is run with `bash -c`. `{out}` is the probe's own folder
    for its report. Default: none."""

    report: Text | None = None
    """Path of the JUnit report that the command writes, relative to the workspace or below `{out}`; required with
    `command`."""

    controls: ControlFiles | None = None
    """The two control tests; required with `command`. For pytest, Proctor writes them itself."""

    timeout: Duration = "5m"
    """Longest duration; the probe fails after it. Default 5 minutes."""
