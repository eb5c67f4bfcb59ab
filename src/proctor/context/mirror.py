"""Fold the events of a sitting into its turns and their entries. Pure: a later process folds the same record alike."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from proctor.context.context_fold import ContextFold
from proctor.context.model import RecordedTurn, TurnKind
from proctor.event.bounds import TEXT_BYTES, cut
from proctor.event.history_item import HistoryCall
from proctor.event.message import AgentPart, CallPart, Message, Part, ResultPart, UserPart
from proctor.event.model import (
    Event,
    HistoryRead,
    SessionBegan,
    TextSaid,
    ToolBegan,
    ToolEnded,
    TurnAsked,
    TurnSettled,
    TurnSteered,
)
from proctor.event.outcome import NOT_ENDED, OutcomeFold
from proctor.ids import AttemptId, CallId, EntryId, RunId, ThreadId

_TAINTING: Final = ("web", "mcp")
_PARTS_OF_ITEMS: Final[Mapping[str, type[UserPart] | type[AgentPart]]] = {"prompt": UserPart, "message": AgentPart}


@dataclass(frozen=True, slots=True, kw_only=True)
class _EntryDraft:
    """An entry whose id is not known yet: that depends on how many entries its frame yields."""

    frame: int
    at_ms: int
    part: Part
    is_tainted: bool
    call: int | None = None
    """Of a result: the position of the call's draft."""


class MirrorFold:
    """Folds the events of one sitting, fed in order, into a `RecordedTurn` for each turn.

    A turn ends with `TurnSettled`, or at the end of the record if Proctor was killed before. What arrives after that
    belongs to no turn. With `is_import`, a history that was read before the first turn becomes a turn of its kind.
    """

    def __init__(self, *, run_id: RunId, attempt_id: AttemptId, is_import: bool = False) -> None:
        self._place = f"{run_id}/{attempt_id}"
        self._outcome = OutcomeFold()
        self._thread: ThreadId | None = None
        self._context = ContextFold()
        self._imports = is_import
        self._kind: TurnKind | None = None
        self._asked = (0, 0)
        self._drafts: list[_EntryDraft] = []
        self._calls: dict[CallId, int] = {}
        self._is_tainted = False

    def feed(self, event: Event) -> RecordedTurn | None:
        """Take the next event. Returns the turn that it ends, if any."""
        ended: RecordedTurn | None = None
        if isinstance(event, TurnAsked):
            ended = self.finish()
        self._outcome.feed(event)
        self._context.feed(event)
        match event:
            case SessionBegan(thread=thread):
                self._thread = thread
            case TurnAsked(text=text):
                self._imports = False
                self._begin("prompt" if text is not None else "compaction", event)
                if text is not None:
                    self._add(event, UserPart(text=text))
            case HistoryRead() if self._imports:
                self._import(event)
                ended = self.finish() if event.is_last else None
            case _ if self._kind is None:
                pass
            case TurnSteered(text=text):
                self._add(event, UserPart(text=text))
            case TextSaid(text=text) if text:
                self._add(event, AgentPart(text=text))
            case ToolBegan():
                self._calls[event.call] = len(self._drafts)
                self._add(event, CallPart(kind=event.kind, name=event.name, input=event.input))
            case ToolEnded():
                self._end_call(event)
            case TurnSettled():
                ended = self.finish()
        return ended

    @property
    def thread(self) -> ThreadId | None:
        """The agent's thread, as far as it is known."""
        return self._thread

    @property
    def open_turn(self) -> RecordedTurn | None:
        """The turn that is open, if any, as far as it is recorded."""
        if self._kind is None:
            return None
        frame, asked_at_ms = self._asked
        return RecordedTurn(
            id=EntryId(f"{self._place}#{frame}"),
            kind=self._kind,
            asked_at_ms=asked_at_ms,
            ending=NOT_ENDED if self._kind == "import" else self._outcome.ending,
            messages=self._messages(),
            thread=self._thread,
            context=self._context.context,
        )

    def finish(self) -> RecordedTurn | None:
        """End the turn that is open, if any, and return it."""
        turn = self.open_turn
        self._kind = None
        return turn

    def _begin(self, kind: TurnKind, event: Event) -> None:
        self._kind, self._asked = kind, (event.frame, event.at_ms)
        self._context = ContextFold()
        self._drafts, self._calls, self._is_tainted = [], {}, False

    def _add(self, event: Event, part: Part, *, call: int | None = None) -> None:
        self._drafts.append(
            _EntryDraft(
                frame=event.frame,
                at_ms=event.at_ms,
                part=part,
                # A prompt or a steer is the user's, whatever the agent has read.
                is_tainted=self._is_tainted and not isinstance(part, UserPart),
                call=call,
            )
        )

    def _end_call(self, event: ToolEnded) -> None:
        at = self._calls.pop(event.call, None)
        if at is None:
            at = len(self._drafts)
            self._add(event, CallPart(kind=event.kind, name=event.name, input=event.input))
        elif event.input is not None and isinstance(part := self._drafts[at].part, CallPart) and part.input is None:
            began = self._drafts[at]
            whole = CallPart(kind=part.kind, name=part.name, input=event.input)
            self._drafts[at] = _EntryDraft(
                frame=began.frame, at_ms=began.at_ms, part=whole, is_tainted=began.is_tainted
            )
        self._is_tainted = self._is_tainted or event.kind in _TAINTING
        self._add_result(event, event.name, event.output, ok=event.ok, call=at)

    def _add_result(self, event: Event, name: str, output: str | None, *, ok: bool | None, call: int) -> None:
        kept, cut_bytes = (None, 0) if output is None else cut(output, limit_bytes=TEXT_BYTES)
        # The id of the call is filled in when the turn ends.
        self._add(event, ResultPart(call=EntryId(""), name=name, output=kept, ok=ok, cut_bytes=cut_bytes), call=call)

    def _import(self, event: HistoryRead) -> None:
        if self._kind is None:
            self._begin("import", event)
        for item in event.items:
            if item.kind == "prompt":
                self._is_tainted = False
            if item.call is not None:
                self._import_call(event, item.text or "", item.call)
            elif item.text and (part := _PARTS_OF_ITEMS.get(item.kind)) is not None:
                self._add(event, part(text=item.text))

    def _import_call(self, event: HistoryRead, name: str, call: HistoryCall) -> None:
        at = len(self._drafts)
        self._add(event, CallPart(kind=call.kind, name=name, input=call.input))
        self._is_tainted = self._is_tainted or call.kind in _TAINTING
        if call.output is not None or call.ok is not None:
            self._add_result(event, name, call.output, ok=call.ok, call=at)

    def _messages(self) -> tuple[Message, ...]:
        entries_of = Counter(draft.frame for draft in self._drafts)
        used: Counter[int] = Counter()
        ids: list[EntryId] = []
        for draft in self._drafts:
            used[draft.frame] += 1
            suffix = f".{used[draft.frame]}" if entries_of[draft.frame] > 1 else ""
            ids.append(EntryId(f"{self._place}#{draft.frame}{suffix}"))
        return tuple(
            Message(id=id_, at_ms=draft.at_ms, part=_with_call(draft, ids), is_tainted=draft.is_tainted)
            for id_, draft in zip(ids, self._drafts, strict=True)
        )


def _with_call(draft: _EntryDraft, ids: list[EntryId]) -> Part:
    part = draft.part
    if draft.call is None or not isinstance(part, ResultPart):
        return part
    return ResultPart(call=ids[draft.call], name=part.name, output=part.output, ok=part.ok, cut_bytes=part.cut_bytes)
