"""When to come back, as Codex tells it: after so long, or at a time of day whose zone a fact gives."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.event.model import ErrorReported, TurnEnded
from proctor.event.row import GENESIS, Direction, FactsLearned, Row
from proctor.fact import Authority, Fact
from proctor.runtime.codex.retry_after import UTC_OFFSET, retry_after_ms
from proctor.runtime.codex.zone import utc_offset
from proctor.runtime.codex_app_server.normalize import CodexNormalizer
from proctor.runtime.codex_exec.normalize import ExecNormalizer
from proctor.testing.clock import FakeClock

ORDINALS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
AT_MS = 1_794_811_596_000  # 06:46:36 on 16 November 2026, in UTC


def as_codex_says(moment: datetime, *, now: datetime) -> str:
    clock = f"{moment.hour % 12 or 12}:{moment.minute:02} {'AM' if moment.hour < 12 else 'PM'}"
    if moment.date() == now.date():
        return f"Try again at {clock}."
    return f"or try again at {moment:%b} {moment.day}{ORDINALS.get(moment.day, 'th')}, {moment.year} {clock}."


@pytest.mark.requirement("schedule.rate-limit")
@given(
    at_ms=st.integers(min_value=0, max_value=4_000_000_000_000),
    wait_s=st.integers(min_value=0, max_value=20 * 86400),
    offset=st.integers(min_value=-12 * 4, max_value=14 * 4).map(lambda quarters: quarters * 15),
)
def test_a_time_of_day_is_waited_for_and_never_more_than_a_minute_longer(at_ms: int, wait_s: int, offset: int) -> None:
    zone = timezone(timedelta(minutes=offset))
    now = datetime.fromtimestamp(at_ms / 1000, tz=zone)
    text = as_codex_says(now + timedelta(seconds=wait_s), now=now)
    found = retry_after_ms(text, at_ms=at_ms, utc_offset_minutes=offset)
    assert found is not None
    assert wait_s * 1000 < found <= wait_s * 1000 + 60_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Please try again in 11.054s. Visit", 11_054),
        ("Please try again in 28ms.", 28),
        ("Try again in 6m0s", 360_000),
        ("try again in 1h2m3.5s", 3_723_500),
        ("try again in a moment", None),
        ("or try again later.", None),
        ("try again at Foo 1st, 2026 1:00 AM", None),
        ("try again at 5:00 AM", None),  # hours ago: not a time of the zone we take it for
        ("try again in 99999999999999999999s", None),
        ("exceeded retry limit, last status: 429 Too Many Requests", None),
    ],
)
def test_what_is_said_of_the_wait_in_words(text: str, expected: int | None) -> None:
    assert retry_after_ms(text, at_ms=AT_MS, utc_offset_minutes=0) == expected


def test_a_time_of_day_says_nothing_without_its_zone() -> None:
    assert retry_after_ms("try again at 8:16 AM", at_ms=AT_MS, utc_offset_minutes=None) is None


@pytest.mark.parametrize(
    ("env", "expected"),
    [({"TZ": "Asia/Kolkata"}, 330), ({"TZ": "UTC"}, 0), ({"TZ": "No/Where"}, None), ({"TZ": "../../etc/passwd"}, None)],
)
def test_the_zone_is_that_of_the_agents_own_environment(env: dict[str, str], expected: int | None) -> None:
    assert utc_offset(env, clock=FakeClock(wall_ms=AT_MS)).value == expected


def test_without_one_it_is_that_of_the_machine() -> None:
    here = datetime.fromtimestamp(AT_MS / 1000, tz=UTC).astimezone().utcoffset()
    assert here is not None
    assert utc_offset({}, clock=FakeClock(wall_ms=AT_MS)).value == here.total_seconds() // 60


LATER = "You\u2019ve hit your usage limit. Visit somewhere or try again at 12:26 PM."
SERVER_ERROR = {"message": LATER, "codexErrorInfo": "usageLimitExceeded"}
SOON = "rate limit exceeded: Please try again in 1.5s."


def rows(frames: list[dict[str, Any]], *, offset: object) -> list[Row]:
    fact = Fact(value=offset, authority=Authority.INFERRED, source="")
    learned = FactsLearned(facts={UTC_OFFSET: fact})
    said = [
        (Direction.SELF, msgspec.json.encode(learned)),
        *((Direction.IN, msgspec.json.encode(frame)) for frame in frames),
    ]
    return [
        Row(seq=seq, at_ms=AT_MS, dir=dir_, prev=GENESIS, frame=msgspec.Raw(frame))
        for seq, (dir_, frame) in enumerate(said)
    ]


TOLD_BY_THE_SERVER = [
    {
        "method": "error",
        "params": {
            "error": {
                "message": "Reconnecting... 1/1",
                "codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": None}},
                "additionalDetails": SOON,
            },
            "willRetry": True,
            "threadId": "t",
            "turnId": "u",
        },
    },
    {
        "method": "turn/completed",
        "params": {"threadId": "t", "turn": {"id": "u", "items": [], "status": "failed", "error": SERVER_ERROR}},
    },
]
TOLD_BY_EXEC = [
    {"type": "error", "message": f"Reconnecting... 1/1 ({SOON})"},
    {"type": "turn.failed", "error": {"message": LATER}},
]


@pytest.mark.requirement("schedule.rate-limit")
@pytest.mark.parametrize(
    ("normalizer", "frames"), [(CodexNormalizer, TOLD_BY_THE_SERVER), (ExecNormalizer, TOLD_BY_EXEC)]
)
@pytest.mark.parametrize(("offset", "expected"), [(330, 10 * 60_000 + 24_000), (None, None), ("330", None)])
def test_the_wait_comes_with_the_error_and_with_the_end(
    normalizer: type[CodexNormalizer | ExecNormalizer],
    frames: list[dict[str, Any]],
    offset: object,
    expected: int | None,
) -> None:
    reads = normalizer()
    events = [event for row in rows(frames, offset=offset) for event in reads.feed(row)]
    [trouble] = [event for event in events if isinstance(event, ErrorReported)]
    [ended] = [event for event in events if isinstance(event, TurnEnded)]
    assert (trouble.code, trouble.retry_after_ms) == ("provider.rate-limited", 1500)
    assert (ended.code, ended.retry_after_ms) == ("provider.usage-limit", expected)
