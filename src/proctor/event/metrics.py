"""What an attempt cost and did, counted from events; unknown is None, never zero."""

from collections import Counter

import msgspec

from proctor.event.model import (
    ApprovalAsked,
    ErrorReported,
    Event,
    Replied,
    Tokens,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    Unrecognized,
    WarningRaised,
)
from proctor.event.row import Dir, Row
from proctor.event.usage import Usage, UsageFold
from proctor.ids import CallId


class Metrics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The numbers of one attempt."""

    frames: dict[str, int]
    events: int
    unrecognized: int
    replies: int
    turns: int
    tool_calls: int
    tool_failures: int
    tool_calls_by_kind: dict[str, int]
    tool_output_bytes: int
    approvals_asked: int
    warnings: int
    errors: int
    redacted_rows: int
    span_ms: int | None
    usage: Usage | None

    @property
    def total_tokens(self) -> int | None:
        return None if self.usage is None or self.usage.tokens is None else self.usage.tokens.total


class MetricsFold:
    """Feed it each row and then that row's events."""

    def __init__(self) -> None:
        self._frames: Counter[str] = Counter({dir_.value: 0 for dir_ in Dir})
        self._kinds: Counter[str] = Counter()
        self._open: set[CallId] = set()
        self._count: Counter[type[Event]] = Counter()
        self._failures = 0
        self._output_bytes = 0
        self._redacted = 0
        self._first_ms: int | None = None
        self._last_ms: int | None = None
        self._usage = UsageFold()

    @property
    def tokens(self) -> Tokens | None:
        return self._usage.tokens

    @property
    def tool_calls(self) -> int:
        return self._kinds.total()

    def row(self, row: Row) -> None:
        self._frames[row.dir.value] += 1
        self._redacted += bool(row.redacted)
        self._first_ms = row.at_ms if self._first_ms is None else self._first_ms
        self._last_ms = row.at_ms

    def feed(self, event: Event) -> None:
        self._count[type(event)] += 1
        if isinstance(event, (ToolBegan, ToolEnded)) and event.call not in self._open:
            # A call whose beginning was lost or came late was one all the same.
            self._kinds[event.kind] += 1
        if isinstance(event, ToolBegan):
            self._open.add(event.call)
        elif isinstance(event, ToolEnded):
            self._open.discard(event.call)
            self._failures += not event.ok
            self._output_bytes += len((event.output or "").encode("utf-8", "surrogatepass"))
        self._usage.feed(event)

    def finish(self) -> Metrics:
        span_ms = None if self._first_ms is None or self._last_ms is None else self._last_ms - self._first_ms
        return Metrics(
            frames=dict(sorted(self._frames.items())),
            events=self._count.total(),
            unrecognized=self._count[Unrecognized],
            replies=self._count[Replied],
            turns=self._count[TurnBegan],
            tool_calls=self.tool_calls,
            tool_failures=self._failures,
            tool_calls_by_kind=dict(sorted(self._kinds.items())),
            tool_output_bytes=self._output_bytes,
            approvals_asked=self._count[ApprovalAsked],
            warnings=self._count[WarningRaised],
            errors=self._count[ErrorReported],
            redacted_rows=self._redacted,
            span_ms=span_ms,
            usage=self._usage.finish(),
        )
