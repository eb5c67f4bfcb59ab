"""Convert Claude Code's frames to events. Pure."""

from collections.abc import Iterator
from typing import Any, Final, Literal, TypeVar

import msgspec

from proctor import decoding
from proctor.event.model import (
    ApprovalAsked,
    ErrorReported,
    Event,
    FactsStated,
    FrameNoted,
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
    ToolEnded,
    TurnBegan,
    TurnEnded,
    Unrecognized,
    UsageAuthority,
    UsageReported,
    WarningRaised,
)
from proctor.event.row import Direction, Row, StepTaken, TailReleased
from proctor.event.supervisor_events import decode_supervisor_row, supervisor_event
from proctor.fact import Authority, Fact
from proctor.ids import CallId, ItemId, ThreadId, TurnId
from proctor.runtime.claude_code import wire
from proctor.runtime.claude_code.compactions import Compactions
from proctor.runtime.claude_code.failures import FAILURES, error_class
from proctor.runtime.claude_code.results import ToolUse, plus, text_of, tokens, tool_result, tool_use
from proctor.runtime.claude_code.turns import Turns
from proctor.runtime.failures import diagnose

STARTED: Final = "program started"
"""The step that records how the program was started, which its frames do not contain."""

T = TypeVar("T")
_ABORTED: Final = ("aborted_streaming", "aborted_tools")


