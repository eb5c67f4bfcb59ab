"""Convert Codex app-server frames to events. Pure."""

from collections.abc import Iterator
from typing import Any, Final, Literal, TypeVar

import msgspec

from proctor import decoding
from proctor.event.model import (
    ApprovalAsked,
    CompactionEnded,
    ErrorReported,
    Event,
    FrameNoted,
    HistoryRead,
    ModelRerouted,
    PromptSent,
    ReasoningSaid,
    ReasoningStreamed,
    ReplyReceived,
    RequestSent,
    SessionBegan,
    StatusChanged,
    TextSaid,
    TextStreamed,
    Tokens,
    ToolBegan,
    ToolStreamed,
    TurnBegan,
    TurnEnded,
    Unrecognized,
    UsageAuthority,
    UsageReported,
    WarningRaised,
)
from proctor.event.row import Direction, Row, TailReleased
from proctor.event.status import ThreadStatus
from proctor.event.supervisor_events import decode_supervisor_row, supervisor_event
from proctor.event.usage import NO_TOKENS, can_follow
from proctor.ids import CallId, ItemId, ThreadId, TurnId
from proctor.protocol.jsonrpc import Incoming, decode
from proctor.runtime.codex.retry_after import retry_after_ms, utc_offset_in
from proctor.runtime.codex.warnings import STDERR, attribute_warning
from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.compactions import Compactions
from proctor.runtime.codex_app_server.failures import FAILURES
from proctor.runtime.codex_app_server.items import MESSAGES, kept_items, reasoning, tool_ended, tool_of
from proctor.runtime.failures import diagnose

T = TypeVar("T")

_LACKING: Final = (TurnEnded, CompactionEnded)
"""Events before which the agent may not have reported another one."""

_SPOKEN_WARNINGS = frozenset({"warning", "guardianWarning", "configWarning", "deprecationNotice"})

_STATUSES = {
    "notLoaded": ThreadStatus.NOT_LOADED,
    "idle": ThreadStatus.IDLE,
    "active": ThreadStatus.ACTIVE,
    "systemError": ThreadStatus.SYSTEM_ERROR,
}


def _read(raw: msgspec.Raw | msgspec.UnsetType, type_: type[T]) -> T:
    return decoding.decode(b"{}" if isinstance(raw, msgspec.UnsetType) else raw, type_)


