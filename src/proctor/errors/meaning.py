"""What the table of codes says of one: its meaning, whose matter it is, and what to do."""

from dataclasses import dataclass
from enum import StrEnum


class Bucket(StrEnum):
    """Whose matter a failure is. Only the agent's own, and what a gate says, are about the agent."""

    AGENT = "agent"
    INFRA = "infra"
    QUOTA = "quota"
    AUTH = "auth"
    HARNESS = "harness"
    GATE = "gate"


@dataclass(frozen=True, slots=True)
class Meaning:
    """One row of the table: what a code means, whether trying again can help, and what to do.

    `bucket` is given where it is not that of the code's family.
    """

    means: str
    todo: str
    retryable: bool = False
    bucket: Bucket | None = None
