"""Claude Code's frames into events: native words meet ours here and nowhere else. Pure."""

from collections.abc import Iterator
from typing import Any, Final, Literal, TypeVar

import msgspec

from proctor.event.model import (
    ApprovalAsked,
    Asked,
    ErrorReported,
    Event,
    FactsStated,
    Noted,
    PromptSent,
    ReasoningSaid,
    ReasoningStreamed,
    Replied,
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
from proctor.event.row import Dir, Row, StepTaken, TailReleased
from proctor.event.witness import seen_in, witness
from proctor.fact import Authority, Fact
from proctor.ids import CallId, ItemId, ThreadId, TurnId
from proctor.runtime.claude_code import wire
from proctor.runtime.claude_code.failures import FAILURES, error_class
from proctor.runtime.claude_code.results import Called, called, ended, plus, text_of, tokens
from proctor.runtime.claude_code.turns import Turns
from proctor.runtime.failures import diagnose

STARTED: Final = "program started"
"""The step that says how the program was started, which its frames do not tell."""

T = TypeVar("T")
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_ABORTED: Final = ("aborted_streaming", "aborted_tools")


def _read(raw: bytes, type_: type[T]) -> T:
    decoder = _DECODERS.get(type_)
    if decoder is None:
        decoder = _DECODERS[type_] = msgspec.json.Decoder(type_)
    value: T = decoder.decode(raw)
    return value


class ClaudeNormalizer:
    """One session's view. A turn is named by the message of ours that it began with."""

    def __init__(self) -> None:
        self._turns = Turns()
        self._turn = TurnId("")
        self._has_begun = True
        self._thread: str | None = None
        self._started: dict[str, Any] = {}
        self._requests: dict[str, str] = {}
        self._calls: dict[str, Called] = {}
        self._ended: set[str] = set()
        self._told: set[str] = set()
        self._blocks: dict[str, int] = {}
        self._used: Tokens | None = None
        self._is_usage_known = True
        self._result: wire.Result | None = None

    def feed(self, row: Row) -> Iterator[Event]:
        if row.dir is Dir.SELF:
            yield self._witnessed(row)
            return
        raw = bytes(row.frame) if isinstance(row.frame, msgspec.Raw) else b""
        if row.dir is Dir.ERR:
            text = raw.decode() if raw else row.text or ""
            yield WarningRaised(source="process", text=text, channel="stderr", frame=row.seq, at_ms=row.at_ms)
            return
        try:
            envelope = _read(raw, wire.Envelope)
        except msgspec.DecodeError:
            yield Unrecognized(native="not a frame", frame=row.seq, at_ms=row.at_ms)
            return
        try:
            yield from self._sent(envelope, raw, row) if row.dir is Dir.OUT else self._heard(envelope, raw, row)
        except msgspec.DecodeError:
            # Known by name, of a shape we do not know: kept and counted like any stranger.
            yield Unrecognized(native=_name(envelope), frame=row.seq, at_ms=row.at_ms)

    def _witnessed(self, row: Row) -> Event:
        match seen_in(row):
            case StepTaken(step=step, detail=detail) if step == STARTED:
                self._started = detail
            case TailReleased(stream=stream, text=text):
                place, _, field = stream.rpartition("|")
                message, _, index = place.rpartition("|")
                if field in ("text", "thinking"):
                    return self._piece(f"{message}/{index}", field, text, row)
            case _:
                pass
        return witness(row)

    # ── what we said ──

    def _sent(self, envelope: wire.Envelope, raw: bytes, row: Row) -> Iterator[Event]:
        if envelope.type == "user":
            said = _read(raw, wire.Said)
            if self._turns.said(said.uuid):
                self._turn, self._has_begun = TurnId(said.uuid), False
                self._used, self._is_usage_known = None, True
            text = "\n".join(block.text or "" for block in said.message.blocks)
            yield PromptSent(text=text, frame=row.seq, at_ms=row.at_ms)
            return
        if envelope.type == "control_request" and envelope.request is not None:
            self._requests[envelope.request_id or ""] = envelope.request.subtype
            yield Asked(method=envelope.request.subtype, frame=row.seq, at_ms=row.at_ms)
            return
        about = self._requests.pop(envelope.response.request_id if envelope.response else "", "unknown request")
        yield Asked(method=f"reply: {about}", frame=row.seq, at_ms=row.at_ms)

    # ── what we heard ──

    def _heard(self, envelope: wire.Envelope, raw: bytes, row: Row) -> Iterator[Event]:
        match envelope.type:
            case "stream_event":
                yield self._streamed(envelope, row)
            case "assistant" | "user":
                said = _read(raw, wire.Said)
                yield from self._begun(row)
                if said.uuid in self._told or not said.message.blocks:
                    kind = "repeated" if said.message.blocks else "empty"
                    yield Noted(native=f"{kind} {envelope.type}", frame=row.seq, at_ms=row.at_ms)
                    return
                if said.uuid:
                    self._told.add(said.uuid)
                yield from self._assistant(said, row) if envelope.type == "assistant" else self._results(said, row)
            case "result":
                result = _read(raw, wire.Result)
                yield from self._begun(row)
                yield from self._resulted(result, row)
            case "control_request":
                yield self._question(envelope, row)
            case "control_response":
                yield self._replied(envelope, row)
            case "command_lifecycle":
                yield Noted(native=f"message {envelope.state}", frame=row.seq, at_ms=row.at_ms)
                if self._turns.heard_state(envelope.command_uuid or "", envelope.state or ""):
                    yield from self._over(row)
            case "system":
                yield from self._system(envelope, raw, row)
            case _:
                yield _known(envelope, row)

    def _begun(self, row: Row) -> Iterator[Event]:
        """A turn begins with the first sign of it."""
        if not self._has_begun:
            self._has_begun = True
            yield TurnBegan(turn=self._turn, frame=row.seq, at_ms=row.at_ms)

    def _system(self, envelope: wire.Envelope, raw: bytes, row: Row) -> Iterator[Event]:
        seq, at_ms = row.seq, row.at_ms
        match envelope.subtype:
            case "init":
                yield from self._session(_read(raw, wire.Init), row)
                yield from self._begun(row)
            case "api_retry":
                retry = _read(raw, wire.Retry)
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
                yield StatusChanged(status=_read(raw, wire.Status).status or "idle", frame=seq, at_ms=at_ms)
            case "permission_denied":
                denied = _read(raw, wire.Denied)
                text = f"{denied.tool_name} was refused without a question: {denied.message or 'no reason given'}"
                yield WarningRaised(source="thread", text=text, channel="system", frame=seq, at_ms=at_ms)
            case _:
                yield _known(envelope, row)

    def _session(self, init: wire.Init, row: Row) -> Iterator[Event]:
        """Said anew with every turn; only the first time is news."""
        if self._thread is not None:
            yield Noted(native="repeated system/init", frame=row.seq, at_ms=row.at_ms)
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
        told = {
            "version": ("claude_code_version", init.claude_code_version),
            "credentialSource": ("apiKeySource", init.api_key_source),
        }
        facts = {
            name: Fact(value=value, authority=Authority.REPORTED, source=f"system/init.{native}")
            for name, (native, value) in told.items()
            if value is not None
        }
        yield FactsStated(facts=facts, frame=row.seq, at_ms=row.at_ms)

    def _streamed(self, envelope: wire.Envelope, row: Row) -> Event:
        event = envelope.event
        if event is None or envelope.parent_tool_use_id is not None or event.delta is None:
            return Noted(native=_name(envelope), frame=row.seq, at_ms=row.at_ms)
        field = wire.STREAMED.get(event.delta.type, "")
        if field in ("text", "thinking"):
            piece = event.delta.text if field == "text" else event.delta.thinking
            return self._piece(f"{envelope.api_message_id or ''}/{event.index}", field, piece or "", row)
        return Noted(native=_name(envelope), frame=row.seq, at_ms=row.at_ms)

    def _piece(self, item: str, field: str, text: str, row: Row) -> Event:
        kind = TextStreamed if field == "text" else ReasoningStreamed
        return kind(turn=self._turn, item=ItemId(item), text=text, frame=row.seq, at_ms=row.at_ms)

    def _assistant(self, said: wire.Said, row: Row) -> Iterator[Event]:
        """Whole blocks of a message of the model's, each in a frame of its own, in their order."""
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
                # What a helper says is said to the agent; only the agent's own words can be a claim.
                yield Noted(native=f"somebody else's {block.type}", frame=seq, at_ms=at_ms)
            elif block.type == "text":
                yield TextSaid(turn=self._turn, item=item, text=block.text or "", frame=seq, at_ms=at_ms)
            elif block.type == "thinking":
                yield ReasoningSaid(turn=self._turn, item=item, text=block.thinking or "", frame=seq, at_ms=at_ms)
            elif block.type.endswith("_tool_result") and block.tool_use_id in self._calls:
                yield self._tool_ended(block, said, row)
            else:
                yield Noted(native=f"assistant {block.type}", frame=seq, at_ms=at_ms)

    def _tool_began(self, block: wire.Block, row: Row) -> Event:
        id_ = block.id or ""
        if id_ in self._calls:
            return Noted(native="repeated tool_use", frame=row.seq, at_ms=row.at_ms)
        call = self._calls[id_] = called(block.name or "", block.input)
        return ToolBegan(turn=self._turn, call=CallId(id_), **call._asdict(), frame=row.seq, at_ms=row.at_ms)

    def _results(self, said: wire.Said, row: Row) -> Iterator[Event]:
        """A `user` frame is what tools gave, or words that the program itself puts into the conversation."""
        for block in said.message.blocks:
            if block.type == "tool_result" and block.tool_use_id in self._calls:
                yield self._tool_ended(block, said, row)
            else:
                yield Noted(native=f"user {block.type}", frame=row.seq, at_ms=row.at_ms)

    def _tool_ended(self, block: wire.Block, said: wire.Said, row: Row) -> Event:
        id_ = block.tool_use_id or ""
        if id_ in self._ended:
            return Noted(native="repeated tool_result", frame=row.seq, at_ms=row.at_ms)
        self._ended.add(id_)
        call = self._calls[id_]
        end = ended(call.kind, block, unrun=said.tool_result_meta, details=said.tool_use_result)
        return ToolEnded(
            turn=self._turn, call=CallId(id_), **call._asdict(), **end._asdict(), frame=row.seq, at_ms=row.at_ms
        )

    def _resulted(self, result: wire.Result, row: Row) -> Iterator[Event]:
        if self._turns.current is None:
            yield Noted(native="result of a turn that nobody asked for", frame=row.seq, at_ms=row.at_ms)
            return
        self._result = result
        used = tokens(result.usage or wire.Usage())
        if not used.total:
            self._is_usage_known = False  # it counts neither a reply that was broken off nor a summary
        else:
            self._used = used if self._used is None else plus(self._used, used)
        if result.structured_output is not None:
            # It is said by a tool, and by no message.
            item = ItemId(f"{result.uuid}/result")
            text = result.result or ""
            yield TextSaid(turn=self._turn, item=item, text=text, phase="final_answer", frame=row.seq, at_ms=row.at_ms)
        if self._turns.heard_result():
            yield from self._over(row)
        else:
            yield Noted(native="result of a part of the turn", frame=row.seq, at_ms=row.at_ms)

    def _over(self, row: Row) -> Iterator[Event]:
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
        yield TurnEnded(
            turn=self._turn,
            status=status,
            error=error,
            error_class=class_,
            code=code,
            frame=row.seq,
            at_ms=row.at_ms,
        )

    # ── questions and replies ──

    def _question(self, envelope: wire.Envelope, row: Row) -> Event:
        request = envelope.request or wire.Request()
        self._requests[envelope.request_id or ""] = request.subtype
        if request.subtype == "hook_callback":
            hook = msgspec.convert(request.input, wire.Hook)
            if not hook.tool_use_id or hook.tool_use_id in self._calls:
                return Noted(native="hook_callback", frame=row.seq, at_ms=row.at_ms)
            # The message it stands in was lost, or is a helper's and was never told.
            block = wire.Block(type="tool_use", id=hook.tool_use_id, name=hook.tool_name, input=hook.tool_input)
            return self._tool_began(block, row)
        if request.subtype == "mcp_message":
            return Noted(native="mcp_message", frame=row.seq, at_ms=row.at_ms)
        if request.subtype != "can_use_tool":
            return Unrecognized(native=f"control_request/{request.subtype}", frame=row.seq, at_ms=row.at_ms)
        call = called(request.tool_name or "", request.input)
        given = request.input if isinstance(request.input, dict) else {}
        return ApprovalAsked(
            request=envelope.request_id or "",
            about=call.kind,
            call=None if request.tool_use_id is None else CallId(request.tool_use_id),
            detail=text_of(given.get("command")) or request.decision_reason or call.name,
            frame=row.seq,
            at_ms=row.at_ms,
        )

    def _replied(self, envelope: wire.Envelope, row: Row) -> Event:
        response = envelope.response or wire.Response()
        method = self._requests.pop(response.request_id, None)
        if method is None:
            return Unrecognized(native="reply to nothing", frame=row.seq, at_ms=row.at_ms)
        error = response.error if response.subtype == "error" else None
        return Replied(method=method, error=error, frame=row.seq, at_ms=row.at_ms)


def _name(envelope: wire.Envelope) -> str:
    if envelope.type == "stream_event" and envelope.event is not None:
        return f"stream_event {envelope.event.type}"
    return envelope.type if envelope.subtype is None else f"{envelope.type}/{envelope.subtype}"


def _known(envelope: wire.Envelope, row: Row) -> Event:
    kind = Noted if _name(envelope) in wire.SILENT else Unrecognized
    return kind(native=_name(envelope) or "not a frame", frame=row.seq, at_ms=row.at_ms)