class CodexNormalizer:
    """Normalizes the frames of one session. Remembers open requests and the events already emitted."""

    def __init__(self) -> None:
        self._requests: dict[str, str] = {}
        self._questions: dict[str, str] = {}
        self._emitted: set[tuple[str, str]] = set()
        self._thread: str | None = None
        self._turn = TurnId("")
        self._total = NO_TOKENS
        self._utc_offset: int | None = None
        self._compactions = Compactions()

    def feed(self, row: Row) -> Iterator[Event]:
        if row.dir is Direction.SELF:
            yield self._from_supervisor(row)
            return
        if row.dir is Direction.ERR:
            text = bytes(row.frame).decode() if isinstance(row.frame, msgspec.Raw) else row.text or ""
            yield _warning(STDERR, text, row)
            return
        message = decode(bytes(row.frame)) if isinstance(row.frame, msgspec.Raw) else None
        try:
            if message is None:
                yield Unrecognized(native="not a message", frame=row.seq, at_ms=row.at_ms)
            elif row.dir is Direction.OUT:
                yield from self._to_agent(message, row)
            elif message.method is None:
                yield from self._reply(message, row)
            elif message.method == "model/rerouted" and not message.is_request:
                yield from _rerouted(message.method, _read(message.params, wire.RerouteParams), row)
            else:
                event = self._from_agent(message.method, message, row)
                if isinstance(event, _LACKING):
                    yield from self._compactions.missing_before(event)
                yield event
        except msgspec.DecodeError:
            # The name is known but the structure is not: count the frame as unrecognized.
            yield Unrecognized(native=(message and message.method) or "reply", frame=row.seq, at_ms=row.at_ms)

    def _from_supervisor(self, row: Row) -> Event:
        seen = decode_supervisor_row(row)
        self._utc_offset = utc_offset_in(seen, known=self._utc_offset)
        if isinstance(seen, TailReleased):
            thread, _, rest = seen.stream.partition("|")
            item, _, method = rest.rpartition("|")
            if method in wire.DELTAS:
                return self._delta(method, wire.DeltaParams(item_id=item, delta=seen.text, thread_id=thread), row)
        return supervisor_event(row)

    # ── from Proctor to the agent ──

    def _to_agent(self, message: Incoming, row: Row) -> Iterator[Event]:
        if message.method is None:
            about = self._questions.pop(str(message.id), "unknown request")
            yield RequestSent(method=f"reply: {about}", frame=row.seq, at_ms=row.at_ms)
            return
        if message.id is not None:
            self._requests[str(message.id)] = message.method
        self._compactions.heard_request(message.method)
        if message.method in wire.PROMPTS:
            text = "\n".join(part.text for part in _read(message.params, wire.TurnStartParams).input)
            yield PromptSent(text=text, frame=row.seq, at_ms=row.at_ms)
        else:
            yield RequestSent(method=message.method, frame=row.seq, at_ms=row.at_ms)

    # ── from the agent ──

    def _reply(self, message: Incoming, row: Row) -> Iterator[Event]:
        method = self._requests.pop(str(message.id), None)
        if method is None:
            yield Unrecognized(native="reply to nothing", frame=row.seq, at_ms=row.at_ms)
            return
        error = None if message.error is None else message.error.message
        if method in wire.OPENINGS and error is None and self._thread is None:
            began = _read(message.result, wire.ThreadStarted)
            self._thread = began.thread.id
            yield SessionBegan(
                thread=ThreadId(began.thread.id),
                model=began.model,
                cwd=began.cwd,
                ephemeral=began.thread.ephemeral,
                is_resumed=method != "thread/start",
                frame=row.seq,
                at_ms=row.at_ms,
            )
        elif method == wire.READ_TURNS and error is None:
            page = _read(message.result, wire.TurnsPage)
            yield HistoryRead(
                source=method,
                items=tuple(kept_items(page)),
                is_last=page.next_cursor is None,
                frame=row.seq,
                at_ms=row.at_ms,
            )
        yield ReplyReceived(method=method, error=error, frame=row.seq, at_ms=row.at_ms)

    def _from_agent(self, method: str, message: Incoming, row: Row) -> Event:
        seq, at_ms = row.seq, row.at_ms
        if message.is_request:
            return self._question(method, message, row)
        if method in wire.DELTAS:
            return self._delta(method, _read(message.params, wire.DeltaParams), row)
        match method:
            case "turn/started" | "turn/completed":
                return self._turn_changed(method, _read(message.params, wire.TurnParams), row)
            case "item/started" | "item/completed":
                return self._item_changed(method, _read(message.params, wire.ItemParams), row)
            case wire.USAGE:
                return self._usage(method, _read(message.params, wire.UsageParams), row)
            case "thread/status/changed":
                changed = _read(message.params, wire.StatusParams)
                if self._is_another(changed.thread_id):
                    return FrameNoted(native=f"another thread's {method}", frame=seq, at_ms=at_ms)
                return StatusChanged(
                    status=_STATUSES.get(changed.status.type, changed.status.type),
                    flags=changed.status.active_flags,
                    channel=method,
                    frame=seq,
                    at_ms=at_ms,
                )
            case "error":
                return self._error(_read(message.params, wire.ErrorParams), row)
            case "mcpServer/startupStatus/updated":
                mcp = _read(message.params, wire.McpStatusParams)
                if mcp.status != "failed":
                    return FrameNoted(native=method, frame=seq, at_ms=at_ms)
                why = mcp.error or mcp.failure_reason or "failed"
                return _warning(method, f"{mcp.name}: {why}", row)
            case _ if method in _SPOKEN_WARNINGS:
                said = _read(message.params, wire.WarningParams)
                text = " ".join(part for part in (said.message, said.summary, said.details) if part)
                return _warning(method, text, row)
            case _ if method in wire.SILENT:
                return FrameNoted(native=method, frame=seq, at_ms=at_ms)
            case _:
                return Unrecognized(native=method, frame=seq, at_ms=at_ms)

    def _question(self, method: str, message: Incoming, row: Row) -> Event:
        request = str(message.id)
        self._questions[request] = method
        about = wire.APPROVALS.get(method)
        if about is None:
            return Unrecognized(native=method, frame=row.seq, at_ms=row.at_ms)
        params = _read(message.params, wire.AskParams)
        call = params.item_id or params.call_id
        if params.meta is not None and params.meta.codex_approval_kind == wire.MCP_CALL_KIND:
            about = wire.MCP_CALL
        return ApprovalAsked(
            request=request,
            about=about,
            call=None if call is None else CallId(call),
            detail=" ".join(params.command)
            if isinstance(params.command, tuple)
            else params.command or params.tool or params.reason or params.message,
            frame=row.seq,
            at_ms=row.at_ms,
        )

    def _delta(self, method: str, params: wire.DeltaParams, row: Row) -> Event:
        turn, text, seq, at_ms = TurnId(params.turn_id) or self._turn, params.delta, row.seq, row.at_ms
        if method in wire.OUTPUT_DELTAS:
            return ToolStreamed(turn=turn, call=CallId(params.item_id), text=text, frame=seq, at_ms=at_ms)
        if self._is_another(params.thread_id):
            return FrameNoted(native=f"another thread's {method}", frame=seq, at_ms=at_ms)
        kind = TextStreamed if method in wire.TEXT_DELTAS else ReasoningStreamed
        return kind(turn=turn, item=ItemId(params.item_id), text=text, frame=seq, at_ms=at_ms)

    def _is_first(self, what: str, id_: str) -> bool:
        """Return whether this is the first such frame. Frames may be repeated, events may not."""
        is_first = (what, id_) not in self._emitted
        self._emitted.add((what, id_))
        return is_first

    def _is_another(self, thread: str | None) -> bool:
        """Return whether the thread is one that the agent started. Its turns and totals are not the attempt's."""
        return thread is not None and self._thread is not None and thread != self._thread

    def _usage(self, method: str, params: wire.UsageParams, row: Row) -> Event:
        usage = params.token_usage
        if self._is_another(params.thread_id):
            return FrameNoted(native=f"another thread's {method}", frame=row.seq, at_ms=row.at_ms)
        if usage.last is not None:
            self._compactions.heard_usage(usage.last)
        total = _tokens(usage.total)
        if not can_follow(self._total, total):
            return FrameNoted(native=f"outdated {method}", frame=row.seq, at_ms=row.at_ms)
        self._total = total
        return UsageReported(
            tokens=total,
            scope="thread",
            basis="cumulative",
            authority=UsageAuthority.LIVE_THREAD_USAGE,
            turn=TurnId(params.turn_id) if params.turn_id else None,
            frame=row.seq,
            at_ms=row.at_ms,
        )

    def _turn_changed(self, method: str, params: wire.TurnParams, row: Row) -> Event:
        turn = params.turn
        if self._is_another(params.thread_id):
            return FrameNoted(native=f"another thread's {method}", frame=row.seq, at_ms=row.at_ms)
        if not self._is_first(method, turn.id):
            return FrameNoted(native=f"repeated {method}", frame=row.seq, at_ms=row.at_ms)
        self._turn = TurnId(turn.id)
        if method == "turn/started":
            return TurnBegan(turn=self._turn, frame=row.seq, at_ms=row.at_ms)
        error = None if turn.error is None else turn.error.message
        status: Literal["completed", "failed", "interrupted"]
        match turn.status:
            case "completed" | "failed" | "interrupted":
                status = turn.status
            case _:
                # The turn is over in any case.
                status, error = "failed", error or f"the turn ended as {turn.status!r}, which Proctor does not know"
        class_ = None if turn.error is None else error_class(turn.error.codex_error_info)
        failure = diagnose(FAILURES, class_, error or "") if status == "failed" else None
        return TurnEnded(
            turn=self._turn,
            status=status,
            error=error,
            error_class=class_,
            code=None if failure is None else failure.code,
            retry_after_ms=None if failure is None else self._retry_after_ms(error or "", row),
            frame=row.seq,
            at_ms=row.at_ms,
        )

    def _retry_after_ms(self, text: str, row: Row) -> int | None:
        return retry_after_ms(text, at_ms=row.at_ms, utc_offset_minutes=self._utc_offset)

    def _error(self, params: wire.ErrorParams, row: Row) -> ErrorReported:
        error, class_ = params.error, error_class(params.error.codex_error_info)
        # While Codex retries, the message only counts the retries, and the details contain the error.
        what = error.additional_details or error.message
        failure = diagnose(FAILURES, class_, what, will_retry=bool(params.will_retry))
        return ErrorReported(
            text=error.message if what == error.message else f"{error.message}: {what}",
            error_class=class_,
            will_retry=params.will_retry,
            code=None if failure is None else failure.code,
            retry_after_ms=self._retry_after_ms(what, row),
            frame=row.seq,
            at_ms=row.at_ms,
        )

    def _item_changed(self, method: str, params: wire.ItemParams, row: Row) -> Event:
        item, seq, at_ms = params.item, row.seq, row.at_ms
        if not self._is_first(method, item.id):
            return FrameNoted(native=f"repeated {method}", frame=seq, at_ms=at_ms)
        self._emitted.add(("item/started", item.id))  # ignore a start after the end
        turn = TurnId(params.turn_id) if params.turn_id else self._turn
        tool = tool_of(item)
        if tool is not None:
            kind, name, given = tool
            if method == "item/started":
                return ToolBegan(
                    turn=turn, call=CallId(item.id), kind=kind, name=name, input=given, frame=seq, at_ms=at_ms
                )
            return tool_ended(item, kind, name, given, turn=turn, row=row)
        if self._is_another(params.thread_id):
            # A subagent's message goes to the agent. Only the agent's own messages can contain a claim.
            return FrameNoted(native=f"another thread's {item.type}", frame=seq, at_ms=at_ms)
        if method == "item/completed" and item.type in MESSAGES:
            return TextSaid(
                turn=turn, item=ItemId(item.id), text=item.text or "", phase=item.phase, frame=seq, at_ms=at_ms
            )
        if method == "item/completed" and item.type == "reasoning":
            return ReasoningSaid(turn=turn, item=ItemId(item.id), text=reasoning(item), frame=seq, at_ms=at_ms)
        if item.type == wire.COMPACTION:
            return self._compactions.changed(is_over=method == "item/completed", frame=seq, at_ms=at_ms)
        return FrameNoted(native=f"{method} {item.type}", frame=seq, at_ms=at_ms)


