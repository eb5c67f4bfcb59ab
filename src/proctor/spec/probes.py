"""Structs of a spec: the kinds of probe, and what they share."""

from enum import StrEnum
from typing import Annotated, TypeAlias

from msgspec import Meta

from proctor.spec.fence import Contain, Network
from proctor.spec.struct import Command, Duration, Spec, Text


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


ProbeSpec: TypeAlias = HeadlessRun
"""The union of all kinds of probe, distinguished by `kind`."""


class WaiverSpec(Spec, frozen=True, kw_only=True):
    """A criterion that is not required this time. The mission can then not be verified."""

    criterion: Text
    """The criterion, as a probe of the mission states it."""

    by: Text
    """Who waives it."""

    why: Text
    """Why."""
