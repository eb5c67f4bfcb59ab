"""Convert pi's frames to events. Pure."""

import re
from collections.abc import Iterator
from typing import Literal, TypedDict

import msgspec

from proctor.event.model import (
    ApprovalAsked,
    ErrorReported,
    Event,
    FrameNoted,
    PromptSent,
    ReasoningSaid,
    ReasoningStreamed,
    ReplyReceived,
    RequestSent,
    SessionBegan,
    TextSaid,
    TextStreamed,
    Tokens,
    ToolBegan,
    ToolEnded,
    ToolStreamed,
    TurnBegan,
    TurnEnded,
    Unrecognized,
    UsageAuthority,
    UsageReported,
    WarningRaised,
)
from proctor.event.row import Direction, QuestionAnswered, Row, TailReleased
from proctor.event.supervisor_events import decode_supervisor_row, supervisor_event
from proctor.ids import CallId, ItemId, ThreadId, TurnId
from proctor.runtime.failures import diagnose
from proctor_pi import places
from proctor_pi.course import Course, Move
from proctor_pi.failures import FAILURES, error_class
from proctor_pi.places import Replies, is_reply
from proctor_pi.tools import ASKING, DIALOGS, Call
from proctor_pi.wire import BROKEN_OFF, Frame, Message, Result, Usage, name_of, read_frame, read_state

# pi's error text when a retry is cancelled by an abort.
RETRY_CANCELLED = "Retry cancelled"
_EXIT_CODE = re.compile(r"Command exited with code (\d+)\Z")
IGNORED = frozenset({"turn_start", "turn_end", "queue_update", "compaction_start", "session_info_changed"})


class _At(TypedDict):
    """The position of an event in the record."""

    frame: int
    at_ms: int


