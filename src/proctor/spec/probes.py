"""The union of all kinds of probe."""

from typing import TypeAlias

from proctor.spec.command_probes import HeadlessRun, ImportSmoke, OutputFixtureDiff, StdoutGolden
from proctor.spec.suite_probes import TestSuiteParity, UnitTests
from proctor.spec.trace_probes import SimTrace

ProbeSpec: TypeAlias = (
    HeadlessRun
    | ImportSmoke
    | OutputFixtureDiff
    | SimTrace
    | StdoutGolden
    | TestSuiteParity
    | UnitTests
)
"""The union of all kinds of probe, distinguished by `kind`."""
