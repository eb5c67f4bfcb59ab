"""The union of all kinds of probe."""

from typing import TypeAlias

from proctor.spec.command_probes import HeadlessRun
from proctor.spec.suite_probes import TestSuiteParity, UnitTests

ProbeSpec: TypeAlias = HeadlessRun | UnitTests | TestSuiteParity
"""The union of all kinds of probe, distinguished by `kind`."""