class PiNormalizer:
    """Normalizes the frames of one session. Remembers what it has emitted, because frames may be repeated."""

    def __init__(self) -> None:
        self._requests: dict[str, str] = {}
        self._course = Course()
        self._replies = Replies()
        self._thread: str | None = None
        self._turn = TurnId("")
        self._is_running = False
        self._last: Message | None = None
        self._used: list[Usage] = []
        self._is_usage_known = True
        self._calls: dict[str, Call] = {}
        self._asked_about: dict[str, str] = {}
        self._declined: set[str] = set()
        self._emitted: set[tuple[str, str]] = set()

    def feed(self, row: Row) -> Iterator[Event]:
        at = _At(frame=row.seq, at_ms=row.at_ms)
        if row.dir is Direction.SELF:
            yield self._from_supervisor(row)
            return
        if row.dir is Direction.ERR:
            text = bytes(row.frame).decode() if isinstance(row.frame, msgspec.Raw) else row.text or ""
            yield WarningRaised(source="process", text=text, channel="stderr", **at)
            return
        frame = read_frame(row.frame) if isinstance(row.frame, msgspec.Raw) else None
        if frame is None:
            native = name_of(row.frame) if isinstance(row.frame, msgspec.Raw) else "not a frame"
            yield Unrecognized(native=native, **at)
        elif row.dir is Direction.OUT:
            yield self._to_agent(frame, at)
        else:
            yield from self._from_agent(frame, at)

    def _from_supervisor(self, row: Row) -> Event:
        at = _At(frame=row.seq, at_ms=row.at_ms)
        match decode_supervisor_row(row):
            case TailReleased(stream=stream, text=text):
                item, _, kind = stream.rpartition("|")
                return self._streamed(item, kind, text, at) or supervisor_event(row)
            case QuestionAnswered(request=request, decision="decline"):
                self._declined.add(self._asked_about.get(request, ""))
        return supervisor_event(row)

    # ── frames to pi ──

    def _to_agent(self, frame: Frame, at: _At) -> Event:
        if frame.id is not None and frame.type != "extension_ui_response":
            self._requests[frame.id] = frame.type
        if frame.type == "prompt":
            self._turn = TurnId(frame.id or "")
        if frame.type in ("prompt", "steer") and isinstance(frame.message, str):
            return PromptSent(text=frame.message, **at)
        return RequestSent(method=frame.type, **at)

    # ── frames from pi ──

    def _from_agent(self, frame: Frame, at: _At) -> Iterator[Event]:
        self._replies.feed(frame)
        move = self._course.feed(frame)
        match frame.type:
            case "response":
                yield from self._on_response(frame, at)
            case "agent_start" if self._is_first("began", self._turn):
                self._is_running, self._last = True, None
                self._used, self._is_usage_known = [], True
                yield TurnBegan(turn=self._turn, **at)
            case "message_update":
                yield self._piece(frame, at)
            case "message_end" if is_reply(frame):
                yield from self._reply(frame, at)
            case "tool_execution_start" | "tool_execution_update" | "tool_execution_end":
                yield self._tool(frame, at)
            case "auto_retry_start" | "auto_retry_end" | "compaction_end":
                yield self._on_error(frame, at)
            case "extension_ui_request":
                yield self._question(frame, at)
            case "extension_error":
                yield WarningRaised(source="process", text=frame.error or frame.type, channel=frame.type, **at)
            case "agent_start" | "agent_end" | "message_start" | "message_end":
                yield FrameNoted(native=frame.type, **at)
            case _ if frame.type in IGNORED:
                yield FrameNoted(native=frame.type, **at)
            case _:
                yield Unrecognized(native=frame.type, **at)
        if move is Move.OVER and self._is_running:
            self._is_running = False
            if self._used and self._is_usage_known:
                yield UsageReported(
                    tokens=_tokens(self._used),
                    scope="turn",
                    basis="absolute",
                    authority=UsageAuthority.LIVE_TURN_COMPLETED,
                    turn=self._turn,
                    **at,
                )
            yield self._turn_ended(at)

    def _on_response(self, frame: Frame, at: _At) -> Iterator[Event]:
        # pi's reply to a command that it does not know has no id.
        id_ = frame.id or next((id_ for id_, type_ in self._requests.items() if type_ == frame.command), "")
        method = self._requests.pop(id_, None)
        if method is None:
            yield Unrecognized(native="reply to nothing", **at)
            return
        if method == "get_state" and self._thread is None and (state := read_state(frame)) is not None:
            self._thread = state.session_id
            yield SessionBegan(
                thread=ThreadId(state.session_id),
                model=None if state.model is None else state.model.id,
                ephemeral=state.session_file is None,
                is_resumed=state.message_count > 0,
                **at,
            )
        yield ReplyReceived(method=method, error=frame.error, **at)

    def _piece(self, frame: Frame, at: _At) -> Event:
        piece = frame.assistant_message_event
        if piece is None:
            return Unrecognized(native=frame.type, **at)
        item = self._replies.item(piece.content_index)
        return self._streamed(item, piece.type, piece.delta, at) or FrameNoted(native=piece.type, **at)

    def _streamed(self, item: str, kind: str, text: str, at: _At) -> Event | None:
        match kind:
            case places.TEXT:
                return TextStreamed(turn=self._turn, item=ItemId(item), text=text, **at)
            case places.THINKING:
                return ReasoningStreamed(turn=self._turn, item=ItemId(item), text=text, **at)
            case places.OUTPUT:
                return ToolStreamed(turn=self._turn, call=CallId(item), text=text, **at)
            case _:
                return None

    def _reply(self, frame: Frame, at: _At) -> Iterator[Event]:
        message = frame.message
        assert isinstance(message, Message)
        if not self._is_first("reply", self._replies.item(0)):
            yield FrameNoted(native=f"repeated {frame.type}", **at)
            return
        self._last = message
        if message.stop_reason in BROKEN_OFF:
            # Its text was streamed, but it is not a complete message. Its token count of 0 means unknown.
            self._is_usage_known = False
            yield FrameNoted(native=f"{frame.type} {message.stop_reason}", **at)
            return
        for index, block in message.blocks("thinking"):
            item = ItemId(self._replies.item(index))
            yield ReasoningSaid(turn=self._turn, item=item, text=block.thinking, **at)
        for index, block in message.blocks("text"):
            yield TextSaid(turn=self._turn, item=ItemId(self._replies.item(index)), text=block.text, **at)
        if message.usage is None:
            self._is_usage_known = False
        else:
            self._used.append(message.usage)
        if not message.blocks("thinking") and not message.blocks("text"):
            yield FrameNoted(native=frame.type, **at)

    def _tool(self, frame: Frame, at: _At) -> Event:
        id_ = frame.tool_call_id or ""
        if frame.type == "tool_execution_update":
            text = frame.partial_result.text if frame.partial_result else ""
            return ToolStreamed(turn=self._turn, call=CallId(id_), text=text, **at)
        if not self._is_first(frame.type, id_):
            return FrameNoted(native=f"repeated {frame.type}", **at)
        if frame.type == "tool_execution_start":
            call = self._calls[id_] = Call(id=id_, name=frame.tool_name or "", args=frame.args or {})
            self._emitted.discard(("tool_execution_end", id_))
            return ToolBegan(
                turn=self._turn, call=CallId(id_), kind=call.kind, name=call.our_name, input=call.input, **at
            )
        return self._tool_ended(frame, self._calls.pop(id_, Call(id=id_, name=frame.tool_name or "")), at)

    def _tool_ended(self, frame: Frame, call: Call, at: _At) -> ToolEnded:
        output = msgspec.json.decode(frame.result, type=Result).text if isinstance(frame.result, msgspec.Raw) else None
        status = "failed" if frame.is_error else "completed"
        exit_code = None
        if call.kind == "command":
            failed = _EXIT_CODE.search(output or "") if frame.is_error else None
            exit_code = int(failed[1]) if failed else None if frame.is_error else 0
        return ToolEnded(
            turn=self._turn,
            call=CallId(call.id),
            kind=call.kind,
            name=call.our_name,
            ok=not frame.is_error,
            status="declined" if call.id in self._declined else status,
            input=call.input,
            exit_code=exit_code,
            output=output,
            **at,
        )

    def _on_error(self, frame: Frame, at: _At) -> Event:
        text = frame.error_message or frame.final_error
        if text is None or frame.success:
            return FrameNoted(native=frame.type, **at)
        if frame.type == "auto_retry_end" and text == RETRY_CANCELLED and self._last is not None:
            # The turn ended because Proctor interrupted it, not because the reply failed.
            self._last = msgspec.structs.replace(self._last, stop_reason="aborted")
        class_, will_retry = error_class(text), frame.type == "auto_retry_start"
        failure = diagnose(FAILURES, class_, text, will_retry=will_retry)
        code = None if failure is None else failure.code
        return ErrorReported(text=text, error_class=class_, will_retry=will_retry, code=code, **at)

    def _question(self, frame: Frame, at: _At) -> Event:
        request, text = frame.id or "", frame.message if isinstance(frame.message, str) else None
        if frame.method not in DIALOGS:
            return FrameNoted(native=f"{frame.type} {frame.method}", **at)
        call = self._calls.get(text or "") if frame.title == ASKING else None
        if call is None:
            return ApprovalAsked(request=request, about="input", detail=frame.title, **at)
        self._asked_about[request] = call.id
        detail = call.command or ", ".join(call.paths) or call.name
        return ApprovalAsked(request=request, about=call.kind, call=CallId(call.id), detail=detail, **at)

    def _turn_ended(self, at: _At) -> TurnEnded:
        last = self._last
        status: Literal["completed", "failed", "interrupted"]
        match None if last is None else last.stop_reason:
            case "error" | None:
                status = "failed"
            case "aborted":
                status = "interrupted"
            case _:
                status = "completed"
        error = None if last is None or status == "completed" else last.error_message
        class_ = None if error is None else error_class(error)
        failure = diagnose(FAILURES, class_, error or "") if status == "failed" else None
        return TurnEnded(
            turn=self._turn,
            status=status,
            error=error,
            error_class=class_,
            code=None if failure is None else failure.code,
            **at,
        )

    def _is_first(self, what: str, id_: str) -> bool:
        is_first = (what, id_) not in self._emitted
        self._emitted.add((what, id_))
        return is_first


def _tokens(replies: list[Usage]) -> Tokens:
    """The tokens of all replies of a turn."""
    cached = sum(usage.cache_read for usage in replies)
    return Tokens(
        input=cached + sum(usage.input + usage.cache_write for usage in replies),
        output=sum(usage.output for usage in replies),
        total=sum(usage.total_tokens for usage in replies),
        cached_input=cached,
    )
