"""Metrics count what happened; what nobody reported is None."""

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from proctor.event.metrics import Metrics, MetricsFold
from proctor.event.model import (
    ApprovalAsked,
    ErrorReported,
    Event,
    Replied,
    ToolEnded,
    TurnBegan,
    Unrecognized,
    WarningRaised,
)
from proctor.event.row import GENESIS, Dir, Row
from proctor.event.trace import TraceFold
from tests.event.streams import streams

rows = st.lists(
    st.builds(
        Row,
        seq=st.just(1),
        at_ms=st.integers(0, 10_000),
        dir=st.sampled_from(Dir),
        prev=st.just(GENESIS),
        redacted=st.lists(st.just("KEY"), max_size=1).map(tuple),
    ),
    max_size=12,
)


def measured(events: list[Event], said: list[Row] | None = None) -> Metrics:
    fold = MetricsFold()
    for row in said or []:
        fold.row(row)
    for event in events:
        fold.feed(event)
    return fold.finish()


def test_of_nothing_the_counts_are_nought_and_the_rest_is_unknown() -> None:
    assert measured([]) == Metrics(
        frames={"err": 0, "in": 0, "out": 0, "self": 0},
        events=0,
        unrecognized=0,
        replies=0,
        turns=0,
        tool_calls=0,
        tool_failures=0,
        tool_calls_by_kind={},
        tool_output_bytes=0,
        approvals_asked=0,
        warnings=0,
        errors=0,
        redacted_rows=0,
        span_ms=None,
        usage=None,
    )


@given(streams, rows)
def test_every_event_and_every_row_is_counted_once(events: list[Event], said: list[Row]) -> None:
    metrics = measured(events, said)
    count = Counter(type(event) for event in events)
    ended = [event for event in events if isinstance(event, ToolEnded)]

    assert metrics.frames == {dir_: sum(row.dir == dir_ for row in said) for dir_ in ("err", "in", "out", "self")}
    assert metrics.redacted_rows == sum(row.redacted != () for row in said)
    assert metrics.span_ms == (said[-1].at_ms - said[0].at_ms if said else None)
    assert metrics.events == len(events)
    assert (metrics.unrecognized, metrics.replies, metrics.turns) == (
        count[Unrecognized],
        count[Replied],
        count[TurnBegan],
    )
    assert (metrics.approvals_asked, metrics.warnings, metrics.errors) == (
        count[ApprovalAsked],
        count[WarningRaised],
        count[ErrorReported],
    )
    trace = TraceFold()
    calls = [call for event in events if (call := trace.feed(event)) is not None] + trace.finish()
    assert metrics.tool_calls == len(calls) == sum(metrics.tool_calls_by_kind.values())
    assert metrics.tool_failures == sum(not event.ok for event in ended)
    assert metrics.tool_output_bytes == sum(len((event.output or "").encode()) for event in ended)


@given(streams)
def test_metrics_are_the_same_after_a_way_over_the_disk(events: list[Event]) -> None:
    metrics = measured(events)
    assert msgspec.json.decode(msgspec.json.encode(metrics), type=Metrics) == metrics
