"""Fold events into what the context engine did: for one turn, and for all turns of a sitting. Pure."""

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from proctor.context.model import TurnContext
from proctor.event.model import (
    CompactionEnded,
    ContextAssembled,
    ContextDegraded,
    Event,
    HistoryGiven,
    HistoryOffered,
    ReasoningSaid,
    ReasoningStreamed,
    TextSaid,
    TextStreamed,
    ThreadLeft,
    ToolBegan,
    TurnAsked,
    TurnBegan,
    TurnCommitted,
    TurnSettled,
)
from proctor.event.row import CommitStatus
from proctor.fact import Authority, Fact
from proctor.ids import AttemptId, EntryId, RunId

CONTEXT_FACT: Final = "context"

_STATUSES: Final[tuple[CommitStatus, ...]] = ("blocked", "queued", "committed", "none")

_WITHOUT_ENGINE: Final = (TurnAsked, TurnSettled, TurnCommitted, ContextAssembled)
"""Events that count before an engine was asked in a turn, which most turns have none of."""

LOST = "context lost to native compaction"
"""The agent shortened its thread after it was given the context, and before the model saw it."""


class ContextFold:
    """Folds the events of one turn, fed in order. `context` is None if no engine took part."""

    def __init__(self) -> None:
        self.context: TurnContext | None = None
        self._offered = 0
        self._is_unseen = False

    def feed(self, event: Event) -> None:
        match event:
            case ContextAssembled():
                self._note_choice(event)
            case ContextDegraded(code=code, detail=detail) if self.context is not None:
                self.context = replace(self.context, degraded=f"{detail} ({code})")
            case ThreadLeft() if self.context is not None:
                # What it was given in this turn is lost with it.
                self.context = replace(self.context, given=0, how="none", is_addition_given=False)
                self._is_unseen = False
            case HistoryGiven(how="items"):
                self._is_unseen = self._is_unseen or bool(event.entries) or event.instructions_sha256 is not None
                self._note_given(len(event.entries), "items")
                if event.instructions_sha256 is not None and self.context is not None:
                    self.context = replace(self.context, is_addition_given=True)
            case HistoryGiven(how="text"):
                # The agent refused the prompt with what was quoted in it.
                self._offered = 0
            case TextSaid() | TextStreamed() | ReasoningSaid() | ReasoningStreamed() | ToolBegan():
                self._is_unseen = False
            case CompactionEnded(ok=ok) if self._is_unseen and ok is not False and self.context is not None:
                self.context = replace(self.context, degraded=LOST)
            case HistoryOffered(how="text", entries=entries, sha256=sha256):
                self._offered = len(entries)
                if sha256 is not None and self.context is not None and self.context.sha256 is not None:
                    # After refused items, the text differs from what was to be given.
                    self.context = replace(self.context, sha256=sha256)
            case TurnBegan() if self._offered:
                # The agent took the prompt, and with it the quoted messages.
                self._note_given(self._offered, "text")
                self._offered = 0
            case _:
                pass

    def _note_choice(self, event: ContextAssembled) -> None:
        before, self.context = self.context, _context_of(event)
        if before is not None and event.thread == "resume":
            # The same turn in another form, on the thread that is open already.
            self.context = replace(
                self.context,
                thread=before.thread,
                reason=before.reason,
                given=before.given,
                is_addition_given=before.is_addition_given,
                degraded=before.degraded,
            )

    def _note_given(self, count: int, how: str) -> None:
        if self.context is not None and count:
            self.context = replace(
                self.context, given=self.context.given + count, how="items" if how == "items" else "text"
            )


def _context_of(event: ContextAssembled) -> TurnContext:
    return TurnContext(
        engine=event.engine,
        version=event.version,
        commits=event.commits,
        policy=event.policy,
        mode=event.mode,
        thread=event.thread,
        reason=event.reason,
        how="none",
        why_text=event.why_text,
        sha256=event.sha256,
        addition_sha256=event.addition_sha256,
        assembled=event.assembled,
        dropped=event.dropped,
        placeholders=event.placeholders,
        estimated_tokens=event.estimated_tokens,
        bytes_per_token=event.bytes_per_token,
        ratio_source=event.ratio_source,
    )


class ContextFactFold:
    """Folds the events of a sitting into the fact `context`, and into what its seal says of commits."""

    def __init__(self, *, run_id: RunId | None, attempt_id: AttemptId) -> None:
        self._place = f"{run_id}/{attempt_id}"
        self._turn: ContextFold | None = None
        self._asked: EntryId | None = None
        self._contexts: dict[EntryId, TurnContext] = {}
        self._commits: dict[EntryId, TurnCommitted] = {}

    def feed(self, event: Event) -> None:
        if self._turn is None and not isinstance(event, _WITHOUT_ENGINE):
            return
        match event:
            case TurnAsked(frame=frame):
                self._turn, self._asked = None, EntryId(f"{self._place}#{frame}")
            case TurnSettled():
                self._asked = None
            case TurnCommitted(turn=turn):
                self._commits[turn] = event
            case ContextAssembled():
                self._turn = self._turn or ContextFold()
                self._feed_turn(self._turn, event)
            case _ if self._turn is not None:
                self._feed_turn(self._turn, event)
            case _:
                pass

    def _feed_turn(self, turn: ContextFold, event: Event) -> None:
        if self._asked is not None:
            turn.feed(event)
            if turn.context is not None:
                self._contexts[self._asked] = turn.context

    def fact(self) -> Fact | None:
        """Return the fact. None if no engine took part in a turn."""
        if not self._contexts:
            return None
        turns = {turn: self._committed(turn) for turn in self._contexts}
        newest = next(reversed(turns))
        value: dict[str, Any] = {
            **_fields(turns[newest]),
            "turns": len(turns),
            "degradedTurns": sum(each.degraded is not None for each in turns.values()),
            "turnCommits": {status: count for status in _STATUSES if (count := self._count(status))},
        }
        return Fact(
            value=value,
            authority=Authority.OBSERVED,
            source="what the context engine was asked, and what the agent accepted",
            refs=(f"frames.jsonl:{newest.rpartition('#')[2]}",),
        )

    @property
    def commit(self) -> CommitStatus | None:
        """What is known of the commits of all turns, the worst first. None if no engine took part in a turn."""
        if not self._contexts:
            return None
        return next((status for status in _STATUSES if self._count(status)), "none")

    @property
    def degraded(self) -> str | None:
        """Why the engine did not apply to a turn, the last time that it did not. None if it always did."""
        reasons = (context.degraded for context in reversed(self._contexts.values()))
        return next((reason for reason in reasons if reason is not None), None)

    def _count(self, status: CommitStatus) -> int:
        return sum(self._committed(turn).commit == status for turn in self._contexts)

    def _committed(self, turn: EntryId) -> TurnContext:
        context, commit = self._contexts[turn], self._commits.get(turn)
        return context if commit is None else replace(context, commit=commit.status, commit_detail=commit.detail)


def _fields(context: TurnContext) -> dict[str, Any]:
    """Return every field under its name on disk, also those with their default."""
    fields = msgspec.structs.fields(TurnContext)
    return {field.encode_name: msgspec.to_builtins(getattr(context, field.name)) for field in fields}
