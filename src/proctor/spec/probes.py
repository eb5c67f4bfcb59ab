"""Structs of a spec: the kinds of probe, and what they share."""

from typing import Annotated, TypeAlias

from msgspec import Meta

from proctor.spec.fence import Contain, Network
from proctor.spec.struct import Command, Duration, Spec


class ProbeOptions(Spec, frozen=True, kw_only=True):
    """Keys that all kinds of probe share."""

    contain: Contain = Contain.FENCED
    """Whether the probe is fenced. Default `fenced`."""

    network: Network = Network.NONE
    """What a fenced probe can reach. Default `none`."""


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
