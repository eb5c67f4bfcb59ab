"""Convert lines of `codex exec --json` to events. Pure."""

import re
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from proctor import decoding
from proctor.event.model import (
    CompactionBegan,
    CompactionEnded,
    ErrorReported,
    Event,
    FrameNoted,
    PromptSent,
    ReasoningSaid,
    SessionBegan,
    TextSaid,
    Tokens,
    ToolBegan,
    ToolEnded,
    ToolKind,
    TurnBegan,
    TurnEnded,
    Unrecognized,
    UsageAuthority,
    UsageReported,
    WarningRaised,
)
from proctor.event.row import ChildExited, Direction, Row, StepTaken
from proctor.event.supervisor_events import decode_supervisor_row, supervisor_event
from proctor.event.usage import NO_TOKENS, can_follow
from proctor.ids import CallId, ItemId, ThreadId, TurnId
from proctor.runtime.codex import compaction
from proctor.runtime.codex.mcp import is_mcp_error
from proctor.runtime.codex.retry_after import retry_after_ms, utc_offset_in
from proctor.runtime.codex.warnings import ERROR_ITEM, STDERR, attribute_warning
from proctor.runtime.codex_exec import steps, wire
from proctor.runtime.codex_exec.failures import FAILURES, NOT_STARTED
from proctor.runtime.failures import diagnose

T = TypeVar("T")

_RECONNECTING: Final = re.compile(r"Reconnecting\.\.\. (?:\d+/\d+ \()?(.*?)\)?", re.DOTALL)
_MAX_STDERR_LINES: Final = 20


