"""Follow the compactions of one thread: who requested them, and the tokens in the context. Pure."""

from collections.abc import Iterator

from proctor.event.model import CompactionBegan, CompactionEnded, CompactionTrigger, Event, TurnEnded
from proctor.runtime.codex.compaction import KEPT_TOKENS
from proctor.runtime.codex_app_server import wire


class Compactions:
    """The state of the compactions of one thread. One runs at a time."""

    def __init__(self) -> None:
        self._is_requested = self._is_running = self._lacks_beginning = False
        self._in_context: int | None = None
        self._before: int | None = None
        self._after: int | None = None

    def heard_request(self, method: str) -> None:
        """Note a request to the agent. A compaction in a turn that a prompt began was not requested."""
        if method in (wire.COMPACT, wire.START_TURN):
            self._is_requested = method == wire.COMPACT

    def heard_usage(self, last: wire.Breakdown) -> None:
        """Note the tokens in the context."""
        self._in_context = last.total_tokens
        if self._is_running:
            # The request for the summary has input. Only the count of what is left has none.
            is_recount = not last.input_tokens and not last.output_tokens
            self._after = last.total_tokens if is_recount else None

    def changed(self, *, is_over: bool, frame: int, at_ms: int) -> CompactionBegan | CompactionEnded:
        """Return the event of a compaction's first or last frame."""
        if not is_over:
            self._is_running, self._before, self._after = True, self._in_context, None
            return CompactionBegan(trigger=self._trigger, frame=frame, at_ms=at_ms)
        self._lacks_beginning = not self._is_running
        return self._end(frame, at_ms, ok=True)

    def missing_before(self, event: TurnEnded | CompactionEnded) -> Iterator[Event]:
        """Yield what the agent did not report: the end of a compaction that ended with its turn, or a beginning."""
        match event:
            case TurnEnded(frame=frame, at_ms=at_ms) if self._is_running:
                yield self._end(frame, at_ms, ok=False)
            case CompactionEnded(frame=frame, at_ms=at_ms) if self._lacks_beginning:
                yield CompactionBegan(trigger=event.trigger, frame=frame, at_ms=at_ms)
            case _:
                pass

    @property
    def _trigger(self) -> CompactionTrigger:
        return "manual" if self._is_requested else "auto"

    def _end(self, frame: int, at_ms: int, *, ok: bool) -> CompactionEnded:
        before, after = self._before, self._after
        self._is_running, self._before, self._after = False, None, None
        return CompactionEnded(
            trigger=self._trigger,
            ok=ok,
            tokens_before=before,
            tokens_after=after if ok else None,
            keeps="user-messages",
            keeps_tokens=KEPT_TOKENS,
            frame=frame,
            at_ms=at_ms,
        )
