"""Fold the events of a sitting into what its native thread holds. Pure: a later process folds the same record alike."""

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

from msgspec.structs import replace

from proctor.context.mirror import MirrorFold
from proctor.context.model import Binding, RecordedTurn, Sitting
from proctor.event.message import UserPart
from proctor.event.model import (
    CompactionBegan,
    CompactionEnded,
    ContextAssembled,
    Event,
    HistoryGiven,
    HistoryOffered,
    PromptSent,
    SessionBegan,
    TurnAsked,
    TurnBegan,
    TurnCommitted,
    TurnSettled,
)
from proctor.event.outcome import Outcome
from proctor.ids import EntryId

MOST_KEPT: Final = 1000
"""An agent keeps at most so many of its newest messages verbatim when it shortens its thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldChange:
    """A change of the entries that the thread holds."""

    do: Literal["clear", "add", "keep-prompts"]
    """Remove all; add `entries`; or remove all but the newest prompts and steers among the mirror's entries."""
    entries: tuple[EntryId, ...] = ()
    most_tokens: int | None = None
    """Of `keep-prompts`: how many tokens of 4 bytes are kept, rounded up for each. None if no limit is known."""


class SittingFold:
    """Folds the events of one sitting, fed in order, into its turns, and into the binding of its native thread.

    `before` is the binding when the sitting began.
    """

    def __init__(self, sitting: Sitting, *, before: Binding | None) -> None:
        self.mirror = MirrorFold(run_id=sitting.run_id, attempt_id=sitting.attempt_id, is_import=sitting.is_import)
        self.binding = before
        """The native thread, as far as it is known. None if there is no thread, or none that is kept."""
        self.commits: dict[EntryId, TurnCommitted] = {}
        """What was recorded last of the commit of each turn."""
        self._sitting = sitting
        self._changes: list[HeldChange] = []
        self._assembled: ContextAssembled | None = None
        self._offered: HistoryOffered | None = None
        self._is_in_turn = False
        self._has_begun = False
        self._asked_at: int | None = None
        self._compacted_at: int | None = None
        self._keeps_prompts = False
        # Whether a compaction has begun whose end is not known.
        self._is_compacting = False
        self._kept_frames: frozenset[int] = frozenset()
        # Rows of the agent's copies of prompts, by those that they are copies of.
        self._copies: dict[int, int] = {}
        self._newest: deque[EntryId] = deque(maxlen=MOST_KEPT)

    def feed(self, event: Event) -> RecordedTurn | None:
        """Take the next event. Returns the turn that it ends, if any."""
        turn = self.mirror.feed(event)
        if turn is not None:
            self._turn_over(turn)
        match event:
            case SessionBegan():
                self._begin_thread(event)
            case TurnAsked(frame=frame):
                self._is_in_turn, self._has_begun, self._compacted_at = True, False, None
                self._asked_at, self._is_compacting = frame, False
                if event.text is None:
                    # Before the agent is asked: from then on, only a known end shows what the thread holds.
                    self._change(is_compacting=True)
            case CompactionBegan():
                self._is_compacting = True
            case PromptSent(frame=frame) if self._asked_at is not None:
                self._copies[frame], self._asked_at = self._asked_at, None
            case TurnSettled():
                if self._offered is not None and self._offered.how == "items":
                    # The agent did not answer.
                    self._change(is_unknown=True)
                self._is_in_turn, self._offered = False, None
            case TurnBegan(turn=native):
                self._has_begun = True
                if self._offered is not None and self._offered.how == "text":
                    self._hold((*self._offered.entries, *self._offered.references))
                    self._offered = None
                self._change(last_turn=native)
            case ContextAssembled():
                self._assembled = event
                if event.thread == "resume":
                    self._note_context(event)
                elif event.thread == "start":
                    # Before the new thread is known: some agents name it after they were given messages.
                    self.forget_thread()
            case HistoryOffered():
                self._offered = event
            case HistoryGiven():
                self._offered = None
                self._hold(event.entries)
                if event.instructions_sha256 is not None:
                    self._change(addition=event.instructions_sha256)
            case TurnCommitted(turn=committed):
                self.commits[committed] = event
            case CompactionEnded():
                self._is_compacting = False
                self._change(is_compacting=False)
                if event.ok is not False:
                    self._compact(event)
            case _:
                pass
        return turn

    def finish(self) -> RecordedTurn | None:
        """End the record. Returns the turn that was open, if any: what the thread holds of it is then unknown."""
        turn = self.mirror.finish()
        if turn is not None:
            self._turn_over(turn)
        if self._is_in_turn or self._offered is not None:
            self._change(is_unknown=True)
        return turn

    @property
    def changes(self) -> tuple[HeldChange, ...]:
        """The changes of what the thread holds, oldest first, without dropped ones."""
        return tuple(self._changes)

    def drop_changes(self, count: int) -> None:
        """Drop the oldest changes, which are stored. Called from the thread that has stored them."""
        del self._changes[:count]

    def _begin_thread(self, event: SessionBegan) -> None:
        if self.binding is not None and self.binding.thread == event.thread:
            return
        thread = Binding(
            runtime_id=self._sitting.runtime_id,
            thread=event.thread,
            tools=self._sitting.tools,
            process=self._sitting.process,
        )
        before, chosen = self.binding, self._assembled
        is_fork = before is not None and before.is_fork and (chosen is None or chosen.thread == "fork")
        if is_fork and before is not None:
            thread = replace(before, thread=event.thread, tools=self._sitting.tools, is_fork=False)
        elif before is not None:
            self._changes.append(HeldChange(do="clear"))
        self.binding = thread
        if chosen is not None:
            self._note_context(chosen)
            if chosen.thread == "start":
                self._change(addition=chosen.addition_sha256, first_addition=chosen.addition_sha256)

    def _note_context(self, chosen: ContextAssembled) -> None:
        self._change(engine=chosen.engine, policy_sha256=chosen.policy_sha256, mode=chosen.mode, epoch=chosen.epoch)

    def forget_thread(self) -> None:
        """Note that there is no native thread."""
        self.binding = None
        self._offered = None
        self._changes.append(HeldChange(do="clear"))

    def _hold(self, entries: tuple[EntryId, ...]) -> None:
        if entries:
            self._changes.append(HeldChange(do="add", entries=entries))

    def _compact(self, event: CompactionEnded) -> None:
        """Remove from the thread what the agent is not proven to keep."""
        if self.binding is None:
            return
        self._compacted_at, self._keeps_prompts = event.frame, event.keeps == "user-messages"
        self._kept_frames = frozenset(self._copies.get(frame, frame) for frame in event.keeps_frames)
        self._changes.append(
            HeldChange(do="keep-prompts", most_tokens=event.keeps_tokens)
            if self._keeps_prompts
            else HeldChange(do="clear")
        )
        self._hold(tuple(id_ for id_ in self._newest if _frame_of(id_) in self._kept_frames))
        self._change(is_compacted=True, addition=self.binding.first_addition)
        if event.keeps_given:
            # Which of them is not known, and what is given again would be there twice.
            self._change(is_unknown=True)

    def _turn_over(self, turn: RecordedTurn) -> None:
        if self.binding is not None and (self._is_compacting or self.binding.is_compacting):
            # Without a beginning, a request that was refused, or had nothing to shorten, has changed nothing.
            was_cut_off = turn.ending.outcome not in (Outcome.COMPLETED, Outcome.REFUSED)
            is_unknown = self.binding.is_unknown or self._is_compacting or was_cut_off
            self._is_compacting = False
            self._change(is_compacting=False, is_unknown=is_unknown)
        if turn.kind == "import" or turn.state.is_completed:
            self._newest.extend(message.id for message in turn.messages)
            self._hold(tuple(each.id for each in turn.messages if not self._is_lost(each.id, each.part)))
        elif turn.kind == "prompt" and self._has_begun and self.binding is not None:
            self._change(uncommitted=(*self.binding.uncommitted, turn.id))

    def _is_lost(self, id_: EntryId, part: object) -> bool:
        """Return whether the agent's compaction has removed an entry of the turn from its thread."""
        if self._compacted_at is None or (self._keeps_prompts and isinstance(part, UserPart)):
            return False
        frame = _frame_of(id_)
        return frame < self._compacted_at and frame not in self._kept_frames

    def _change(self, **changes: object) -> None:
        if self.binding is not None:
            self.binding = replace(self.binding, **changes)


def _frame_of(id_: EntryId) -> int:
    return int(id_.rpartition("#")[2].partition(".")[0])
