"""Fold events into transcript.jsonl: messages, tool calls, status, warnings and a summary."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from proctor.event.bounds import TEXT_BYTES, cut
from proctor.event.model import (
    ApprovalAsked,
    ApprovalResolved,
    Cancelled,
    ClockFired,
    CompactionBegan,
    CompactionEnded,
    ContextAssembled,
    ContextDegraded,
    ErrorReported,
    Event,
    FactsStated,
    FailureObserved,
    HistoryGiven,
    HookRan,
    LimitReached,
    NoteMade,
    PromptSent,
    ReasoningSaid,
    ReasoningStreamed,
    ScriptUnfit,
    SessionBegan,
    SessionRefused,
    StatusChanged,
    StreamEnded,
    TextSaid,
    TextStreamed,
    ThreadLeft,
    ToolBegan,
    ToolEnded,
    TurnAsked,
    TurnBegan,
    TurnCommitted,
    TurnEnded,
    Unrecognized,
    WarningRaised,
)
from proctor.event.outcome import Ending, limit_text
from proctor.event.supervisor_events import HOOK
from proctor.fact import Fact
from proctor.ids import ItemId, RuntimeId, ThreadId

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
    "compaction",
    "end",
    "note",
    "summary",
]


_MAIN_FACTS = ("persistence", "history", "threadStatus", "processState", "runtimeState", "version")
_MAIN_FACT_PARTS = {
    "modelRequested": ("model", "requested"),
    "modelEffective": ("model", "effective"),
    "usageAuthority": ("usage", "authority"),
    "executableSha256": ("identity", "sha256"),
    "executableSource": ("identity", "source"),
    "executableVersion": ("identity", "version"),
}

# Enough to recognize a call; tool.calls.jsonl has the whole.
TOOL_SUMMARY_BYTES = 500


class Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One row of transcript.jsonl."""

    kind: Kind
    """Kind of row."""

    at_ms: int
    """Wall-clock time, in milliseconds since the epoch."""

    frame: int
    """Number of the row of frames.jsonl that it comes from."""

    text: str
    """The text, cut to 64 KiB."""

    source: str | None = None
    """What the row comes from; depends on `kind`, for example `command:CALL` for a tool."""

    status: str | None = None
    """Status of a turn, tool call, approval or compaction; in the summary, the outcome."""

    channel: str | None = None
    """The native message that carried a status or a warning."""

    rule: str | None = None
    """The rule that inferred the source of a warning from its text."""

    code: str | None = None
    """Error code of a warning; null if it has none."""

    facts: dict[str, Any] | None = None
    """The main facts: as first stated in a `facts` row, as settled in the `summary` row.

    In a `compaction` row: `backend` (the runtime, such as `codex-app-server`), `ownsCompaction` (whether a context
    engine owns compaction), `phase` (`began` or `ended`), `trigger`, `tokensBefore` and `tokensAfter`.
    """

    partial: bool = False
    """Whether the agent began a message and never finished it."""

    cut_bytes: int = 0
    """Number of bytes of the text that were left out."""


class _Draft:
    """A message that is still being streamed, stored up to TEXT_BYTES."""

    def __init__(self, event: TextStreamed | ReasoningStreamed) -> None:
        self.kind: Kind = "message" if isinstance(event, TextStreamed) else "reasoning"
        self.pieces: list[str] = []
        self.stored_chars = 0
        self.bytes = 0
        self.at_ms = event.at_ms
        self.frame = event.frame

    def add(self, event: TextStreamed | ReasoningStreamed) -> None:
        self.bytes += len(event.text.encode("utf-8", "surrogatepass"))
        self.at_ms, self.frame = event.at_ms, event.frame
        if self.stored_chars < TEXT_BYTES:
            self.pieces.append(event.text)
            self.stored_chars += len(event.text)

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
    """Fold events into rows as they happen. At the end come unfinished messages, then one summary row."""

    def __init__(self, backend: RuntimeId, *, owns_compaction: bool = False) -> None:
        """`owns_compaction` says whether a context engine owns the compaction of the session."""
        self._backend = backend
        self._owns_compaction = owns_compaction
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
                if self._has_facts or not (stated := _main_facts(facts)):
                    return None
                self._has_facts = True
                return _facts_line(event, stated)
            case SessionBegan(thread=thread):
                self._thread = thread
                return _plain_line(event)
            case CompactionBegan() | CompactionEnded():
                return self._compaction_line(event)
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
            facts={"thread": self._thread, **_main_facts(facts)},
        )

    def _compaction_line(self, event: CompactionBegan | CompactionEnded) -> Line:
        ended = event if isinstance(event, CompactionEnded) else None
        facts = {
            "backend": self._backend.replace("_", "-"),
            "ownsCompaction": self._owns_compaction,
            "phase": "began" if ended is None else "ended",
            "trigger": event.trigger,
            "tokensBefore": None if ended is None else ended.tokens_before,
            "tokensAfter": None if ended is None else ended.tokens_after,
        }
        status = "began" if ended is None else "failed" if ended.ok is False else "ended"
        line = _line(event, "compaction", f"compaction by the agent {status}", source=self._backend, status=status)
        return msgspec.structs.replace(line, facts=facts)


def _main_facts(facts: Mapping[str, Fact]) -> dict[str, Any]:
    """Return the values of the facts that a reader of the transcript needs most."""
    values = {name: facts[name].value for name in _MAIN_FACTS if name in facts}
    for name, (fact, key) in _MAIN_FACT_PARTS.items():
        if fact in facts and isinstance(value := facts[fact].value, dict) and key in value:
            values[name] = value[key]
    return values


