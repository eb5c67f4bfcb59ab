"""Follow the compactions of one session: who requested them, how they ended, and the tokens in the context. Pure."""

from collections.abc import Iterator

from proctor.event.model import CompactionBegan, CompactionEnded, CompactionTrigger, Event, TurnEnded
from proctor.runtime.claude_code import wire


class Compactions:
    """The state of the compactions of one session. One runs at a time.

    The program reports the status `compacting`, then a result, and after success a boundary with the tokens. What
    remains is a summary in its own words and, if it was not requested, the newest messages, which the boundary names.
    """

    def __init__(self) -> None:
        self._is_requested = self._is_running = self._has_succeeded = False
        self._frames: dict[str, int] = {}
        self._given: set[str] = set()

    def heard_message(self, uuid: str, *, frame: int) -> None:
        """Note the row of a message of the thread, prompts included."""
        self._frames.setdefault(uuid, frame)

    def heard_given(self, uuid: str) -> None:
        """Note a message that the thread is given."""
        self._given.add(uuid)

    def heard_prompt(self, text: str) -> None:
        """Note what a turn began with. The command may be followed by what the summary should attend to."""
        self._is_requested = text.split(maxsplit=1)[:1] == [wire.COMPACT]

    def heard_status(
        self, status: wire.Status, *, frame: int, at_ms: int
    ) -> Iterator[CompactionBegan | CompactionEnded]:
        """Yield the event of a status. The program repeats `compacting` while it writes the summary."""
        if status.status == wire.COMPACTING and not self._is_running:
            yield self._begin(self._trigger, frame, at_ms)
        elif status.compact_result == "failed":
            if not self._is_running:
                yield self._begin(self._trigger, frame, at_ms)
            yield self._end(wire.Compacted(), frame, at_ms, ok=False, problem=status.compact_error)
        elif status.compact_result is not None and self._is_running:
            self._has_succeeded = True

    def heard_boundary(self, compacted: wire.Compacted, *, frame: int, at_ms: int) -> Iterator[Event]:
        """Yield the end of a compaction that succeeded."""
        if not self._is_running:
            yield self._begin(compacted.trigger or self._trigger, frame, at_ms)
        yield self._end(compacted, frame, at_ms, ok=True)

    def missing_before(self, event: Event) -> Iterator[CompactionEnded]:
        """Yield the end of a compaction that ended with its turn, without a boundary."""
        if isinstance(event, TurnEnded) and self._is_running:
            yield self._end(wire.Compacted(), event.frame, event.at_ms, ok=self._has_succeeded)

    def _frames_of(self, kept: set[str]) -> tuple[int, ...]:
        return tuple(sorted(frame for uuid, frame in self._frames.items() if uuid in kept))

    @property
    def _trigger(self) -> CompactionTrigger:
        return "manual" if self._is_requested else "auto"

    def _begin(self, trigger: CompactionTrigger, frame: int, at_ms: int) -> CompactionBegan:
        self._is_running, self._has_succeeded = True, False
        return CompactionBegan(trigger=trigger, frame=frame, at_ms=at_ms)

    def _end(
        self, compacted: wire.Compacted, frame: int, at_ms: int, *, ok: bool, problem: str | None = None
    ) -> CompactionEnded:
        self._is_running = self._has_succeeded = False
        kept = {*compacted.preserved_messages.uuids, *compacted.preserved_messages.all_uuids}
        return CompactionEnded(
            trigger=compacted.trigger or self._trigger,
            ok=ok,
            tokens_before=compacted.pre_tokens,
            tokens_after=compacted.post_tokens,
            problem=problem,
            keeps="nothing",
            keeps_frames=self._frames_of(kept),
            keeps_given=not kept.isdisjoint(self._given),
            frame=frame,
            at_ms=at_ms,
        )
