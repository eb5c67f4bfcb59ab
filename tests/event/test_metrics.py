"""Metrics count what happened; what nobody reported is None."""

import itertools
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.event.metrics import Metrics, MetricsFold
from proctor.event.model import (
    ApprovalAsked,
    ErrorReported,
    Event,
    ReplyReceived,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    Unrecognized,
    WarningRaised,
)
from proctor.event.row import GENESIS, Direction, Row
from proctor.event.trace import TraceFold
from proctor.ids import AttemptId, CallId, TurnId
from tests.event.streams import streams

rows = st.lists(
    st.builds(
        Row,
        seq=st.just(1),
        at_ms=st.integers(0, 10_000),
        dir=st.sampled_from(Direction),
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
        tool_retries=0,
        distinct_calls=0,
        longest_streak=0,
        is_stuck=False,
        tool_ms=None,
        tool_p50_ms=None,
        tool_p95_ms=None,
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
        count[ReplyReceived],
        count[TurnBegan],
    )
    assert (metrics.approvals_asked, metrics.warnings, metrics.errors) == (
        count[ApprovalAsked],
        count[WarningRaised],
        count[ErrorReported],
    )
    trace = TraceFold(AttemptId("fix.native.r1.1"))
    calls = [call for event in events if (call := trace.feed(event)) is not None] + trace.finish()
    assert metrics.tool_calls == len(calls) == sum(metrics.tool_calls_by_kind.values())
    assert metrics.tool_failures == sum(not event.ok for event in ended)
    assert metrics.tool_output_bytes == sum(len((event.output or "").encode()) for event in ended)


def call(at: int, name: str = "shell", *, ok: bool = True, given: object = None) -> list[Event]:
    turn, id_ = TurnId("t"), CallId(f"c{at}")
    began = ToolBegan(frame=at, at_ms=100 * at, turn=turn, call=id_, kind="command", name=name, input=given)
    return [began, ended(at, name, ok=ok)]


def ended(at: int, name: str = "shell", *, ok: bool = True) -> ToolEnded:
    return ToolEnded(
        frame=at,
        at_ms=101 * at,
        turn=TurnId("t"),
        call=CallId(f"c{at}"),
        kind="command",
        name=name,
        ok=ok,
        status="completed",
        duration_ms=999,
    )


def test_a_retry_is_a_call_after_an_equal_one_that_failed() -> None:
    again = [*call(1, ok=False), *call(2, "other"), *call(3, ok=False), *call(4), *call(5), *call(6, given={"a": 1})]
    metrics = measured(again)
    assert (metrics.tool_retries, metrics.distinct_calls, metrics.longest_streak) == (2, 3, 3)


def test_tool_times_are_real_intervals_of_calls_that_have_a_beginning() -> None:
    metrics = measured([*(event for at in (1, 2, 3, 4) for event in call(at)), ended(900)])
    assert (metrics.tool_calls, metrics.tool_ms, metrics.tool_p50_ms, metrics.tool_p95_ms) == (5, 10, 2, 4)
    assert (lone := measured([ended(900)])).tool_calls == 1
    assert (lone.tool_ms, lone.tool_p50_ms, lone.tool_p95_ms) == (None, None, None)


@pytest.mark.parametrize(
    ("names", "is_stuck"),
    [
        (["a"] * 10 + ["b", "c"] * 5, True),
        (["a"] * 10 + ["b", "c"] * 4 + ["b"], False),  # 19 calls
        (["a"] * 10 + ["b", "c"] * 4 + ["d", "d"], False),  # four different ones
        (["a"] * 9 + ["b", "c", "a"] * 4, False),  # never ten in a row
    ],
)
def test_many_calls_few_of_them_different_and_one_over_and_over_is_no_progress(
    names: list[str], is_stuck: bool
) -> None:
    events = [event for at, name in enumerate(names) for event in call(at, name)]
    assert measured(events).is_stuck is is_stuck


@given(streams)
def test_equal_calls_are_counted_as_the_trace_tells_them(events: list[Event]) -> None:
    trace = TraceFold(AttemptId("fix.native.r1.1"))
    calls = [call for event in events if (call := trace.feed(event)) is not None] + trace.finish()
    marks = [msgspec.json.encode((call.kind, call.name, call.input), order="sorted") for call in calls]
    failed_before = {
        at: [calls[earlier].ok is False for earlier in range(at) if marks[earlier] == marks[at]][-1:]
        for at in range(len(calls))
    }
    metrics = measured(events)
    assert metrics.distinct_calls == len(set(marks))
    assert metrics.tool_retries == sum(failed == [True] for failed in failed_before.values())
    assert metrics.longest_streak == max((len(list(equal)) for _, equal in itertools.groupby(marks)), default=0)


@given(streams)
def test_metrics_are_the_same_after_a_way_over_the_disk(events: list[Event]) -> None:
    metrics = measured(events)
    assert msgspec.json.decode(msgspec.json.encode(metrics), type=Metrics) == metrics
