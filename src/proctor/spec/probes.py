"""Structs of a spec: the kinds of probe, and what they share."""

from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from proctor.spec.argv import argv_of
from proctor.spec.fence import Contain, Network
from proctor.spec.struct import Command, Duration, Spec, Text, Texts

OUT: Final = "{out}"
"""In the command and the report of a probe, the probe's own folder for what it writes outside its view."""
CONTROL_TOKEN: Final = "PROCTOR_TOKEN"  # noqa: S105
"""In a control file and its name, replaced by a random word that the report must contain."""


class Role(StrEnum):
    """What a probe says about the mission."""

    GOAL = "goal"
    """The task is done. It fails on the untouched workspace, and passes when the agent is done."""

    GUARD = "guard"
    """Nothing else was broken. It passes on the untouched workspace, and must still pass when the agent is done."""


class ProbeOptions(Spec, frozen=True, kw_only=True):
    """Keys that all kinds of probe share."""

    contain: Contain = Contain.FENCED
    """Whether the probe is fenced. Default `fenced`."""

    network: Network = Network.NONE
    """What a fenced probe can reach. Default `none`."""

    role: Role = Role.GOAL
    """`goal`: the probe shows that the task is done. `guard`: it shows that nothing else was broken. Default `goal`."""

    mutant: Text | None = None
    """Path of a patch that breaks what a guard protects, relative to the spec's folder. A guard counts only if it fails
    on the untouched workspace with this patch. Default: none."""

    criterion: Text | None = None
    """What the probe shows, in words. Probes with the same criterion decide it together. Default: one for this
    probe."""


class HeadlessRun(ProbeOptions, tag_field="kind", tag="headless_run", frozen=True, kw_only=True):
    """A probe that runs a command in a copy of the workspace."""

    command: Command
    """The command: a list is argv, a string is run with `bash -c`."""

    stdout: str | None = None
    """Standard output that passes, compared byte for byte. Default: not compared."""

    exit: Annotated[int, Meta(ge=0, le=255)] = 0
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


ProbeSpec: TypeAlias = HeadlessRun | UnitTests
"""The union of all kinds of probe, distinguished by `kind`."""


class WaiverSpec(Spec, frozen=True, kw_only=True):
    """A criterion that is not required this time. The mission can then not be verified."""

    criterion: Text
    """The criterion, as a probe of the mission states it."""

    by: Text
    """Who waives it."""

    why: Text
    """Why."""


def command_of(probe: ProbeSpec) -> tuple[str, ...]:
    """Return the command line of a probe, as its spec has it.

    >>> command_of(UnitTests(paths=["tests"]))
    ('python3', '-m', 'pytest', 'tests')
    """
    if probe.command is not None:
        return argv_of(probe.command)
    return (probe.python, "-m", "pytest", *probe.paths)


def files_of(probe: ProbeSpec) -> tuple[str, ...]:
    """Return the paths of the files that a probe names, as its spec has them.

    >>> files_of(HeadlessRun(command="make test", role=Role.GUARD, mutant="broken.patch"))
    ('broken.patch',)
    """
    controls = probe.controls if isinstance(probe, UnitTests) else None
    mutant = () if probe.mutant is None else (probe.mutant,)
    return mutant if controls is None else (*mutant, controls.passing, controls.failing)
