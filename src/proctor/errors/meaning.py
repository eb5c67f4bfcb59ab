"""The structure of one row of the error table."""

from dataclasses import dataclass
from enum import StrEnum


class Bucket(StrEnum):
    """The cause of a failure, and so who must act. Only `agent` and `gate` count against the agent."""

    AGENT = "agent"
    """The agent's own work. It counts against the agent."""

    INFRA = "infra"
    """This machine, the network or the provider."""

    QUOTA = "quota"
    """The account's rate limit, usage limit or plan."""

    AUTH = "auth"
    """A missing or rejected credential."""

    HARNESS = "harness"
    """The spec, the configuration or Proctor itself."""

    GATE = "gate"
    """A probe failed or a gate blocks. No attempt ends with a code of this bucket."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """One row of the error table."""

    means: str
    """What the code means, in one sentence."""

    todo: str
    """The action to take, in one or two sentences."""

    retryable: bool = False
    """Whether the same command can succeed without a change."""

    bucket: Bucket | None = None
    """The cause, if it differs from the default of the code's family; None for that default."""