class ExecNormalizer:
    """Normalizes the lines of one session. Turns have no ids in this protocol, so each process is a numbered turn.

    Each process numbers its items from 0, so that an item is identified by turn and item number.
    """

    def __init__(self) -> None:
        self._emitted: set[tuple[TurnId, str, str]] = set()
        self._thread: str | None = None
        self._number = 0
        self._is_resumed = False
        self._is_halted = False
        self._usage_before: Tokens | None = None
        self._total = NO_TOKENS
        self._stderr_lines: list[str] = []
        self._utc_offset: int | None = None

    @property
    def _turn(self) -> TurnId:
        return TurnId(f"turn-{self._number}")

    def feed(self, row: Row) -> Iterator[Event]:
        match row.dir:
            case Direction.SELF:
                yield from self._from_supervisor(row)
            case Direction.ERR:
                text = _text(row)
                self._stderr_lines = [*self._stderr_lines, text][-_MAX_STDERR_LINES:]
                yield _warning(STDERR, text, row)
            case Direction.OUT:
                yield PromptSent(text=_text(row), frame=row.seq, at_ms=row.at_ms)
            case Direction.IN:
                yield from self._from_agent(row)

    # ── from the supervisor ──

    def _from_supervisor(self, row: Row) -> Iterator[Event]:
        seen = decode_supervisor_row(row)
        self._utc_offset = utc_offset_in(seen, known=self._utc_offset)
        match seen:
            case StepTaken(step=steps.STARTED, detail=detail):
                self._number += 1
                self._is_halted, self._usage_before, self._stderr_lines = False, None, []
                self._is_resumed = detail.get("how") != "start"
            case StepTaken(step=steps.HALTED):
                self._is_halted = True
            case StepTaken(step=steps.USAGE_BEFORE, detail=detail):
                self._usage_before = steps.tokens_in(detail)
            case StepTaken(step=steps.TURN_USAGE, detail=detail) if (cost := steps.tokens_in(detail)) is not None:
                yield UsageReported(
                    tokens=cost,
                    scope="turn",
                    basis="absolute",
                    authority=UsageAuthority.ROLLOUT_RECORD,
                    turn=self._turn,
                    frame=row.seq,
                    at_ms=row.at_ms,
                )
                return
            case ChildExited(is_turns_own=True):
                yield from self._process_exited(row)
        yield supervisor_event(row)

    def _process_exited(self, row: Row) -> Iterator[Event]:
        """End the turn if its process exited without doing so: it was interrupted, or stderr contains the error."""
        if not self._is_first("end", ""):
            return
        if self._is_halted:
            yield TurnEnded(turn=self._turn, status="interrupted", frame=row.seq, at_ms=row.at_ms)
        elif self._stderr_lines:
            text = "\n".join(self._stderr_lines)
            failure = diagnose(NOT_STARTED, None, text)
            code = None if failure is None else failure.code
            yield ErrorReported(text=text, will_retry=False, code=code, frame=row.seq, at_ms=row.at_ms)

    # ── from the agent ──

    def _from_agent(self, row: Row) -> Iterator[Event]:
        raw = bytes(row.frame) if isinstance(row.frame, msgspec.Raw) else b""
        try:
            type_ = decoding.decode(raw, wire.Envelope).type
        except msgspec.DecodeError:
            yield Unrecognized(native="not a message", frame=row.seq, at_ms=row.at_ms)
            return
        try:
            yield from self._line(type_, raw, row)
        except msgspec.DecodeError:
            # The name is known but the structure is not: count the line as unrecognized.
            yield Unrecognized(native=type_, frame=row.seq, at_ms=row.at_ms)

    def _line(self, type_: str, raw: bytes, row: Row) -> Iterator[Event]:
        seq, at_ms = row.seq, row.at_ms
        match type_:
            case "thread.started":
                yield self._thread_started(decoding.decode(raw, wire.ThreadStarted), row)
                yield from self._baseline(row)
            case "turn.started" if self._is_first(type_, ""):
                yield from self._baseline(row)
                yield TurnBegan(turn=self._turn, frame=seq, at_ms=at_ms)
            case "item.started" | "item.completed":
                event = self._item(type_, decoding.decode(raw, wire.ItemLine).item, row)
                yield event
                yield from self._compaction(event, row)
            case "error":
                yield self._error(decoding.decode(raw, wire.ErrorLine), row)
            case "turn.completed" | "turn.failed" if self._is_first("end", ""):
                # The turn is over, even if the rest of the line cannot be read.
                yield from self._turn_ended(type_, raw, row)
            case "turn.started" | "turn.completed" | "turn.failed":
                yield FrameNoted(native=f"repeated {type_}", frame=seq, at_ms=at_ms)
            case "item.updated":
                yield FrameNoted(native=type_, frame=seq, at_ms=at_ms)
            case _:
                yield Unrecognized(native=type_, frame=seq, at_ms=at_ms)

    def _thread_started(self, started: wire.ThreadStarted, row: Row) -> Event:
        seq, at_ms = row.seq, row.at_ms
        if self._thread is None:
            self._thread = started.thread_id
            return SessionBegan(thread=ThreadId(started.thread_id), is_resumed=self._is_resumed, frame=seq, at_ms=at_ms)
        if started.thread_id != self._thread:
            text = f"the turn continued in thread {started.thread_id} instead of {self._thread}"
            return _warning("thread.started", text, row)
        return FrameNoted(native="thread.started", frame=seq, at_ms=at_ms)

    def _baseline(self, row: Row) -> Iterator[Event]:
        """Report the usage before the turn, once the session has begun and before the turn begins."""
        if self._usage_before is not None:
            yield self._cumulative(self._usage_before, UsageAuthority.RESTORED_ON_RESUME, row, turn=None)
            self._usage_before = None

    def _cumulative(self, tokens: Tokens, authority: UsageAuthority, row: Row, *, turn: TurnId | None) -> Event:
        if not can_follow(self._total, tokens):
            return FrameNoted(native="outdated usage", frame=row.seq, at_ms=row.at_ms)
        self._total = tokens
        return UsageReported(
            tokens=tokens,
            scope="thread",
            basis="cumulative",
            authority=authority,
            turn=turn,
            frame=row.seq,
            at_ms=row.at_ms,
        )

    def _turn_ended(self, type_: str, raw: bytes, row: Row) -> Iterator[Event]:
        seq, at_ms = row.seq, row.at_ms
        if type_ == "turn.completed":
            usage = _try_decode(raw, wire.TurnCompleted)
            if usage is None:
                yield Unrecognized(native="usage of a turn", frame=seq, at_ms=at_ms)
            else:
                yield self._cumulative(_tokens(usage.usage), UsageAuthority.LIVE_TURN_COMPLETED, row, turn=self._turn)
            yield TurnEnded(turn=self._turn, status="completed", frame=seq, at_ms=at_ms)
            return
        failed = _try_decode(raw, wire.TurnFailed)
        error = None if failed is None else failed.error.message
        failure = diagnose(FAILURES, None, error) if error is not None else None
        yield TurnEnded(
            turn=self._turn,
            status="failed",
            error=error,
            code=None if failure is None else failure.code,
            retry_after_ms=self._retry_after_ms(error or "", row),
            frame=seq,
            at_ms=at_ms,
        )

    def _retry_after_ms(self, text: str, row: Row) -> int | None:
        return retry_after_ms(text, at_ms=row.at_ms, utc_offset_minutes=self._utc_offset)

    def _error(self, line: wire.ErrorLine, row: Row) -> ErrorReported:
        """Report an error that does not end the turn. Only its text says that Codex retries, and why."""
        again = _RECONNECTING.fullmatch(line.message)
        what = line.message if again is None else again[1]
        failure = diagnose(FAILURES, None, what, will_retry=again is not None)
        return ErrorReported(
            text=line.message,
            will_retry=None if again is None else True,
            code=None if failure is None else failure.code,
            retry_after_ms=self._retry_after_ms(what, row),
            frame=row.seq,
            at_ms=row.at_ms,
        )

    def _item(self, type_: str, item: wire.Item, row: Row) -> Event:
        turn, seq, at_ms = self._turn, row.seq, row.at_ms
        if not self._is_first(type_, item.id):
            return FrameNoted(native=f"repeated {type_}", frame=seq, at_ms=at_ms)
        self._emitted.add((turn, "item.started", item.id))  # ignore a start after the end
        id_, is_over = f"{turn}/{item.id}", type_ == "item.completed"
        tool = _tool(item)
        if tool is not None:
            kind, name, given = tool
            if is_over:
                return _tool_ended(item, kind, name, given, turn=turn, row=row)
            return ToolBegan(turn=turn, call=CallId(id_), kind=kind, name=name, input=given, frame=seq, at_ms=at_ms)
        match item.type:
            case "agent_message" if is_over:
                return TextSaid(turn=turn, item=ItemId(id_), text=item.text or "", frame=seq, at_ms=at_ms)
            case "reasoning" if is_over:
                return ReasoningSaid(turn=turn, item=ItemId(id_), text=item.text or "", frame=seq, at_ms=at_ms)
            case "error":
                # `exec` reports the app-server's warnings as error items.
                text = item.message or ""
                return _warning(ERROR_ITEM, text, row)
            case "agent_message" | "reasoning" | "todo_list":
                return FrameNoted(native=f"{type_} {item.type}", frame=seq, at_ms=at_ms)
            case _:
                return Unrecognized(native=f"{type_} {item.type}", frame=seq, at_ms=at_ms)

    def _compaction(self, warning: Event, row: Row) -> Iterator[Event]:
        """Yield the events of a compaction, which only a warning reports, after it has ended. `exec` starts none."""
        if isinstance(warning, WarningRaised) and warning.text.startswith(compaction.WARNING):
            yield CompactionBegan(trigger="auto", frame=row.seq, at_ms=row.at_ms)
            yield CompactionEnded(
                trigger="auto",
                ok=True,
                keeps="user-messages",
                keeps_tokens=compaction.KEPT_TOKENS,
                frame=row.seq,
                at_ms=row.at_ms,
            )

    def _is_first(self, what: str, id_: str) -> bool:
        """Return whether this is the first such line of the turn. Lines may be repeated, events may not."""
        key = (self._turn, what, id_)
        is_first = key not in self._emitted
        self._emitted.add(key)
        return is_first