def _facts_line(event: Event, facts: dict[str, Any]) -> Line:
    text = ", ".join(f"{name} {value}" for name, value in facts.items())
    return msgspec.structs.replace(_line(event, "facts", text), facts=facts)


def _line(event: Event, kind: Kind, text: str, *, source: str | None = None, status: str | None = None) -> Line:
    head, cut_bytes = cut(text, limit_bytes=TEXT_BYTES)
    return Line(
        kind=kind, at_ms=event.at_ms, frame=event.frame, text=head, source=source, status=status, cut_bytes=cut_bytes
    )


def _summarize_call(event: ToolBegan) -> str:
    """Describe a tool call in one line."""
    match event.input:
        case {"command": str(command)}:
            about = command
        case {"changes": [*changes]}:
            about = ", ".join(str(change.get("path")) for change in changes if isinstance(change, dict))
        case input_:
            about = msgspec.json.encode(input_).decode()
    return f"{event.name}: {cut(about, limit_bytes=TOOL_SUMMARY_BYTES)[0]}"


def _summarize_giving(event: HistoryGiven) -> str:
    """Describe in one line what the thread was given."""
    count = len(event.entries)
    given = [f"{count} message{'' if count == 1 else 's'} as {event.how}"] if count else []
    given += [] if event.instructions_sha256 is None else ["instructions"]
    text = f"the thread was given {' and '.join(given) or 'nothing'}"
    return text if event.problem is None else f"{text}: {event.problem}"


def _summarize_context(event: ContextAssembled) -> str:
    """Describe in one line what the context engine assembled."""
    count = f"{event.assembled} message{'' if event.assembled == 1 else 's'}"
    return f"the engine {event.engine} assembled {count}; thread: {event.thread} ({event.reason}); given: {event.how}"


def _summarize_commit(event: TurnCommitted) -> str:
    """Describe in one line whether the context engine has the turn."""
    status = "was not committed" if event.status == "none" else f"is {event.status}"
    text = f"the turn {event.turn} {status}"
    return text if event.detail is None else f"{text}: {event.detail}"


def _plain_line(event: Event) -> Line | None:
    match event:
        case SessionBegan(thread=thread, model=model, cwd=cwd):
            line = _line(event, "session", f"thread {thread} on model {model or 'unknown'}")
            return msgspec.structs.replace(line, facts={"thread": thread, "modelEffective": model, "cwd": cwd})
        case TurnAsked(text=prompt):
            text = "a turn was requested" if prompt else "a shorter history was requested"
            return _line(event, "turn", text, status="asked")
        case PromptSent(text=text):
            return _line(event, "prompt", text)
        case TurnBegan(turn=turn):
            return _line(event, "turn", f"turn {turn} began", status="began")
        case TurnEnded(turn=turn, status=status, error=error):
            return _line(event, "turn", f"turn {turn} {status}" + (f": {error}" if error else ""), status=status)
        case ToolBegan(call=call, kind=kind):
            return _line(event, "tool", _summarize_call(event), source=f"{kind}:{call}", status="began")
        case ToolEnded(call=call, name=name, kind=kind, status=status):
            return _line(event, "tool", f"{name} {status}", source=f"{kind}:{call}", status=status)
        case StatusChanged(status=status, flags=flags):
            line = _line(event, "status", " ".join((status, *flags)), status=status)
            return msgspec.structs.replace(line, channel=event.channel)
        case WarningRaised(source=source, text=text, channel=channel, rule=rule, code=code):
            line = _line(event, "warning", text, source=source)
            return msgspec.structs.replace(line, channel=channel, rule=rule, code=code)
        case ErrorReported(text=text, error_class=error_class, will_retry=will_retry):
            return _line(event, "error", text, source=error_class, status="retrying" if will_retry else None)
        case ApprovalAsked(request=request, about=about, detail=detail):
            return _line(event, "approval", detail or about, source=f"{about}:{request}", status="asked")
        case ApprovalResolved(request=request, decision=decision, by=by):
            return _line(event, "approval", f"{decision} by {by}", source=request, status=decision)
        case ClockFired(clock=clock, limit_ms=limit_ms):
            return _line(event, "end", f"the {clock} clock fired at {limit_ms} ms", source=clock)
        case LimitReached(limit=limit, most=most, used=used):
            return _line(event, "end", limit_text(limit, most=most, used=used), source=limit)
        case Cancelled(why=why, by=by):
            return _line(event, "end", why if by is None else f"cancelled by {by}: {why}", source="cancelled")
        case SessionRefused(code=code, detail=detail):
            return _line(event, "end", detail, source=code)
        case FailureObserved(code=code, detail=detail):
            return _line(event, "end", detail, source=code)
        case ScriptUnfit(detail=detail):
            return _line(event, "end", detail, source="script.unfit")
        case StreamEnded(cause=cause):
            return _line(event, "end", cause, source="channel")
        case HistoryGiven():
            return _line(event, "note", _summarize_giving(event), source="history")
        case ContextAssembled():
            return _line(event, "note", _summarize_context(event), source="context")
        case ContextDegraded(code=code, detail=detail):
            return _line(event, "note", f"the context engine did not apply: {detail} ({code})", source="context")
        case TurnCommitted():
            return _line(event, "note", _summarize_commit(event), source="context")
        case ThreadLeft(why=why):
            return _line(event, "note", f"the session leaves its thread: {why}", source="context")
        case NoteMade(text=text):
            return _line(event, "note", text, source="agent")
        case HookRan(text=text):
            return _line(event, "note", text, source=HOOK)
        case Unrecognized(native=native):
            return _line(event, "note", f"unrecognized frame: {native}")
        case _:
            return None