class ClaudeNormalizer:
    """Normalizes the frames of one session. The id of a turn is that of the message it began with."""

    def __init__(self) -> None:
        self._turns = Turns()
        self._turn = TurnId("")
        self._has_begun = True
        self._thread: str | None = None
        self._started: dict[str, Any] = {}
        self._requests: dict[str, str] = {}
        self._calls: dict[str, ToolUse] = {}
        self._ended: set[str] = set()
        self._emitted: set[str] = set()
        self._blocks: dict[str, int] = {}
        self._used: Tokens | None = None
        self._is_usage_known = True
        self._result: wire.Result | None = None
        self._compactions = Compactions()

    def feed(self, row: Row) -> Iterator[Event]:
        if row.dir is Direction.SELF:
            yield self._from_supervisor(row)
            return
        raw = bytes(row.frame) if isinstance(row.frame, msgspec.Raw) else b""
        if row.dir is Direction.ERR:
            text = raw.decode() if raw else row.text or ""
            yield WarningRaised(source="process", text=text, channel="stderr", frame=row.seq, at_ms=row.at_ms)
            return
        try:
            envelope = decoding.decode(raw, wire.Envelope)
        except msgspec.DecodeError:
            yield Unrecognized(native="not a frame", frame=row.seq, at_ms=row.at_ms)
            return
        try:
            yield from (
                self._to_agent(envelope, raw, row) if row.dir is Direction.OUT else self._from_agent(envelope, raw, row)
            )
        except msgspec.DecodeError:
            # A known type with an unknown shape: recorded and counted as unrecognized.
            yield Unrecognized(native=_name(envelope), frame=row.seq, at_ms=row.at_ms)

    def _from_supervisor(self, row: Row) -> Event:
        match decode_supervisor_row(row):
            case StepTaken(step=step, detail=detail) if step == STARTED:
                self._started = detail
            case TailReleased(stream=stream, text=text):
                place, _, field = stream.rpartition("|")
                message, _, index = place.rpartition("|")
                if field in ("text", "thinking"):
                    return self._piece(f"{message}/{index}", field, text, row)
            case _:
                pass
        return supervisor_event(row)

    # ── frames to the agent ──

    def _to_agent(self, envelope: wire.Envelope, raw: bytes, row: Row) -> Iterator[Event]:
        if envelope.type in ("user", "assistant"):
            said = decoding.decode(raw, wire.Said)
            if envelope.type == "assistant" or said.is_given:
                self._turns.give(said.uuid)
                self._compactions.heard_given(said.uuid)
                yield RequestSent(method=f"give {envelope.type}", frame=row.seq, at_ms=row.at_ms)
                return
            if is_first := self._turns.said(said.uuid):
                self._turn, self._has_begun = TurnId(said.uuid), False
                self._used, self._is_usage_known = None, True
            text = "\n".join(block.text or "" for block in said.message.blocks)
            if is_first:
                self._compactions.heard_prompt(text)
            self._compactions.heard_message(said.uuid, frame=row.seq)
            yield PromptSent(text=text, frame=row.seq, at_ms=row.at_ms)
            return
        if envelope.type == "control_request" and envelope.request is not None:
            self._requests[envelope.request_id or ""] = envelope.request.subtype
            yield RequestSent(method=envelope.request.subtype, frame=row.seq, at_ms=row.at_ms)
            return
        about = self._requests.pop(envelope.response.request_id if envelope.response else "", "unknown request")
        yield RequestSent(method=f"reply: {about}", frame=row.seq, at_ms=row.at_ms)

    # ── frames from the agent ──

    def _from_agent(self, envelope: wire.Envelope, raw: bytes, row: Row) -> Iterator[Event]:
        match envelope.type:
            case "stream_event":
                yield self._streamed(envelope, row)
            case "assistant" | "user":
                said = decoding.decode(raw, wire.Said)
                yield from self._begin_turn(row)
                if said.uuid in self._emitted or not said.message.blocks:
                    kind = "repeated" if said.message.blocks else "empty"
                    yield FrameNoted(native=f"{kind} {envelope.type}", frame=row.seq, at_ms=row.at_ms)
                    return
                if said.uuid:
                    self._emitted.add(said.uuid)
                    self._compactions.heard_message(said.uuid, frame=row.seq)
                yield from (
                    self._assistant_blocks(said, row) if envelope.type == "assistant" else self._tool_results(said, row)
                )
            case "result" if self._turns.is_giving:
                yield FrameNoted(native="result of a given message", frame=row.seq, at_ms=row.at_ms)
            case "result":
                result = decoding.decode(raw, wire.Result)
                yield from self._begin_turn(row)
                yield from self._on_result(result, row)
            case "control_request":
                yield self._on_control_request(envelope, row)
            case "control_response":
                yield self._reply(envelope, row)
            case "command_lifecycle":
                yield FrameNoted(native=f"message {envelope.state}", frame=row.seq, at_ms=row.at_ms)
                if self._turns.heard_state(envelope.command_uuid or "", envelope.state or ""):
                    yield from self._end_turn(row)
            case "system":
                yield from self._system(envelope, raw, row)
            case _:
                yield _known(envelope, row)

    def _begin_turn(self, row: Row) -> Iterator[Event]:
        """Emit the beginning of the turn with its first frame."""
        if not self._has_begun and not self._turns.is_giving:
            self._has_begun = True
            yield TurnBegan(turn=self._turn, frame=row.seq, at_ms=row.at_ms)

    def _system(self, envelope: wire.Envelope, raw: bytes, row: Row) -> Iterator[Event]:
        seq, at_ms = row.seq, row.at_ms
        match envelope.subtype:
            case "init":
                yield from self._session_began(decoding.decode(raw, wire.Init), row)
                yield from self._begin_turn(row)
            case "api_retry":
                retry = decoding.decode(raw, wire.Retry)
                class_ = error_class(retry.error, retry.error_status)
                failure = diagnose(FAILURES, class_, "", will_retry=True)
                yield ErrorReported(
                    text=f"{class_}: trying again ({retry.attempt} of {retry.max_retries})",
                    error_class=class_,
                    will_retry=True,
                    code=None if failure is None else failure.code,
                    retry_after_ms=None if retry.retry_delay_ms is None else int(retry.retry_delay_ms),
                    frame=seq,
                    at_ms=at_ms,
                )
            case "status":
                status = decoding.decode(raw, wire.Status)
                if status.status == wire.COMPACTING:
                    yield from self._begin_turn(row)
                yield StatusChanged(status=status.status or "idle", frame=seq, at_ms=at_ms)
                if not self._is_repeated(envelope):
                    yield from self._compactions.heard_status(status, frame=seq, at_ms=at_ms)
            case "compact_boundary":
                boundary = decoding.decode(raw, wire.CompactBoundary)
                if self._is_repeated(envelope):
                    yield FrameNoted(native="repeated system/compact_boundary", frame=seq, at_ms=at_ms)
                    return
                yield from self._compactions.heard_boundary(boundary.compact_metadata, frame=seq, at_ms=at_ms)
            case "permission_denied":
                denied = decoding.decode(raw, wire.Denied)
                text = f"{denied.tool_name} was refused without a question: {denied.message or 'no reason given'}"
                yield WarningRaised(source="thread", text=text, channel="system", frame=seq, at_ms=at_ms)
            case _:
                yield _known(envelope, row)

    def _is_repeated(self, envelope: wire.Envelope) -> bool:
        """Return whether this frame was received before. Frames may be repeated, events may not."""
        id_ = envelope.uuid or ""
        is_repeated = id_ in self._emitted
        if id_:
            self._emitted.add(id_)
        return is_repeated

    def _session_began(self, init: wire.Init, row: Row) -> Iterator[Event]:
        """Emit the beginning of the session. The agent repeats this frame with every turn; only the first counts."""
        if self._thread is not None:
            yield FrameNoted(native="repeated system/init", frame=row.seq, at_ms=row.at_ms)
            return
        self._thread = init.session_id
        yield SessionBegan(
            thread=ThreadId(init.session_id),
            model=init.model,
            cwd=init.cwd,
            ephemeral=self._started.get("ephemeral"),
            is_resumed=bool(self._started.get("resumed")),
            frame=row.seq,
            at_ms=row.at_ms,
        )
        reported = {
            "version": ("claude_code_version", init.claude_code_version),
            "credentialSource": ("apiKeySource", init.api_key_source),
        }
        facts = {
            name: Fact(value=value, authority=Authority.REPORTED, source=f"system/init.{native}")
            for name, (native, value) in reported.items()
            if value is not None
        }
        yield FactsStated(facts=facts, frame=row.seq, at_ms=row.at_ms)

    def _streamed(self, envelope: wire.Envelope, row: Row) -> Event:
        event = envelope.event
        if event is None or envelope.parent_tool_use_id is not None or event.delta is None:
            return FrameNoted(native=_name(envelope), frame=row.seq, at_ms=row.at_ms)
        field = wire.STREAMED.get(event.delta.type, "")
        if field in ("text", "thinking"):
            piece = event.delta.text if field == "text" else event.delta.thinking
            return self._piece(f"{envelope.api_message_id or ''}/{event.index}", field, piece or "", row)
        return FrameNoted(native=_name(envelope), frame=row.seq, at_ms=row.at_ms)

    def _piece(self, item: str, field: str, text: str, row: Row) -> Event:
        kind = TextStreamed if field == "text" else ReasoningStreamed
        return kind(turn=self._turn, item=ItemId(item), text=text, frame=row.seq, at_ms=row.at_ms)

    def _assistant_blocks(self, said: wire.Said, row: Row) -> Iterator[Event]:
        """Return the events of complete blocks of a model message, which arrive in order and in separate frames."""
        seq, at_ms = row.seq, row.at_ms
        if said.error is not None:
            text = "".join(block.text or "" for block in said.message.blocks)
            class_ = error_class(said.error, said.api_error_status)
            yield ErrorReported(text=text, error_class=class_, will_retry=False, frame=seq, at_ms=at_ms)
            return
        for block in said.message.blocks:
            index = self._blocks.get(said.message.id, 0)
            self._blocks[said.message.id] = index + 1
            item = ItemId(f"{said.message.id}/{index}")
            if block.type in ("tool_use", "server_tool_use") and block.id is not None:
                yield self._tool_began(block, row)
            elif said.parent_tool_use_id is not None or said.message.model == "<synthetic>":
                # A subagent's message goes to the agent. Only the agent's own messages can contain a claim.
                yield FrameNoted(native=f"subagent's {block.type}", frame=seq, at_ms=at_ms)
            elif block.type == "text":
                yield TextSaid(turn=self._turn, item=item, text=block.text or "", frame=seq, at_ms=at_ms)
            elif block.type == "thinking":
                yield ReasoningSaid(turn=self._turn, item=item, text=block.thinking or "", frame=seq, at_ms=at_ms)
            elif block.type.endswith("_tool_result") and block.tool_use_id in self._calls:
                yield self._tool_ended(block, said, row)
            else:
                yield FrameNoted(native=f"assistant {block.type}", frame=seq, at_ms=at_ms)

    def _tool_began(self, block: wire.Block, row: Row) -> Event:
        id_ = block.id or ""
        if id_ in self._calls:
            return FrameNoted(native="repeated tool_use", frame=row.seq, at_ms=row.at_ms)
        call = self._calls[id_] = tool_use(block.name or "", block.input)
        return ToolBegan(turn=self._turn, call=CallId(id_), **call._asdict(), frame=row.seq, at_ms=row.at_ms)

    def _tool_results(self, said: wire.Said, row: Row) -> Iterator[Event]:
        """Emit the ends of tool calls. A `user` frame holds tool results, or text that the program itself inserted."""
        for block in said.message.blocks:
            if block.type == "tool_result" and block.tool_use_id in self._calls:
                yield self._tool_ended(block, said, row)
            else:
                yield FrameNoted(native=f"user {block.type}", frame=row.seq, at_ms=row.at_ms)

    def _tool_ended(self, block: wire.Block, said: wire.Said, row: Row) -> Event:
        id_ = block.tool_use_id or ""
        if id_ in self._ended:
            return FrameNoted(native="repeated tool_result", frame=row.seq, at_ms=row.at_ms)
        self._ended.add(id_)
        call = self._calls[id_]
        end = tool_result(call.kind, block, unrun=said.tool_result_meta, details=said.tool_use_result)
        return ToolEnded(
            turn=self._turn, call=CallId(id_), **call._asdict(), **end._asdict(), frame=row.seq, at_ms=row.at_ms
        )

    def _on_result(self, result: wire.Result, row: Row) -> Iterator[Event]:
        if self._turns.current is None:
            yield FrameNoted(native="result of an unrequested turn", frame=row.seq, at_ms=row.at_ms)
            return
        self._result = result
        used = tokens(result.usage or wire.Usage())
        if not used.total:
            self._is_usage_known = False  # the program counts neither an interrupted reply nor a summary
        else:
            self._used = used if self._used is None else plus(self._used, used)
        if result.structured_output is not None:
            # Structured output comes from a tool call, so no message contains it.
            item = ItemId(f"{result.uuid}/result")
            text = result.result or ""
            yield TextSaid(turn=self._turn, item=item, text=text, phase="final_answer", frame=row.seq, at_ms=row.at_ms)
        if self._turns.heard_result():
            yield from self._end_turn(row)
        else:
            yield FrameNoted(native="result of a part of the turn", frame=row.seq, at_ms=row.at_ms)

    def _end_turn(self, row: Row) -> Iterator[Event]:
        result = self._result or wire.Result()
        if self._is_usage_known and self._used is not None:
            yield UsageReported(
                tokens=self._used,
                scope="turn",
                basis="absolute",
                authority=UsageAuthority.LIVE_TURN_COMPLETED,
                turn=self._turn,
                frame=row.seq,
                at_ms=row.at_ms,
            )
        status: Literal["completed", "failed", "interrupted"] = "completed"
        error = class_ = code = None
        if result.terminal_reason in _ABORTED:
            status = "interrupted"
        elif result.is_error or result.subtype != "success":
            status, error = "failed", result.result or "; ".join(result.errors) or result.subtype
            reason = result.terminal_reason if result.subtype == "success" else result.subtype
            class_ = error_class(reason, result.api_error_status)
            failure = diagnose(FAILURES, class_, error)
            code = None if failure is None else failure.code
        ended = TurnEnded(
            turn=self._turn,
            status=status,
            error=error,
            error_class=class_,
            code=code,
            frame=row.seq,
            at_ms=row.at_ms,
        )
        yield from self._compactions.missing_before(ended)
        yield ended

    # ── questions and replies ──

    def _on_control_request(self, envelope: wire.Envelope, row: Row) -> Event:
        request = envelope.request or wire.Request()
        self._requests[envelope.request_id or ""] = request.subtype
        if request.subtype == "hook_callback":
            hook = decoding.convert(request.input, wire.Hook)
            if not hook.tool_use_id or hook.tool_use_id in self._calls:
                return FrameNoted(native="hook_callback", frame=row.seq, at_ms=row.at_ms)
            # The message with this call was lost, or belongs to a subagent and was not reported.
            block = wire.Block(type="tool_use", id=hook.tool_use_id, name=hook.tool_name, input=hook.tool_input)
            return self._tool_began(block, row)
        if request.subtype == "mcp_message":
            return FrameNoted(native="mcp_message", frame=row.seq, at_ms=row.at_ms)
        if request.subtype != "can_use_tool":
            return Unrecognized(native=f"control_request/{request.subtype}", frame=row.seq, at_ms=row.at_ms)
        call = tool_use(request.tool_name or "", request.input)
        input_ = request.input if isinstance(request.input, dict) else {}
        return ApprovalAsked(
            request=envelope.request_id or "",
            about=call.kind,
            call=None if request.tool_use_id is None else CallId(request.tool_use_id),
            detail=text_of(input_.get("command")) or request.decision_reason or call.name,
            frame=row.seq,
            at_ms=row.at_ms,
        )

    def _reply(self, envelope: wire.Envelope, row: Row) -> Event:
        response = envelope.response or wire.Response()
        method = self._requests.pop(response.request_id, None)
        if method is None:
            return Unrecognized(native="reply to nothing", frame=row.seq, at_ms=row.at_ms)
        error = response.error if response.subtype == "error" else None
        return ReplyReceived(method=method, error=error, frame=row.seq, at_ms=row.at_ms)


def _name(envelope: wire.Envelope) -> str:
    if envelope.type == "stream_event" and envelope.event is not None:
        return f"stream_event {envelope.event.type}"
    return envelope.type if envelope.subtype is None else f"{envelope.type}/{envelope.subtype}"


def _known(envelope: wire.Envelope, row: Row) -> Event:
    kind = FrameNoted if _name(envelope) in wire.SILENT else Unrecognized
    return kind(native=_name(envelope) or "not a frame", frame=row.seq, at_ms=row.at_ms)
