"""tool.calls.jsonl: one row a real tool call, folded from events."""

from typing import Any

import msgspec

from proctor.event.bounds import PREVIEW_BYTES, bounded_input, cut
from proctor.event.model import Event, ToolBegan, ToolEnded, ToolKind
from proctor.ids import CallId, TurnId


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One call. `ok` is None where it never ended. `cut…` says how many bytes a bound left out."""

    call: CallId
    turn: TurnId
    kind: ToolKind
    name: str
    input: Any
    ok: bool | None
    status: str
    began_at_ms: int
    ended_at_ms: int | None = None
    duration_ms: int | None = None
    exit_code: int | None = None
    output: str | None = None
    output_bytes: int | None = None
    cut_output_bytes: int = 0
    cut_input_bytes: int = 0
    began_frame: int | None = None
    ended_frame: int | None = None


class TraceFold:
    """A row when a call ends; at the end a row for each call that never did."""

    def __init__(self) -> None:
        self._open: dict[CallId, ToolBegan] = {}

    def feed(self, event: Event) -> ToolCall | None:
        if isinstance(event, ToolBegan):
            self._open[event.call] = event
        elif isinstance(event, ToolEnded):
            return _ended(event, self._open.pop(event.call, None))
        return None

    def finish(self) -> list[ToolCall]:
        unfinished = [_unfinished(began) for began in self._open.values()]
        self._open.clear()
        return unfinished


def _ended(event: ToolEnded, began: ToolBegan | None) -> ToolCall:
    given = event.input if began is None or event.input is not None else began.input
    value, cut_input = bounded_input(given)
    output, cut_output = (None, 0) if event.output is None else cut(event.output, limit_bytes=PREVIEW_BYTES)
    began_at_ms = event.at_ms if began is None else began.at_ms
    return ToolCall(
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


def _unfinished(began: ToolBegan) -> ToolCall:
    value, cut_input = bounded_input(began.input)
    return ToolCall(
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
