"""Convert a command's output to events: its lines are messages, and its exit ends the turn. Pure."""

import re
from collections.abc import Iterator

import msgspec

from proctor import decoding
from proctor.event.claim import MARKER, NO_CLAIM, claim_in
from proctor.event.model import (
    Event,
    FrameNoted,
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
from proctor.event.row import ChildExited, Direction, Row, StepTaken
from proctor.event.supervisor_events import decode_supervisor_row, supervisor_event
from proctor.ids import ItemId, ThreadId, TurnId

OPENED = "session opened"
STARTED = "command started"
INTERRUPTED = "command interrupted"

# Output is split into messages of about this size, to limit memory.
MESSAGE_CHARS = 1024 * 1024

# A shell exits with these if a program cannot be executed or is not found; so does the loader if a library is missing.
_NOT_STARTED = (126, 127)
_MAX_STDERR_LINES = 5

# How runtimes end a program that gets no memory (SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGSEGV), and what they print.
_FAULTS = (4, 5, 6, 7, 11)
_EXHAUSTED = re.compile(
    r"memory|allocat|resource temporarily unavailable|too many open files|map segment|reserve .*space", re.IGNORECASE
)


class OpenedDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The detail of the step OPENED."""

    thread: ThreadId
    model: str
    cwd: str


class StartedDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The detail of the step STARTED: how the command was started, and which exits are good."""

    turn: TurnId
    argv: list[str]
    prompt: str
    good_exits: list[int]
    marker: str | None


class ProcessNormalizer:
    """Normalizes the turns of one session, each with its own process."""

    sees_tool_calls = False

    def __init__(self) -> None:
        self._started: StartedDetail | None = None
        self._turn = TurnId("")
        self._is_interrupted = False
        self._messages = 0
        self._lines: list[str] = []
        self._chars = 0
        self._has_output = False
        self._stderr_lines: list[str] = []

    def feed(self, row: Row) -> Iterator[Event]:
        match row.dir:
            case Direction.SELF:
                yield from self._from_supervisor(row)
            case Direction.OUT:
                yield PromptSent(text=_text(row), frame=row.seq, at_ms=row.at_ms)
            case Direction.ERR:
                text = _text(row)
                self._stderr_lines = [*self._stderr_lines, text][-_MAX_STDERR_LINES:]
                yield WarningRaised(source="process", text=text, channel="stderr", frame=row.seq, at_ms=row.at_ms)
            case Direction.IN:
                yield from self._on_output(_text(row), row)

    def _from_supervisor(self, row: Row) -> Iterator[Event]:
        try:
            yield from self._supervisor_events(row)
        except msgspec.ValidationError:
            yield Unrecognized(native="self", frame=row.seq, at_ms=row.at_ms)

    def _supervisor_events(self, row: Row) -> Iterator[Event]:
        match decode_supervisor_row(row):
            case StepTaken(step=step, detail=detail) if step == OPENED:
                opened = decoding.convert(detail, OpenedDetail)
                yield SessionBegan(
                    thread=opened.thread, model=opened.model, cwd=opened.cwd, frame=row.seq, at_ms=row.at_ms
                )
            case StepTaken(step=step, detail=detail) if step == STARTED:
                self._started, self._is_interrupted = decoding.convert(detail, StartedDetail), False
                self._turn, self._messages = self._started.turn, 0
                self._has_output, self._stderr_lines = False, []
                yield TurnBegan(turn=self._turn, frame=row.seq, at_ms=row.at_ms)
            case StepTaken(step=step) if step == INTERRUPTED:
                self._is_interrupted = True
                yield FrameNoted(native=step, frame=row.seq, at_ms=row.at_ms)
            case ChildExited() as exited:
                yield from self._turn_ended(exited, row)
                yield supervisor_event(row)
            case _:
                yield supervisor_event(row)

    # ── output ──

    @property
    def _item(self) -> ItemId:
        return ItemId(f"{self._turn}.{self._messages + 1}")

    def _on_output(self, text: str, row: Row) -> Iterator[Event]:
        self._has_output = True
        # Split only before a line with text, so that the result marker stays in the last message.
        if self._chars >= MESSAGE_CHARS and text.strip().strip("`").strip():
            yield from self._flush_message(row)
        # The pieces concatenated are the message, so a line end belongs to the line after it.
        piece = f"\n{text}" if self._lines else text
        self._lines.append(text)
        self._chars += len(piece)
        yield TextStreamed(turn=self._turn, item=self._item, text=piece, frame=row.seq, at_ms=row.at_ms)

    def _flush_message(self, row: Row) -> Iterator[TextSaid]:
        if self._lines:
            text, item = "\n".join(self._lines), self._item
            self._lines, self._chars, self._messages = [], 0, self._messages + 1
            yield TextSaid(turn=self._turn, item=item, text=text, frame=row.seq, at_ms=row.at_ms)

    # ── the end of a turn ──

    def _turn_ended(self, exited: ChildExited, row: Row) -> Iterator[Event]:
        started, self._started = self._started, None
        for said in self._flush_message(row):
            yield said
            if started is not None and started.marker not in (None, MARKER):
                yield from _result_from_marker(said, started.marker)
        if started is None:
            return
        if self._is_interrupted:
            yield TurnEnded(turn=self._turn, status="interrupted", frame=row.seq, at_ms=row.at_ms)
        elif exited.signal is None and exited.code in started.good_exits:
            yield TurnEnded(turn=self._turn, status="completed", frame=row.seq, at_ms=row.at_ms)
        elif exited.tight_limit is not None and not self._has_output and self._lacks_resources(exited):
            what = f"the command printed nothing and ended with {_describe(exited)}, and {exited.tight_limit}"
            yield TurnEnded(
                turn=self._turn,
                status="failed",
                error=self._with_stderr(what),
                code="machine.exhausted",
                frame=row.seq,
                at_ms=row.at_ms,
            )
        elif exited.signal is None and exited.code in _NOT_STARTED and not self._has_output:
            what = f"the command exited with code {exited.code} and printed nothing: a program could not be executed"
            yield TurnEnded(
                turn=self._turn,
                status="failed",
                error=self._with_stderr(what),
                code="machine.spawn-failed",
                frame=row.seq,
                at_ms=row.at_ms,
            )
        elif exited.signal is None:
            yield TurnEnded(
                turn=self._turn,
                status="failed",
                error=f"the command exited with code {exited.code}",
                code="agent.exit-status",
                frame=row.seq,
                at_ms=row.at_ms,
            )

    def _lacks_resources(self, exited: ChildExited) -> bool:
        """Whether the command ended as programs do that get no memory or process: by a fault, or saying so."""
        return exited.signal in _FAULTS or any(map(_EXHAUSTED.search, self._stderr_lines))

    def _with_stderr(self, what: str) -> str:
        stderr = "\n".join(self._stderr_lines)
        return f"{what}; last lines of stderr: {stderr!r}" if stderr else what


def _describe(exited: ChildExited) -> str:
    return f"code {exited.code}" if exited.signal is None else f"signal {exited.signal}"


def _result_from_marker(said: TextSaid, marker: str | None) -> Iterator[ResultFound]:
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
    """Return a line unchanged, or without the surrounding blanks if it is JSON."""
    return bytes(row.frame).decode() if isinstance(row.frame, msgspec.Raw) else row.text or ""
