"""Fold events into tool.calls.jsonl, with one row per tool call."""

from typing import Any

import msgspec

from proctor.event.bounds import PREVIEW_BYTES, bounded_input, cut
from proctor.event.model import Event, SessionBegan, ToolBegan, ToolEnded, ToolKind
from proctor.ids import AttemptId, CallId, SessionId, TurnId, session_id_of


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One row of tool.calls.jsonl: one tool call."""

    attempt: AttemptId
    """Id of the attempt."""

    session: SessionId | None
    """Id of the session, as `sessionId` in runner.ref.json; null if the agent had not named its thread yet."""

    call: CallId
    """Id of the call."""

    turn: TurnId
    """Id of the turn."""

    kind: ToolKind
    """Kind of tool."""

    name: str
    """Name of the tool."""

    input: Any
    """The tool's input; if it is too long, the beginning of its JSON as text."""

    ok: bool | None
    """Whether the call succeeded; None if its end was not recorded."""

    status: str
    """The agent's own word for how the call ended; `unfinished` if its end was not recorded."""

    began_at_ms: int
    """Wall-clock time of the start, in milliseconds since the epoch; that of the end if the start was not recorded."""

    ended_at_ms: int | None = None
    """Wall-clock time of the end, in milliseconds since the epoch."""

    duration_ms: int | None = None
    """Duration in milliseconds: the agent's number, else the time between start and end."""

    exit_code: int | None = None
    """Exit status of a command; None if unknown."""

    output: str | None = None
    """The tool's output, cut to 16 KiB; None if the agent did not report it."""

    output_bytes: int | None = None
    """Size of the whole output, in bytes."""

    cut_output_bytes: int = 0
    """Number of bytes of the output that were left out."""

    cut_input_bytes: int = 0
    """Number of bytes of the input's JSON that were left out."""

    began_frame: int | None = None
    """Number of the row that recorded the start."""

    ended_frame: int | None = None
    """Number of the row that recorded the end."""


class TraceFold:
    """Fold the events of an attempt into rows: one when a call ends, and at the end one for each call that did not."""

    def __init__(self, attempt: AttemptId) -> None:
        self._attempt = attempt
        self._session: SessionId | None = None
        self._open: dict[CallId, ToolBegan] = {}

    def feed(self, event: Event) -> ToolCall | None:
        match event:
            case SessionBegan(thread=thread):
                self._session = session_id_of(self._attempt, thread)
            case ToolBegan():
                self._open[event.call] = event
            case ToolEnded():
                return self._ended(event, self._open.pop(event.call, None))
        return None

    def finish(self) -> list[ToolCall]:
        unfinished = [self._unfinished(began) for began in self._open.values()]
        self._open.clear()
        return unfinished

    def _ended(self, event: ToolEnded, began: ToolBegan | None) -> ToolCall:
        input_ = event.input if began is None or event.input is not None else began.input
        value, cut_input = bounded_input(input_)
        output, cut_output = (None, 0) if event.output is None else cut(event.output, limit_bytes=PREVIEW_BYTES)
        began_at_ms = event.at_ms if began is None else began.at_ms
        return ToolCall(
            attempt=self._attempt,
            session=self._session,
            call=event.call,
            turn=event.turn,
            kind=event.kind,
            name=event.name,
            input=value,
            ok=event.ok,
            status=event.status,
            began_at_ms=began_at_ms,
            ended_at_ms=event.at_ms,
            duration_ms=event.duration_ms if event.duration_ms is not None else event.at_ms - began_at_ms,
            exit_code=event.exit_code,
            output=output,
            output_bytes=None if event.output is None else len(event.output.encode("utf-8", "surrogatepass")),
            cut_output_bytes=cut_output,
            cut_input_bytes=cut_input,
            began_frame=None if began is None else began.frame,
            ended_frame=event.frame,
        )

    def _unfinished(self, began: ToolBegan) -> ToolCall:
        value, cut_input = bounded_input(began.input)
        return ToolCall(
            attempt=self._attempt,
            session=self._session,
            call=began.call,
            turn=began.turn,
            kind=began.kind,
            name=began.name,
            input=value,
            ok=None,
            status="unfinished",
            began_at_ms=began.at_ms,
            cut_input_bytes=cut_input,
            began_frame=began.frame,
        )
