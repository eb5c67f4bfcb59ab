"""transcript.jsonl: what was said, with status, warning and summary rows, folded from events."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from proctor.event.bounds import TEXT_BYTES, cut
from proctor.event.model import (
    ApprovalAsked,
    ApprovalResolved,
    Cancelled,
    ClockFired,
    ErrorReported,
    Event,
    FactsStated,
    HookRan,
    LimitReached,
    NoteMade,
    PromptSent,
    ReasoningSaid,
    ReasoningStreamed,
    SessionBegan,
    SessionRefused,
    StatusChanged,
    StreamEnded,
    TextSaid,
    TextStreamed,
    ToolBegan,
    ToolEnded,
    TurnAsked,
    TurnBegan,
    TurnEnded,
    Unrecognized,
    WarningRaised,
)
from proctor.event.outcome import Ending
from proctor.event.witness import HOOK
from proctor.fact import Fact
from proctor.ids import ItemId, ThreadId

Kind = Literal[
    "facts",
    "session",
    "prompt",
    "turn",
    "message",
    "reasoning",
    "tool",
    "status",
    "warning",
    "error",
    "approval",
    "end",
    "note",
    "summary",
]


_TOLD = ("persistence", "history", "threadStatus", "processState", "laneState", "version")
_TOLD_OF = {
    "modelRequested": ("model", "requested"),
    "modelEffective": ("model", "effective"),
    "usageAuthority": ("usage", "authority"),
    "executableSha256": ("identity", "sha256"),
    "executableSource": ("identity", "source"),
    "executableVersion": ("identity", "version"),
}

# Enough of a call to recognise it by; the whole of it is in the trace.
DEED_BYTES = 500


class Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One row of the transcript. `partial` marks a message the agent began and never finished.

    `channel` is what a status or a warning came by, `rule` what attributed a warning by its text. `facts` are those
    that matter to a reader, as they were stated first, and in the summary as they were settled.
    """

    kind: Kind
    at_ms: int
    frame: int
    text: str
    source: str | None = None
    status: str | None = None
    channel: str | None = None
    rule: str | None = None
    facts: dict[str, Any] | None = None
    partial: bool = False
    cut_bytes: int = 0


class _Draft:
    """A message still being streamed; kept only up to the bound."""

    def __init__(self, event: TextStreamed | ReasoningStreamed) -> None:
        self.kind: Kind = "message" if isinstance(event, TextStreamed) else "reasoning"
        self.pieces: list[str] = []
        self.kept_chars = 0
        self.bytes = 0
        self.at_ms = event.at_ms
        self.frame = event.frame

    def add(self, event: TextStreamed | ReasoningStreamed) -> None:
        self.bytes += len(event.text.encode("utf-8", "surrogatepass"))
        self.at_ms, self.frame = event.at_ms, event.frame
        if self.kept_chars < TEXT_BYTES:
            self.pieces.append(event.text)
            self.kept_chars += len(event.text)

    def line(self) -> Line:
        text, _ = cut("".join(self.pieces), limit_bytes=TEXT_BYTES)
        return Line(
            kind=self.kind,
            at_ms=self.at_ms,
            frame=self.frame,
            text=text,
            partial=True,
            cut_bytes=self.bytes - len(text.encode("utf-8", "surrogatepass")),
        )


class TranscriptFold:
    """Rows as they happen; drafts that never became messages at the end, then one summary row."""

    def __init__(self) -> None:
        self._drafts: dict[ItemId, _Draft] = {}
        self._last = (0, 0)
        self._thread: ThreadId | None = None
        self._has_facts = False

    def feed(self, event: Event) -> Line | None:
        self._last = (event.at_ms, event.frame)
        match event:
            case TextStreamed() | ReasoningStreamed():
                self._drafts.setdefault(event.item, _Draft(event)).add(event)
                return None
            case TextSaid() | ReasoningSaid():
                self._drafts.pop(event.item, None)
                kind: Kind = "message" if isinstance(event, TextSaid) else "reasoning"
                return _line(event, kind, event.text, source=event.phase if isinstance(event, TextSaid) else None)
            case FactsStated(facts=facts):
                if self._has_facts or not (stated := _telling(facts)):
                    return None
                self._has_facts = True
                return _facts_line(event, stated)
            case SessionBegan(thread=thread):
                self._thread = thread
                return _plain_line(event)
            case _:
                return _plain_line(event)

    def finish(self, ending: Ending, *, summary: str, facts: Mapping[str, Fact]) -> Iterator[Line]:
        for draft in self._drafts.values():
            yield draft.line()
        self._drafts.clear()
        at_ms, frame = self._last
        yield Line(
            kind="summary",
            at_ms=at_ms,
            frame=frame,
            text=summary,
            status=ending.outcome,
            source=ending.code,
            facts={"thread": self._thread, **_telling(facts)},
        )


