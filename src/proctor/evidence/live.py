"""live.json: the current state of a running campaign. It is not evidence, and is deleted when the run ends."""

from typing import Literal

import msgspec

from proctor.ids import AttemptId, RunId


class LiveAttempt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An attempt that is running."""

    attempt_id: AttemptId
    """Id of the attempt."""
    phase: str
    """State of the attempt, in words for people."""
    doing: str
    """The last tool call, as `name: summary`. Empty before the first."""
    tokens: int | None
    """Tokens used so far. Null if the agent has not reported any."""
    usd: float | None
    """Cost of those tokens in US dollars. Null if the price is not known."""
    began_at_ms: int
    """Wall-clock time when the attempt was first seen, in milliseconds since the epoch."""
    heard_at_ms: int
    """Wall-clock time of its last state change or event, in milliseconds since the epoch."""


class LiveLimit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A limit on parallel attempts, as it is now."""

    key: str
    """What is limited: `all`, `runtime:<id>`, `provider:<name>` or `credential:<name>`."""
    maximum: int
    """Configured maximum of parallel attempts."""
    current_maximum: int
    """Current maximum. Lower than `maximum` after a provider refused requests."""
    taken: int
    """Number of attempts that count against the limit now."""
    until_ms: int | None = None
    """Wall-clock time until which no attempt may start, in milliseconds since the epoch. Null if one may start now."""
    why: str | None = None
    """Why the limit was lowered or closed. Null if it was not."""


class Live(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """State of one run at one moment."""

    schema_version: Literal[1] = 1
    """Version of the file format. Always 1."""
    at_ms: int
    """Wall-clock time of this state, in milliseconds since the epoch."""
    run_id: RunId
    """Id of the run."""
    trials: int
    """Number of trials in the campaign."""
    settled: int
    """Number of trials that need no further attempt, those of earlier runs included."""
    waiting: int
    """Number of attempts that are queued."""
    retrying: int = 0
    """Number of trials that wait for a retry."""
    retry_at_ms: int | None = None
    """Wall-clock time of the first retry, in milliseconds since the epoch. Null if no trial waits for one."""
    usd: float | None = None
    """Cost in US dollars of the attempts that ended in this run. Null if none has ended or the cost of one is not
    known."""
    running: tuple[LiveAttempt, ...] = ()
    """The attempts that are running."""
    limits: tuple[LiveLimit, ...] = ()
    """The limits that are configured, or that a refusal has created."""
    stopping: str | None = None
    """How the run is being stopped. Null if it is not."""
