"""What any command says into events: its lines are its words, its exit is the end of its turn. Pure."""

from collections.abc import Iterator

import msgspec

from proctor.event.claim import MARKER, NO_CLAIM, claim_in
from proctor.event.model import (
    Event,
    Noted,
    PromptSent,
    ResultFound,
    SessionBegan,
    TextSaid,
    TextStreamed,
    TurnBegan,
    TurnEnded,
    Unrecognized,
    WarningRaised,
)
from proctor.event.row import ChildExited, Dir, Row, StepTaken
from proctor.event.witness import seen_in, witness
from proctor.ids import ItemId, ThreadId, TurnId

OPENED = "session opened"
STARTED = "command started"
INTERRUPTED = "command interrupted"

# What is said is told in messages of about this size, so that memory does not grow with it.
MESSAGE_CHARS = 1024 * 1024


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The detail of that step."""

    thread: ThreadId
    model: str
    cwd: str


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The detail of that step: how the turn's command was called, and what its end will mean."""

    turn: TurnId
    argv: list[str]
    prompt: str
    good_exits: list[int]
    marker: str | None


class ProcessNormalizer:
    """One turn after the other, each with a process of its own."""

    def __init__(self) -> None:
        self._started: Started | None = None
        self._turn = TurnId("")
        self._is_interrupted = False
        self._messages = 0
        self._lines: list[str] = []
        self._chars = 0

    def feed(self, row: Row) -> Iterator[Event]:
        match row.dir:
            case Dir.SELF:
                yield from self._witnessed(row)
            case Dir.OUT:
                yield PromptSent(text=_text(row), frame=row.seq, at_ms=row.at_ms)
            case Dir.ERR:
                text = _text(row)
                yield WarningRaised(source="process", text=text, channel="stderr", frame=row.seq, at_ms=row.at_ms)
            case Dir.IN:
                yield from self._heard(_text(row), row)

    def _witnessed(self, row: Row) -> Iterator[Event]:
        try:
            yield from self._seen(row)
        except msgspec.ValidationError:
            yield Unrecognized(native="self", frame=row.seq, at_ms=row.at_ms)

    def _seen(self, row: Row) -> Iterator[Event]:
        match seen_in(row):
            case StepTaken(step=step, detail=detail) if step == OPENED:
                opened = msgspec.convert(detail, Opened)
                yield SessionBegan(
                    thread=opened.thread, model=opened.model, cwd=opened.cwd, frame=row.seq, at_ms=row.at_ms
                )
            case StepTaken(step=step, detail=detail) if step == STARTED:
                self._started, self._is_interrupted = msgspec.convert(detail, Started), False
                self._turn, self._messages = self._started.turn, 0
                yield TurnBegan(turn=self._turn, frame=row.seq, at_ms=row.at_ms)
            case StepTaken(step=step) if step == INTERRUPTED:
                self._is_interrupted = True
                yield Noted(native=step, frame=row.seq, at_ms=row.at_ms)
            case ChildExited() as exited:
                yield from self._ended(exited, row)
                yield witness(row)
            case _:
                yield witness(row)

    # ── what it says ──

    @property
    def _item(self) -> ItemId:
        return ItemId(f"{self._turn}.{self._messages + 1}")

    def _heard(self, text: str, row: Row) -> Iterator[Event]:
        # Only now, and only for a line with words: what ends its turn must stand in its last message, to be read there.
        if self._chars >= MESSAGE_CHARS and text.strip().strip("`").strip():
            yield from self._said(row)
        # The pieces together are the message: a line end belongs to the line after it.
        piece = f"\n{text}" if self._lines else text
        self._lines.append(text)
        self._chars += len(piece)
        yield TextStreamed(turn=self._turn, item=self._item, text=piece, frame=row.seq, at_ms=row.at_ms)

    def _said(self, row: Row) -> Iterator[TextSaid]:
        if self._lines:
            text, item = "\n".join(self._lines), self._item
            self._lines, self._chars, self._messages = [], 0, self._messages + 1
            yield TextSaid(turn=self._turn, item=item, text=text, frame=row.seq, at_ms=row.at_ms)

    # ── how it ends ──

    def _ended(self, exited: ChildExited, row: Row) -> Iterator[Event]:
        started, self._started = self._started, None
        for said in self._said(row):
            yield said
            if started is not None and started.marker not in (None, MARKER):
                yield from _marked(said, started.marker)
        if started is None:
            return
        if self._is_interrupted:
            yield TurnEnded(turn=self._turn, status="interrupted", frame=row.seq, at_ms=row.at_ms)
        elif exited.signal is None and exited.code in started.good_exits:
            yield TurnEnded(turn=self._turn, status="completed", frame=row.seq, at_ms=row.at_ms)
        elif exited.signal is None:
            yield TurnEnded(
                turn=self._turn,
                status="failed",
                error=f"the command exited with code {exited.code}",
                code="agent.exit-status",
                frame=row.seq,
                at_ms=row.at_ms,
            )


def _marked(said: TextSaid, marker: str | None) -> Iterator[ResultFound]:
    claim = claim_in(said.text, frame=said.frame, marker=marker or MARKER)
    if claim != NO_CLAIM:
        yield ResultFound(
            source="marker",
            done=claim.claimed,
            answer=claim.answer,
            code=None if claim.problem is None else "agent.result-invalid",
            problem=claim.problem,
            frame=said.frame,
            at_ms=said.at_ms,
        )


def _text(row: Row) -> str:
    """A line as it was said; one that is JSON without the blanks around it."""
    return bytes(row.frame).decode() if isinstance(row.frame, msgspec.Raw) else row.text or ""