def _text(row: Row) -> str:
    return bytes(row.frame).decode() if isinstance(row.frame, msgspec.Raw) else row.text or ""


def _try_decode(raw: bytes, type_: type[T]) -> T | None:
    try:
        return decoding.decode(raw, type_)
    except msgspec.DecodeError:
        return None


def _warning(channel: str, text: str, row: Row) -> WarningRaised:
    source, rule = attribute_warning(channel, text)
    return WarningRaised(source=source, text=text, channel=channel, rule=rule, frame=row.seq, at_ms=row.at_ms)


def _tokens(usage: wire.Usage) -> Tokens:
    return Tokens(
        input=usage.input_tokens,
        output=usage.output_tokens,
        total=usage.input_tokens + usage.output_tokens,
        cached_input=usage.cached_input_tokens,
        cache_write=usage.cache_write_input_tokens,
        reasoning_output=usage.reasoning_output_tokens,
    )


def _tool(item: wire.Item) -> tuple[ToolKind, str, Any] | None:
    """Return kind, name and input of a tool item. None if the item is not a tool."""
    match item.type:
        case "command_execution":
            return "command", "shell", {"command": item.command}
        case "file_change":
            return "patch", "patch", {"changes": item.changes}
        case "mcp_tool_call":
            return "mcp", f"{item.server}/{item.tool}", item.arguments
        case "web_search":
            return "web", "search", {"query": item.query}
        case "collab_tool_call":
            return "other", item.tool or item.type, {"prompt": item.prompt}
        case _:
            return None


def _tool_ended(item: wire.Item, kind: ToolKind, name: str, given: Any, *, turn: TurnId, row: Row) -> ToolEnded:
    status = item.status or "completed"
    output = item.aggregated_output
    spoken = item.error if item.error is not None else item.result
    if output is None and spoken is not None:
        output = msgspec.json.encode(spoken).decode()
    return ToolEnded(
        turn=turn,
        call=CallId(f"{turn}/{item.id}"),
        kind=kind,
        name=name,
        ok=status == "completed" and not item.error and item.exit_code in (None, 0) and not is_mcp_error(item.result),
        status=status,
        input=given,
        exit_code=item.exit_code,
        output=output,
        frame=row.seq,
        at_ms=row.at_ms,
    )
