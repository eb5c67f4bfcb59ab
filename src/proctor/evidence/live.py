"""live.json: what a running campaign is at now, for whoever looks from outside. No evidence, and gone at its end."""

from typing import Literal

import msgspec

from proctor.ids import AttemptId, RunId


class LiveAttempt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One that runs: its phase, what it does, what it has used as far as that is told."""

    attempt_id: AttemptId
    phase: str
    doing: str
    tokens: int | None
    usd: float | None
    began_at_ms: int
    heard_at_ms: int


class LiveLimit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that is rationed: how much of it there is now and at most, how much of it is taken.

    `until_ms` is when it opens again, where it is shut, and `why` what shut it.
    """

    key: str  # "all", "strategy:codex_app_server", "provider:openai", "credential:…"
    most: int
    now: int
    taken: int
    until_ms: int | None = None
    why: str | None = None


class Live(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A picture of the run, taken at a time. `usd` is what its ended attempts cost, where that is known of each."""

    schema_version: Literal[1] = 1
    at_ms: int
    run_id: RunId
    cells: int
    settled: int
    waiting: int
    retrying: int = 0  # cells that are tried again later, and when the first of them is
    retry_at_ms: int | None = None
    usd: float | None = None
    running: tuple[LiveAttempt, ...] = ()
    limits: tuple[LiveLimit, ...] = ()
    stopping: str | None = None
