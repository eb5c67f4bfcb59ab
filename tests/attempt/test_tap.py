"""An attempt's end of the connection: recorded, derived from, shown; and a fault of one attempt is its own."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from proctor.attempt.derive import Derivation
from proctor.attempt.tap import RecordingTap
from proctor.event.model import Event, FrameNoted, RequestSent, TextSaid, TextStreamed
from proctor.event.row import Direction, Row, StepTaken
from proctor.evidence.recorder import FrameLog
from proctor.evidence.redact import Redactor, TextStream
from proctor.evidence.secrets import Secret
from proctor.ids import AttemptId
from proctor.runtime.base import Normalizer
from proctor.runtime.codex_app_server.capabilities import ID
from proctor.runtime.codex_app_server.normalize import CodexNormalizer
from proctor.testing.clock import FakeClock
from tests.runtime.twin import connected, notification, run, session_ask, turn_completed

SECRET = Secret(name="API_KEY", value="sk-live-0123")
DELTA = TextStream(key="t|m|item/agentMessage/delta", path=("params", "delta"))


class Attempt:
    """A tap with a real record behind it."""

    def __init__(self, path: Path, *, normalizer: Normalizer | None = None) -> None:
        self.path = path
        self.events: list[Event] = []
        self.on_disk: list[int] = []
        self.derived: list[Any] = []
        self.log = FrameLog(path, redactor=Redactor([SECRET]), clock=FakeClock())
        derivation = Derivation(
            normalizer or CodexNormalizer(),
            attempt=AttemptId("a"),
            runtime_id=ID,
            trace=self.derived.extend,
            transcript=self.derived.extend,
        )
        self.tap = RecordingTap(self.log, derivation, watcher=self.event_recorded)

    def event_recorded(self, event: Event) -> None:
        self.events.append(event)
        self.on_disk.append(len(self.rows()))

    def rows(self) -> list[Row]:
        return [msgspec.json.decode(line, type=Row) for line in self.path.read_bytes().splitlines()]


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Attempt]:
    attempt = Attempt(tmp_path / "frames.jsonl")
    with attempt.log:
        yield attempt


@contextmanager
def full_disk(log: FrameLog) -> Iterator[None]:
    """What is written inside finds no room."""
    good = os.dup(log._file._fd)
    with Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), log._file._fd)
    try:
        yield
    finally:
        os.dup2(good, log._file._fd)
        os.close(good)


def said(text: str) -> bytes:
    return msgspec.json.encode(
        notification("item/agentMessage/delta", threadId="t", turnId="u", itemId="m", delta=text)
    )


@pytest.mark.requirement("evidence.crash-safe")
def test_a_row_stands_on_disk_before_anybody_sees_what_it_means(attempt: Attempt) -> None:
    attempt.tap.stage(Direction.OUT, b'{"id":1,"method":"thread/start","params":{}}')
    assert (attempt.events, attempt.rows()) == ([], [])
    attempt.tap.commit()
    attempt.tap.stage(Direction.OUT, b'{"method":"initialized"}')
    attempt.tap.record(StepTaken(step="signalled"))
    at_ms = FakeClock().wall_ms()
    assert attempt.events == [
        RequestSent(method="thread/start", frame=1, at_ms=at_ms),
        RequestSent(method="initialized", frame=2, at_ms=at_ms),
        FrameNoted(native="signalled", frame=3, at_ms=at_ms),
    ]
    assert attempt.on_disk == [1, 3, 3]


def test_the_events_are_those_of_the_redacted_rows_and_the_tail_follows(attempt: Attempt) -> None:
    attempt.tap.stage(Direction.IN, said("The key is sk-live-0123 or sk-liv"), stream=DELTA)
    attempt.tap.commit()
    attempt.tap.release("t|m|")
    assert [event.text for event in attempt.events if isinstance(event, TextStreamed)] == [
        "The key is [redacted:API_KEY] or ",
        "[redacted:API_KEY]",
    ]
    assert b"sk-liv" not in attempt.path.read_bytes()


@pytest.mark.requirement("schedule.recovery")
def test_a_full_disk_is_kept_as_a_failure_and_nothing_more_is_written(attempt: Attempt) -> None:
    attempt.tap.stage(Direction.OUT, b'{"method":"initialized"}')
    attempt.tap.commit()
    with full_disk(attempt.log):
        attempt.tap.stage(Direction.IN, said("lost"))
        attempt.tap.commit()
    assert attempt.tap.failure is not None
    assert attempt.tap.failure.code == "machine.disk-full"
    first = attempt.tap.failure
    attempt.tap.stage(Direction.IN, said("later"))
    attempt.tap.commit()
    attempt.tap.record(StepTaken(step="later"))
    attempt.tap.release("")
    assert attempt.tap.failure is first
    assert (len(attempt.rows()), len(attempt.events)) == (1, 1)


class Faulty:
    """Somebody's normalizer that cannot cope."""

    def feed(self, row: Row) -> Iterable[Event]:
        raise ZeroDivisionError(f"at row {row.seq}")


