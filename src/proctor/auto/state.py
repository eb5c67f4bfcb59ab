"""The state of an auto run, as a fold of its rows. There is no other record of how far a run has come. Pure.

Which row may follow which:

| after | may follow |
|---|---|
| nothing | started |
| started | started, and what might have followed the row before it |
| asked | settled |
| settled | probed |
| probed | decided |
| decided | asked |
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from proctor.attempt.stopping import RoundFindings, StopReason, stop_early
from proctor.auto.model import (
    AnyAutoRow,
    AskKind,
    AutoBudget,
    AutoOutcome,
    RoundAsked,
    RoundDecided,
    RoundProbed,
    RoundSettled,
    RunStarted,
)
from proctor.auto.wall_clock import Moment, total_ms
from proctor.errors import Bucket, EvidenceError, bucket_of
from proctor.event.outcome import Outcome

_FOLLOWS: Final[dict[type, tuple[type, ...]]] = {
    RunStarted: (RoundAsked,),
    RoundAsked: (RoundSettled,),
    RoundSettled: (RoundProbed,),
    RoundProbed: (RoundDecided,),
    RoundDecided: (RoundAsked,),
}


@dataclass(slots=True, kw_only=True)
class Round:
    """One round, as far as it has come."""

    asked: RoundAsked
    settled: RoundSettled | None = None
    probed: RoundProbed | None = None
    decided: RoundDecided | None = None

    @property
    def has_completed(self) -> bool:
        """Whether the turn, if there was one, ended normally."""
        return self.settled is not None and self.settled.outcome is Outcome.COMPLETED

    @property
    def is_infrastructure(self) -> bool:
        """Whether something other than the agent ended the turn. A turn whose end is unknown is taken up again."""
        settled = self.settled
        if settled is None or settled.code is None or settled.outcome in (Outcome.COMPLETED, Outcome.UNKNOWN):
            return False
        return bucket_of(settled.code) is not Bucket.AGENT


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoUsage:
    """What a run has used so far."""

    rounds: int
    """Rounds in which the agent was asked."""
    tokens: int
    """Tokens of the turns whose tokens are known."""
    usd: float
    """Cost of the turns whose cost is known."""
    unknown_turns: int
    """Turns whose tokens are unknown, so that `tokens` is the least that was used."""
    wall_ms: int
    """Time since the run was started."""

    def exceeded(self, budget: AutoBudget) -> str | None:
        """Return the name of the first part of the budget that is used up; None if none is."""
        parts = (
            ("rounds", self.rounds, budget.rounds),
            ("tokens", self.tokens, budget.tokens),
            ("usd", self.usd, budget.usd),
            ("wall clock", self.wall_ms, budget.wall_ms),
        )
        return next((name for name, used, most in parts if most is not None and used >= most), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoEnd:
    """How a run ended, and why no further round began."""

    outcome: AutoOutcome
    stopped_by: StopReason | None = None
    """The policy that stopped it. None if it was not stopped early."""
    budget: str | None = None
    """The part of the budget that was used up. None if none was."""


@dataclass(slots=True, kw_only=True)
class AutoState:
    """How far a run has come."""

    first: RunStarted
    """The beginning of the run."""
    started: RunStarted
    """The last time that a process took it up."""
    rounds: list[Round] = field(default_factory=list)
    """The rounds, oldest first. Only the last may be open."""
    moments: list[Moment] = field(default_factory=list)
    """When each row was written."""
    resumed_after: int = 0
    """Number of rounds that were decided when a process last took the run up after its end."""
    end: AutoEnd | None = None
    """How it ended. None while it can go on."""

    @property
    def open_round(self) -> Round | None:
        """The round that is not decided; None between rounds."""
        last = self.rounds[-1] if self.rounds else None
        return last if last is not None and last.decided is None else None

    def usage(self, now: Moment | None = None) -> AutoUsage:
        """Return what the run has used, up to now or to its last row."""
        settled = [each.settled for each in self.rounds if each.settled is not None]
        asked = [each for each in settled if self.rounds[each.round - 1].asked.asks is not AskKind.NOTHING]
        return AutoUsage(
            rounds=sum(each.asked.asks is not AskKind.NOTHING for each in self.rounds),
            tokens=sum(each.tokens or 0 for each in asked),
            usd=sum(each.usd or 0 for each in asked),
            unknown_turns=sum(each.tokens is None for each in asked),
            wall_ms=total_ms([*self.moments, *(() if now is None else (now,))]),
        )


def fold_rows(rows: Iterable[AnyAutoRow], *, file: str = "rounds.jsonl") -> AutoState:
    """Fold all rows of a run. Raises EvidenceError, with the line, for a row that cannot follow those before it."""
    state: AutoState | None = None
    allowed: tuple[type, ...] = ()
    for line, row in enumerate(rows, start=1):
        if state is None:
            if not isinstance(row, RunStarted):
                raise EvidenceError("evidence.schema", "the first row is not `started`", file=file, line=line)
            state = AutoState(first=row, started=row)
        elif not isinstance(row, (RunStarted, *allowed)) or not _fits(row, state):
            what = "a row that cannot follow those before it"
            raise EvidenceError("evidence.schema", what, file=file, line=line)
        if not isinstance(row, RunStarted) or not allowed:
            allowed = _FOLLOWS[type(row)]
        _feed(state, row)
    if state is None:
        raise EvidenceError("evidence.schema", "it has no rows", file=file)
    return state


def _fits(row: AnyAutoRow, state: AutoState) -> bool:
    """Return whether a row is of the round that is open, or begins the next one, of a run that is not over."""
    match row:
        case RunStarted():
            same = ("goal_sha256", "criteria_sha256", "criteria_by", "required_probes", "base_digest")
            return all(getattr(row, name) == getattr(state.first, name) for name in same)
        case RoundAsked():
            return state.end is None and row.round == len(state.rounds) + 1
        case RoundSettled() | RoundProbed() | RoundDecided():
            return row.round == len(state.rounds)


def _feed(state: AutoState, row: AnyAutoRow) -> None:
    state.moments.append(row.at)
    match row:
        case RunStarted():
            state.started = row
            if state.end is not None and state.end.outcome is not AutoOutcome.VERIFIED:
                state.end, state.resumed_after = None, len(state.rounds)
        case RoundAsked():
            state.rounds.append(Round(asked=row))
        case RoundSettled():
            state.rounds[-1].settled = row
        case RoundProbed():
            state.rounds[-1].probed = row
        case RoundDecided():
            state.rounds[-1].decided = row
            state.end = _find_end(state, row)


def _find_end(state: AutoState, decided: RoundDecided) -> AutoEnd | None:
    """Return how the run ended with the round that was decided; None if another round may begin."""
    last = state.rounds[-1]
    if decided.verified and last.has_completed:
        return AutoEnd(outcome=AutoOutcome.VERIFIED)
    if last.is_infrastructure:
        return AutoEnd(outcome=AutoOutcome.INFRASTRUCTURE)
    if (budget := state.usage().exceeded(state.started.budget)) is not None:
        return AutoEnd(outcome=AutoOutcome.OUT_OF_BUDGET, budget=budget)
    if (reason := stop_early(_findings(state.rounds[state.resumed_after :]))) is not None:
        outcomes = {True: AutoOutcome.FAILED, False: AutoOutcome.BLOCKED, None: AutoOutcome.UNVERIFIED}
        return AutoEnd(outcome=outcomes[decided.verified], stopped_by=reason)
    return None


def _findings(rounds: Sequence[Round]) -> list[RoundFindings]:
    # A round that only looked, or was interrupted, says nothing about whether another one helps.
    return [
        RoundFindings(findings=each.decided.findings, met=each.decided.met)
        for each in rounds
        if each.decided is not None
        and each.asked.asks is not AskKind.NOTHING
        and each.settled is not None
        and each.settled.outcome is not Outcome.UNKNOWN
    ]
