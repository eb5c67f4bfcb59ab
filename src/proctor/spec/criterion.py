"""What a probe shows about a mission, and what need not be shown. Evidence records both."""

from enum import StrEnum

from proctor.spec.struct import Spec, Text


class Role(StrEnum):
    """What a probe says about the mission."""

    GOAL = "goal"
    """The task is done. It fails on the untouched workspace, and passes when the agent is done."""

    GUARD = "guard"
    """Nothing else was broken. It passes on the untouched workspace, and must still pass when the agent is done."""


class WaiverSpec(Spec, frozen=True, kw_only=True):
    """A criterion that is not required this time. The mission can then not be verified."""

    criterion: Text
    """The criterion, as a probe of the mission states it."""

    by: Text
    """Who waives it."""

    why: Text
    """Why."""