def _warning(channel: str, text: str, row: Row) -> WarningRaised:
    source, rule = attribute_warning(channel, text)
    return WarningRaised(source=source, text=text, channel=channel, rule=rule, frame=row.seq, at_ms=row.at_ms)


def _rerouted(method: str, route: wire.RerouteParams, row: Row) -> Iterator[Event]:
    yield ModelRerouted(to=route.to_model, frame=row.seq, at_ms=row.at_ms)
    text = f"{route.to_model} answers instead of {route.from_model}: {route.reason or 'no reason given'}"
    yield _warning(method, text, row)


def _tokens(native: wire.Breakdown) -> Tokens:
    return Tokens(
        input=native.input_tokens,
        output=native.output_tokens,
        total=native.total_tokens,
        cached_input=native.cached_input_tokens,
        cache_write=native.cache_write_input_tokens,
        reasoning_output=native.reasoning_output_tokens,
    )


def error_class(native: Any) -> str | None:
    """Return a codexErrorInfo as one string.

    >>> error_class("contextWindowExceeded")
    'contextWindowExceeded'
    >>> error_class({"httpConnectionFailed": {"httpStatusCode": 401}})
    'httpConnectionFailed:401'
    """
    if isinstance(native, str):
        return native
    if isinstance(native, dict) and native:
        name, detail = next(iter(native.items()))
        status = detail.get("httpStatusCode") if isinstance(detail, dict) else None
        return name if status is None else f"{name}:{status}"
    return None