def test_a_normalizer_that_raises_breaks_its_attempt_and_nothing_else(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path / "frames.jsonl", normalizer=Faulty())
    with attempt.log:
        attempt.tap.stage(Direction.IN, said("x"))
        attempt.tap.commit()
    assert attempt.tap.failure is not None
    assert (attempt.tap.failure.code, attempt.tap.failure.what) == ("run.harness", "ZeroDivisionError: at row 1")
    assert isinstance(attempt.tap.failure.__cause__, ZeroDivisionError)
    assert len(attempt.rows()) == 1, "what was said is on record all the same"


@pytest.mark.requirement("schedule.recovery")
def test_watcher_that_raises_breaks_its_attempt_with_the_code_of_a_listener(tmp_path: Path) -> None:
    def raise_(event: Event) -> None:
        raise KeyError(f"at frame {event.frame}")

    log = FrameLog(tmp_path / "frames.jsonl", redactor=Redactor([]), clock=FakeClock())
    rows: list[Any] = []
    derivation = Derivation(
        CodexNormalizer(), attempt=AttemptId("a"), runtime_id=ID, trace=rows.extend, transcript=rows.extend
    )
    tap = RecordingTap(log, derivation, watcher=raise_)
    with log:
        tap.record(StepTaken(step="began"))
    assert tap.failure is not None
    assert (tap.failure.code, tap.failure.what) == ("listener.failed", "the watcher raised KeyError: 'at frame 1'")


@pytest.mark.requirement("attempt.interrupt-one")
def test_on_a_shared_channel_one_full_disk_leaves_the_other_attempts_alone(tmp_path: Path) -> None:
    attempts = [Attempt(tmp_path / f"{number}.jsonl") for number in range(3)]
    broken = attempts[1]

    async def test() -> None:
        async with connected() as line, anyio.create_task_group() as tasks:

            async def converse(attempt: Attempt) -> None:
                async with line.host.open_session(session_ask(), attempt.tap) as session:
                    await session.turn("Go on.")

            for attempt in attempts:
                tasks.start_soon(converse, attempt)
                await anyio.wait_all_tasks_blocked()
            with full_disk(broken.log):
                line.twin.say(*(message(number) for number in (1, 2, 3)))
                line.twin.say(*(turn_completed(f"thread-{number}") for number in (1, 2, 3)))
                await line.twin.taken_in()

    def message(number: int) -> dict[str, Any]:
        item = {"id": "m", "type": "agentMessage", "text": f"I am {number}."}
        return notification("item/completed", threadId=f"thread-{number}", turnId="u", item=item)

    run(test)
    for attempt in attempts:
        attempt.log.close()
    assert [attempt.tap.failure and attempt.tap.failure.code for attempt in attempts] == [
        None,
        "machine.disk-full",
        None,
    ]
    assert [[event.text for event in attempt.events if isinstance(event, TextSaid)] for attempt in attempts] == [
        ["I am 1."],
        [],
        ["I am 3."],
    ]
