"""The union of all kinds of probe."""

from typing import TypeAlias

from proctor.spec.command_probes import HeadlessRun, ImportSmoke, OutputFixtureDiff, StdoutGolden
from proctor.spec.page_probes import BrowserSmoke, RenderHash
from proctor.spec.service_probes import ApiSmoke, SideEffect
from proctor.spec.suite_probes import TestSuiteParity, UnitTests
from proctor.spec.trace_probes import SimTrace

ProbeSpec: TypeAlias = (
    ApiSmoke
    | BrowserSmoke
    | HeadlessRun
    | ImportSmoke
    | OutputFixtureDiff
    | RenderHash
    | SideEffect
    | SimTrace
    | StdoutGolden
    | TestSuiteParity
    | UnitTests
)
"""The union of all kinds of probe, distinguished by `kind`."""
