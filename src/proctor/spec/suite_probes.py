"""Structs of a spec: probes that run tests and read their JUnit report."""

from collections.abc import Iterator

from proctor.spec.argv import argv_of
from proctor.spec.criterion import Role
from proctor.spec.probe_options import OUT, KeyProblem, ProbeOptions, is_inside
from proctor.spec.struct import Command, Duration, Spec, Text, Texts


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


class SuiteOptions(ProbeOptions, frozen=True, kw_only=True):
    """Keys of probes that run tests and read their JUnit report: pytest on `paths`, or any `command`."""

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

    @property
    def argv(self) -> tuple[str, ...]:
        """
        >>> UnitTests(paths=["tests"]).argv
        ('python3', '-m', 'pytest', 'tests')
        """
        return (self.python, "-m", "pytest", *self.paths) if self.command is None else argv_of(self.command)

    @property
    def files(self) -> dict[str, str]:
        if self.controls is None:
            return super().files
        return super().files | {
            "controls.passing": self.controls.passing,
            "controls.failing": self.controls.failing,
        }

    def problems(self) -> Iterator[KeyProblem]:
        yield from super().problems()
        if self.command is None and not self.paths:
            suggestion = "Add `paths:` with the folder of the tests, or `command:`, `report:` and `controls:`."
            what = "it needs the key `paths` or `command`"
            yield KeyProblem("spec.missing-key", what, key="paths", suggestion=suggestion)
        is_pytest = self.command is None
        for name in () if is_pytest else ("report", "controls"):
            if getattr(self, name) is None:
                yield KeyProblem("spec.missing-key", f"`command` needs the key `{name}`", key=name)
        for name in ("report", "controls") if is_pytest else ("paths",):
            if getattr(self, name):
                other = "without" if is_pytest else "beside"
                what = f"`{name}` has no effect {other} `command`"
                yield KeyProblem("spec.unsupported", what, key=name, suggestion=f"Remove `{name}`.")
        yield from self._path_problems()

    def _path_problems(self) -> Iterator[KeyProblem]:
        for at, path in enumerate(self.paths):
            if path.startswith("-") or (path != "." and not is_inside(path.partition("::")[0])):
                what = f"`{path}` is not a path inside the workspace, such as `tests` or `tests/test_shop.py`"
                yield KeyProblem("spec.type", what, key=f"paths[{at}]")
        if self.report is not None and not is_inside(self.report.removeprefix(f"{OUT}/")):
            what = f"`{self.report}` is not a path inside the workspace or below `{OUT}/`"
            yield KeyProblem("spec.type", what, key="report", suggestion=f"Write `{OUT}/report.xml`.")
        into = None if self.controls is None else self.controls.into
        if into is not None and into != "." and not is_inside(into):
            what = f"`{into}` is not a folder inside the workspace, such as `tests`"
            yield KeyProblem("spec.type", what, key="controls.into")


class UnitTests(SuiteOptions, tag_field="kind", tag="unit_tests", frozen=True, kw_only=True):
    """A probe that passes if all tests do."""


class TestSuiteParity(SuiteOptions, tag_field="kind", tag="test_suite_parity", frozen=True, kw_only=True):
    """A probe that passes if every test of the untouched workspace still exists, and none newly fails or is newly
    skipped."""

    role: Role = Role.GUARD
    """`guard`: the probe shows that nothing else was broken. `goal`: it shows that the task is done. Default
    `guard`."""
