"""Fold the events of a turn into what its context engine did. Pure."""

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
    TurnBegan,
)

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
                self.context = _context_of(event)
            case ContextDegraded(code=code, detail=detail) if self.context is not None:
                self.context = replace(self.context, degraded=f"{detail} ({code})")
            case ThreadLeft() if self.context is not None:
                # What it was given in this turn is lost with it.
                self.context, self._is_unseen = replace(self.context, given=0, how="none"), False
            case HistoryGiven(entries=entries) if entries:
                self._is_unseen = True
                self._given(len(entries), "items")
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
                self._given(self._offered, "text")
                self._offered = 0
            case _:
                pass

    def _given(self, count: int, how: str) -> None:
        if self.context is not None:
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
        assembled=event.assembled,
        dropped=event.dropped,
        placeholders=event.placeholders,
        estimated_tokens=event.estimated_tokens,
        bytes_per_token=event.bytes_per_token,
    )