def _telling(facts: Mapping[str, Fact]) -> dict[str, Any]:
    """The facts that say what the rows between are worth, in as few words as there are."""
    told = {name: facts[name].value for name in _TOLD if name in facts}
    for name, (fact, key) in _TOLD_OF.items():
        if fact in facts and isinstance(value := facts[fact].value, dict) and key in value:
            told[name] = value[key]
    return told


def _facts_line(event: Event, facts: dict[str, Any]) -> Line:
    text = ", ".join(f"{name} {value}" for name, value in facts.items())
    return msgspec.structs.replace(_line(event, "facts", text), facts=facts)


def _line(event: Event, kind: Kind, text: str, *, source: str | None = None, status: str | None = None) -> Line:
    kept, left_out = cut(text, limit_bytes=TEXT_BYTES)
    return Line(
        kind=kind, at_ms=event.at_ms, frame=event.frame, text=kept, source=source, status=status, cut_bytes=left_out
    )


def _deed(event: ToolBegan) -> str:
    """What a call is about to do, in one line."""
    match event.input:
        case {"command": str(command)}:
            about = command
        case {"changes": [*changes]}:
            about = ", ".join(str(change.get("path")) for change in changes if isinstance(change, dict))
        case given:
            about = msgspec.json.encode(given).decode()
    return f"{event.name}: {cut(about, limit_bytes=DEED_BYTES)[0]}"


def _plain_line(event: Event) -> Line | None:
    match event:
        case SessionBegan(thread=thread, model=model, cwd=cwd):
            line = _line(event, "session", f"thread {thread} on model {model or 'unknown'}")
            return msgspec.structs.replace(line, facts={"thread": thread, "modelEffective": model, "cwd": cwd})
        case TurnAsked(text=asked):
            return _line(
                event, "turn", "a turn is asked for" if asked else "shorter history is asked for", status="asked"
            )
        case PromptSent(text=text):
            return _line(event, "prompt", text)
        case TurnBegan(turn=turn):
            return _line(event, "turn", f"turn {turn} began", status="began")
        case TurnEnded(turn=turn, status=status, error=error):
            return _line(event, "turn", f"turn {turn} {status}" + (f": {error}" if error else ""), status=status)
        case ToolBegan(call=call, kind=kind):
            return _line(event, "tool", _deed(event), source=f"{kind}:{call}", status="began")
        case ToolEnded(call=call, name=name, kind=kind, status=status):
            return _line(event, "tool", f"{name} {status}", source=f"{kind}:{call}", status=status)
        case StatusChanged(status=status, flags=flags):
            line = _line(event, "status", " ".join((status, *flags)), status=status)
            return msgspec.structs.replace(line, channel=event.channel)
        case WarningRaised(source=source, text=text, channel=channel, rule=rule):
            return msgspec.structs.replace(_line(event, "warning", text, source=source), channel=channel, rule=rule)
        case ErrorReported(text=text, error_class=error_class, will_retry=will_retry):
            return _line(event, "error", text, source=error_class, status="retrying" if will_retry else None)
        case ApprovalAsked(request=request, about=about, detail=detail):
            return _line(event, "approval", detail or about, source=f"{about}:{request}", status="asked")
        case ApprovalResolved(request=request, decision=decision, by=by):
            return _line(event, "approval", f"{decision} by {by}", source=request, status=decision)
        case ClockFired(clock=clock, limit_ms=limit_ms):
            return _line(event, "end", f"the {clock} clock fired at {limit_ms} ms", source=clock)
        case LimitReached(limit=limit, most=most, used=used):
            return _line(event, "end", f"{used} {limit} used, {most} allowed", source=limit)
        case Cancelled(why=why):
            return _line(event, "end", why, source="cancelled")
        case SessionRefused(code=code, detail=detail):
            return _line(event, "end", detail, source=code)
        case StreamEnded(cause=cause):
            return _line(event, "end", cause, source="channel")
        case NoteMade(text=text):
            return _line(event, "note", text, source="agent")
        case HookRan(text=text):
            return _line(event, "note", text, source=HOOK)
        case Unrecognized(native=native):
            return _line(event, "note", f"unrecognized frame: {native}")
        case _:
            return None
