"""Whatever stands in a record, the normalizer says something of every row, never raises, and obeys the grammar."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proctor.event.laws import Laws
from proctor.event.model import Event
from proctor.event.row import GENESIS, Direction, Row
from proctor.runtime.codex.warnings import CHANNELS
from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.normalize import CodexNormalizer

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
IDS = st.sampled_from(["a", "b", "", "c|d"])
STATUSES = st.sampled_from(["inProgress", "completed", "failed", "declined", "interrupted", "paused"])
TYPES = st.sampled_from(
    """
    agentMessage plan reasoning userMessage commandExecution fileChange mcpToolCall dynamicToolCall webSearch sleep
    imageView collabAgentToolCall functionCallOutput contextCompaction newerThanThis
    """.split()
)
TOKENS = st.fixed_dictionaries(
    {name: st.integers(0, 99) for name in ("totalTokens", "inputTokens", "outputTokens")},
    optional={"cachedInputTokens": st.integers(0, 9) | st.none()},
)
HANDLED = """
turn/started turn/completed item/started item/completed thread/tokenUsage/updated thread/status/changed error
mcpServer/startupStatus/updated thread/started newer/than/this
""".split()
METHODS = st.sampled_from([*HANDLED, *sorted(wire.DELTAS), *CHANNELS, *wire.APPROVALS])


def mostly(right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Of the right shape most of the time."""
    return st.one_of(right, right, right, ANYTHING)


def shape(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return mostly(st.fixed_dictionaries({}, optional={name: mostly(field) for name, field in fields.items()}))


ERROR = shape(message=st.text(max_size=4), codexErrorInfo=st.sampled_from(["other", {"x": {"httpStatusCode": 401}}]))
ITEM = shape(
    type=TYPES,
    id=IDS,
    text=st.text(max_size=4),
    status=STATUSES,
    command=st.text(max_size=4),
    exitCode=st.integers(-1, 1),
    result=st.fixed_dictionaries({"isError": st.booleans()}),
    error=st.none(),
    summary=st.lists(st.text(max_size=3) | st.dictionaries(st.just("text"), ANYTHING), max_size=2),
)
PARAMS = shape(
    threadId=IDS,
    turnId=IDS,
    itemId=IDS,
    callId=IDS,
    delta=st.text(max_size=4),
    turn=shape(id=IDS, status=STATUSES, error=st.none() | ERROR),
    item=ITEM,
    thread=shape(id=IDS),
    tokenUsage=shape(total=TOKENS, last=TOKENS),
    status=shape(type=st.sampled_from(["idle", "active"]), activeFlags=st.lists(st.text(max_size=3), max_size=2)),
    error=ERROR,
    command=st.lists(st.text(max_size=3), max_size=2),
    input=st.lists(shape(text=st.text(max_size=3)), max_size=2),
)
FRAMES = mostly(
    shape(id=st.integers(0, 4), method=METHODS, params=PARAMS)
    | st.fixed_dictionaries({"method": METHODS, "params": PARAMS})
    | st.fixed_dictionaries({"id": st.integers(0, 4), "method": st.just("thread/start"), "params": PARAMS})
    | shape(id=st.integers(0, 4), result=shape(thread=shape(id=IDS), model=IDS), error=st.none() | ERROR)
)
# A `self` row is our own: the channel's end among them, after which nothing can come.
SEEN = st.one_of(
    st.fixed_dictionaries(
        {
            "saw": st.just("text.released"),
            "stream": st.text(max_size=4) | METHODS.map("t|i|".__add__),
            "text": st.text(),
        }
    ),
    st.fixed_dictionaries({"saw": st.just("step"), "step": st.text(max_size=4)}),
    ANYTHING,
)


def told(rows: list[tuple[Direction, Any]]) -> list[tuple[Direction, list[Event]]]:
    normalizer = CodexNormalizer()
    events = []
    for seq, (dir_, said) in enumerate(rows, start=1):
        raw = msgspec.Raw(msgspec.json.encode(said))
        row = Row(seq=seq, at_ms=seq, dir=dir_, prev=GENESIS, frame=raw)
        events.append((dir_, list(normalizer.feed(row))))
    return events


@pytest.mark.long
@pytest.mark.requirement("runtime.events.lossless")
@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from([Direction.IN, Direction.OUT, Direction.ERR]), FRAMES)
        | st.tuples(st.just(Direction.SELF), SEEN),
        max_size=12,
    )
)
def test_any_record_gives_events_for_every_row_and_they_obey_the_laws(rows: list[tuple[Direction, Any]]) -> None:
    laws = Laws()
    for _, events in told(rows):
        assert events
        for event in events:
            assert laws.feed(event) is None
            msgspec.json.encode(event)


def spoken(method: str, **params: Any) -> tuple[Direction, Any]:
    return Direction.IN, {"method": method, "params": {"threadId": "t", "turnId": "u", **params}}


def used(total: int) -> dict[str, Any]:
    return {"total": {"totalTokens": total, "inputTokens": total, "outputTokens": 0}}


WELL_SHAPED = [
    *[(Direction.OUT, {"id": id_, "method": "thread/start", "params": {}}) for id_ in (1, 2)],
    *[(Direction.IN, {"id": id_, "result": {"thread": {"id": "t"}}}) for id_ in (1, 2)],
    *[spoken(f"turn/{what}", turn={"id": id_, "status": what}) for what in ("started", "completed") for id_ in "uv"],
    *[
        spoken(f"item/{what}", item={"id": id_, "type": type_, "status": "completed"})
        for what in ("started", "completed")
        for type_ in ("commandExecution", "agentMessage")
        for id_ in "ij"
    ],
    *[spoken("thread/tokenUsage/updated", tokenUsage=used(total)) for total in (1, 2)],
]


@settings(max_examples=200)
@example([WELL_SHAPED[at] for at in (0, 2, 1, 3)])
@given(st.lists(st.sampled_from(WELL_SHAPED), max_size=14))
def test_frames_that_repeat_themselves_in_any_order_obey_the_laws(rows: list[tuple[Direction, Any]]) -> None:
    laws = Laws()
    assert [broken for _, events in told(rows) for event in events if (broken := laws.feed(event))] == []


@given(st.sampled_from(Direction), st.text())
def test_a_row_of_plain_text_gives_an_event_too(dir_: Direction, text: str) -> None:
    row = Row(seq=1, at_ms=1, dir=dir_, prev=GENESIS, text=text)
    assert list(CodexNormalizer().feed(row))


@pytest.mark.requirement("runtime.events.pure")
@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from([Direction.IN, Direction.OUT]), FRAMES), max_size=6))
def test_the_same_record_gives_the_same_events(rows: list[tuple[Direction, Any]]) -> None:
    assert told(rows) == told(rows)
