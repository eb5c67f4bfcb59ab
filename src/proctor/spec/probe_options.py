"""Structs of a spec: what all kinds of probe share."""

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta

from proctor.spec.fence import Contain, Network
from proctor.spec.struct import Spec, Text

OUT: Final = "{out}"
"""In the command and the report of a probe, the probe's own folder for what it writes outside its view."""
CONTROL_TOKEN: Final = "PROCTOR_TOKEN"  # noqa: S105
"""In a control file and its name, replaced by a random word that the report must contain."""
MAX_RUNS: Final = 20

ExitCode = Annotated[int, Meta(ge=0, le=255)]


class Role(StrEnum):
    """What a probe says about the mission."""

    GOAL = "goal"
    """The task is done. It fails on the untouched workspace, and passes when the agent is done."""

    GUARD = "guard"
    """Nothing else was broken. It passes on the untouched workspace, and must still pass when the agent is done."""


class RepeatSpec(Spec, frozen=True, kw_only=True):
    """`repeat`: run a probe several times, for a check that sometimes fails by chance."""

    runs: Annotated[int, Meta(ge=2, le=MAX_RUNS)]
    """How often the probe is run, 2 to 20. Every run is recorded."""

    need: Annotated[int, Meta(ge=1, le=MAX_RUNS)]
    """How many of the runs must pass for the probe to pass."""


class ProbeOptions(Spec, frozen=True, kw_only=True):
    """Keys that all kinds of probe share."""

    contain: Contain = Contain.FENCED
    """Whether the probe is fenced. Default `fenced`."""

    network: Network = Network.NONE
    """What a fenced probe can reach. Default `none`: it has only a private loopback."""

    role: Role = Role.GOAL
    """`goal`: the probe shows that the task is done. `guard`: it shows that nothing else was broken. Default `goal`."""

    mutant: Text | None = None
    """Path of a patch that breaks what a guard protects, relative to the spec's folder. A guard counts only if it fails
    on the untouched workspace with this patch. Default: none."""

    criterion: Text | None = None
    """What the probe shows, in words. Probes with the same criterion decide it together. Default: one for this
    probe."""

    repeat: RepeatSpec | None = None
    """Run the probe several times and require a number of passes. Default: it runs once."""


class WaiverSpec(Spec, frozen=True, kw_only=True):
    """A criterion that is not required this time. The mission can then not be verified."""

    criterion: Text
    """The criterion, as a probe of the mission states it."""

    by: Text
    """Who waives it."""

    why: Text
    """Why."""
