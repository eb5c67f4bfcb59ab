"""Fold rows and events into the numbers of an attempt. An unknown number is None, never 0."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from proctor import canonical
from proctor.event.model import (
    ApprovalAsked,
    ErrorReported,
    Event,
    ReplyReceived,
    Tokens,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    Unrecognized,
    WarningRaised,
)
from proctor.event.row import Direction, Row
from proctor.event.usage import Usage, UsageFold
from proctor.ids import CallId, Digest

_STUCK_CALLS, _STUCK_DISTINCT, _STUCK_STREAK = 20, 3, 10


class Metrics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The numbers of one attempt. Two tool calls are equal if their kind, name and recorded input are: calls that
    differ only in a masked secret count as equal. Durations are measured
    from the recorded start to the recorded end, for calls that have both; percentiles use the nearest rank."""

    frames: dict[str, int]
    """Number of rows of frames.jsonl, by direction."""

    events: int
    """Number of events."""

    unrecognized: int
    """Number of frames that the normalizer does not know."""

    replies: int
    """Number of replies to Proctor's requests."""

    turns: int
    """Number of turns that began."""

    tool_calls: int | None
    """Number of tool calls; None if the runtime cannot see tool calls."""

    tool_failures: int | None
    """Number of tool calls that failed; None if the runtime cannot see tool calls."""

    tool_calls_by_kind: dict[str, int]
    """Number of tool calls, by kind."""

    tool_output_bytes: int | None
    """Total size of the tools' output, in bytes; None if the runtime cannot see tool calls."""

    approvals_asked: int
    """Number of requests for an approval."""

    warnings: int
    """Number of warnings."""

    errors: int
    """Number of errors that the agent reported."""

    redacted_rows: int
    """Number of rows in which a secret was masked."""

    span_ms: int | None
    """Time from the first row to the last, in milliseconds; None without rows."""

    usage: Usage | None
    """Tokens used; None if not reported."""

    tool_retries: int | None
    """Number of tool calls after an equal call that failed; None if the runtime cannot see tool calls."""

    distinct_calls: int | None
    """Number of different tool calls; None if the runtime cannot see tool calls."""

    longest_streak: int | None
    """Largest number of equal tool calls in a row; None if the runtime cannot see tool calls."""

    is_stuck: bool | None
    """Whether the agent seems to make no progress: many calls, few different ones, and one repeated many times. None if
    the runtime cannot see tool calls."""

    tool_ms: int | None
    """Total duration of tool calls, in milliseconds; None if no call has a start and an end."""

    tool_p50_ms: int | None
    """Median duration of a tool call, in milliseconds."""

    tool_p95_ms: int | None
    """95th percentile of the duration of a tool call, in milliseconds."""

    @property
    def total_tokens(self) -> int | None:
        """Total tokens; None if unknown."""
        return None if self.usage is None or self.usage.tokens is None else self.usage.tokens.total


class MetricsFold:
    """Fold rows and events into metrics. Feed each row, then the events of that row."""

    def __init__(self) -> None:
        self._frames: Counter[Direction] = Counter(dict.fromkeys(Direction, 0))
        self._kinds: Counter[str] = Counter()
        self._open: dict[CallId, ToolBegan] = {}
        self._count: Counter[type[Event]] = Counter()
        self._failures = 0
        self._output_bytes = 0
        self._redacted = 0
        self._first_ms: int | None = None
        self._last_ms: int | None = None
        self._usage = UsageFold()
        self._calls = _Calls()
        self._intervals_ms: list[int] = []

    @property
    def tokens(self) -> Tokens | None:
        return self._usage.tokens

    @property
    def tool_calls(self) -> int:
        return self._kinds.total()

    def row(self, row: Row) -> None:
        self._frames[row.dir] += 1
        self._redacted += bool(row.redacted)
        self._first_ms = row.at_ms if self._first_ms is None else self._first_ms
        self._last_ms = row.at_ms

    def feed(self, event: Event) -> None:
        self._count[type(event)] += 1
        if isinstance(event, (ToolBegan, ToolEnded)) and event.call not in self._open:
            # A call without a recorded start counts too.
            self._kinds[event.kind] += 1
        if isinstance(event, ToolBegan):
            self._open[event.call] = event
        elif isinstance(event, ToolEnded):
            began = self._open.pop(event.call, None)
            input_ = event.input if began is None or event.input is not None else began.input
            self._calls.add(event, input_=input_, has_failed=not event.ok)
            if began is not None:
                # The wall clock may have been set back during the call.
                self._intervals_ms.append(max(0, event.at_ms - began.at_ms))
            self._failures += not event.ok
            self._output_bytes += len((event.output or "").encode("utf-8", "surrogatepass"))
        self._usage.feed(event)

    def finish(self, *, sees_tool_calls: bool = True) -> Metrics:
        """Return the metrics. `sees_tool_calls`: whether the runtime's rows show tool calls."""
        for began in self._open.values():
            self._calls.add(began, input_=began.input, has_failed=False)
        self._open.clear()
        calls, times = self._calls, sorted(self._intervals_ms)
        span_ms = None if self._first_ms is None or self._last_ms is None else self._last_ms - self._first_ms
        is_stuck = (
            self.tool_calls >= _STUCK_CALLS
            and len(calls.failed) <= _STUCK_DISTINCT
            and calls.longest_streak >= _STUCK_STREAK
        )

        def seen(number: int) -> int | None:
            return number if sees_tool_calls else None

        return Metrics(
            frames={dir_.value: count for dir_, count in sorted(self._frames.items())},
            events=self._count.total(),
            unrecognized=self._count[Unrecognized],
            replies=self._count[ReplyReceived],
            turns=self._count[TurnBegan],
            tool_calls=seen(self.tool_calls),
            tool_failures=seen(self._failures),
            tool_calls_by_kind=dict(sorted(self._kinds.items())),
            tool_output_bytes=seen(self._output_bytes),
            approvals_asked=self._count[ApprovalAsked],
            warnings=self._count[WarningRaised],
            errors=self._count[ErrorReported],
            redacted_rows=self._redacted,
            span_ms=span_ms,
            usage=self._usage.finish(),
            tool_retries=seen(calls.retries),
            distinct_calls=seen(len(calls.failed)),
            longest_streak=seen(calls.longest_streak),
            is_stuck=is_stuck if sees_tool_calls else None,
            tool_ms=sum(times) if times else None,
            tool_p50_ms=nearest_rank(times, 50),
            tool_p95_ms=nearest_rank(times, 95),
        )


class _Calls:
    """Find equal tool calls by digest. `failed` maps each digest to whether the last such call failed."""

    def __init__(self) -> None:
        self.failed: dict[Digest, bool] = {}
        self.retries = 0
        self.longest_streak = 0
        self._last: Digest | None = None
        self._streak = 0

    def add(self, call: ToolBegan | ToolEnded, *, input_: Any, has_failed: bool) -> None:
        digest = canonical.digest((call.kind, call.name, input_))
        self.retries += self.failed.get(digest, False)
        self.failed[digest] = has_failed
        self._streak = self._streak + 1 if digest == self._last else 1
        self._last = digest
        self.longest_streak = max(self.longest_streak, self._streak)


def nearest_rank(values: Sequence[int], percent: int) -> int | None:
    """Return the nearest-rank percentile of sorted values; None without values.

    >>> nearest_rank([15, 20, 35, 40, 50], 30), nearest_rank([15, 20, 35, 40, 50], 95), nearest_rank([], 50)
    (20, 50, None)
    """
    return values[-(-percent * len(values) // 100) - 1] if values else None
