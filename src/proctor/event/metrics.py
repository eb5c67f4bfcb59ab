"""What an attempt cost and did, counted from events; unknown is None, never zero."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from proctor import canonical
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
from proctor.ids import CallId, Digest

_STUCK_CALLS, _STUCK_DISTINCT, _STUCK_STREAK = 20, 3, 10


class Metrics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The numbers of one attempt.

    Those with a default came later: of an attempt sealed before them they are unknown. Calls are equal in kind, name
    and input, and follow each other as they ended. `tool_retries` are calls after an equal one that failed. `is_stuck`
    is a sign of no progress: many calls, few of them different, and one over and over. Times are from a call's
    beginning to its end as they were recorded, of calls that have both; percentiles are nearest ranks.
    """

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
    tool_retries: int | None = None
    distinct_calls: int | None = None
    longest_streak: int | None = None
    is_stuck: bool | None = None
    tool_ms: int | None = None
    tool_p50_ms: int | None = None
    tool_p95_ms: int | None = None

    @property
    def total_tokens(self) -> int | None:
        return None if self.usage is None or self.usage.tokens is None else self.usage.tokens.total


class MetricsFold:
    """Feed it each row and then that row's events."""

    def __init__(self) -> None:
        self._frames: Counter[Dir] = Counter(dict.fromkeys(Dir, 0))
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
            # A call whose beginning was lost or came late was one all the same.
            self._kinds[event.kind] += 1
        if isinstance(event, ToolBegan):
            self._open[event.call] = event
        elif isinstance(event, ToolEnded):
            began = self._open.pop(event.call, None)
            given = event.input if began is None or event.input is not None else began.input
            self._calls.add(event, given=given, has_failed=not event.ok)
            if began is not None:
                # A wall clock that was set back meanwhile must not give time back.
                self._intervals_ms.append(max(0, event.at_ms - began.at_ms))
            self._failures += not event.ok
            self._output_bytes += len((event.output or "").encode("utf-8", "surrogatepass"))
        self._usage.feed(event)

    def finish(self) -> Metrics:
        for began in self._open.values():
            self._calls.add(began, given=began.input, has_failed=False)
        self._open.clear()
        calls, times = self._calls, sorted(self._intervals_ms)
        span_ms = None if self._first_ms is None or self._last_ms is None else self._last_ms - self._first_ms
        return Metrics(
            frames={dir_.value: count for dir_, count in sorted(self._frames.items())},
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
            tool_retries=calls.retries,
            distinct_calls=len(calls.failed),
            longest_streak=calls.longest_streak,
            is_stuck=self.tool_calls >= _STUCK_CALLS
            and len(calls.failed) <= _STUCK_DISTINCT
            and calls.longest_streak >= _STUCK_STREAK,
            tool_ms=sum(times) if times else None,
            tool_p50_ms=nearest_rank(times, 50),
            tool_p95_ms=nearest_rank(times, 95),
        )


class _Calls:
    """Which calls were equal, by the digest of what they are; `failed` says whether the last of each did."""

    def __init__(self) -> None:
        self.failed: dict[Digest, bool] = {}
        self.retries = 0
        self.longest_streak = 0
        self._last: Digest | None = None
        self._streak = 0

    def add(self, call: ToolBegan | ToolEnded, *, given: Any, has_failed: bool) -> None:
        mark = canonical.digest((call.kind, call.name, given))
        self.retries += self.failed.get(mark, False)
        self.failed[mark] = has_failed
        self._streak = self._streak + 1 if mark == self._last else 1
        self._last = mark
        self.longest_streak = max(self.longest_streak, self._streak)


def nearest_rank(values: Sequence[int], percent: int) -> int | None:
    """The percentile of sorted values that is one of them; None of none.

    >>> nearest_rank([15, 20, 35, 40, 50], 30), nearest_rank([15, 20, 35, 40, 50], 95), nearest_rank([], 50)
    (20, 50, None)
    """
    return values[-(-percent * len(values) // 100) - 1] if values else None
