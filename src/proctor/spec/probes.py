"""The union of all kinds of probe, and what can be read from any of them."""

from typing import TypeAlias

from proctor.spec.argv import argv_of
from proctor.spec.probe_kinds import HeadlessRun, UnitTests

ProbeSpec: TypeAlias = HeadlessRun | UnitTests
"""The union of all kinds of probe, distinguished by `kind`."""


def command_of(probe: ProbeSpec) -> tuple[str, ...]:
    """Return the command line of a probe, as its spec has it.

    >>> command_of(UnitTests(paths=["tests"]))
    ('python3', '-m', 'pytest', 'tests')
    """
    if probe.command is not None:
        return argv_of(probe.command)
    return (probe.python, "-m", "pytest", *probe.paths)


def files_of(probe: ProbeSpec) -> dict[str, str]:
    """Return the paths of the spec's files that a probe names, by their key in the probe.

    >>> files_of(HeadlessRun(command="make test", mutant="broken.patch"))
    {'mutant': 'broken.patch'}
    """
    files = {} if probe.mutant is None else {"mutant": probe.mutant}
    if isinstance(probe, UnitTests) and probe.controls is not None:
        files |= {"controls.passing": probe.controls.passing, "controls.failing": probe.controls.failing}
    return files
