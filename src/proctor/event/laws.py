"""The grammar that every stream of events must follow, for all runtimes."""

from proctor.event.model import (
    CompactionBegan,
    CompactionEnded,
    Event,
    SessionBegan,
    StreamEnded,
    TextSaid,
    ThreadLeft,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    TurnEnded,
    UsageReported,
)
from proctor.ids import CallId, ItemId, TurnId


class Laws:
    """Check a stream of events against the grammar. Memory grows with the number of items, not of events."""

    def __init__(self) -> None:
        self._frame = -1
        self._begin_thread()

    def _begin_thread(self) -> None:
        """Forget the thread that the session has left: the ids and totals of another one begin anew."""
        self._has_session = False
        self._began: set[TurnId] = set()
        self._ended: set[TurnId] = set()
        self._calls: dict[CallId, bool] = {}
        self._said: set[ItemId] = set()
        self._total_tokens = 0
        self._is_compacting = False
        self._has_stream_ended = False

    def feed(self, event: Event) -> str | None:
        """Check the next event. Returns what is wrong with it, or None."""
        if event.frame < self._frame:
            return f"frame {event.frame} comes after frame {self._frame}"
        self._frame = event.frame
        match event:
            case ThreadLeft():
                self._begin_thread()
                return None
            case SessionBegan():
                broken = "a second session began" if self._has_session else None
                self._has_session = True
                return broken
            case TurnBegan(turn=turn):
                broken = f"turn {turn} began twice" if turn in self._began else None
                self._began.add(turn)
                return broken or self._after_end("a turn began")
            case TurnEnded(turn=turn):
                broken = f"turn {turn} ended twice" if turn in self._ended else None
                self._ended.add(turn)
                return broken or self._after_end("a turn ended")
            case ToolBegan(call=call):
                broken = f"call {call} began twice" if call in self._calls else None
                self._calls[call] = False
                return broken or self._after_end("a call began")
            case ToolEnded(call=call):
                broken = f"call {call} ended twice" if self._calls.get(call) else None
                self._calls[call] = True
                return broken or self._after_end("a call ended")
            case TextSaid(item=item):
                broken = f"message {item} was sent twice" if item in self._said else None
                self._said.add(item)
                return broken or self._after_end("a message was sent")
            case CompactionBegan():
                self._is_compacting = True
                return None
            case CompactionEnded():
                broken = None if self._is_compacting else "a compaction ended that had not begun"
                self._is_compacting = False
                return broken
            case UsageReported(basis="cumulative", tokens=tokens):
                broken = "the thread's total of tokens decreased" if tokens.total < self._total_tokens else None
                self._total_tokens = tokens.total
                return broken
            case StreamEnded():
                self._has_stream_ended = True
                return None
            case _:
                return None

    def _after_end(self, what: str) -> str | None:
        return f"{what} after the stream had ended" if self._has_stream_ended else None
