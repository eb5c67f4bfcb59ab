"""Thread and process are two facts: neither follows from the other."""

import pytest

from proctor.event.model import (
    Event,
    ProcessExited,
    ReplyReceived,
    SessionBegan,
    StatusChanged,
    StreamEnded,
    TurnBegan,
    TurnEnded,
)
from proctor.event.status import StatusFold
from proctor.fact import Authority, Fact
from proctor.ids import ThreadId, TurnId

T = TurnId("t")
BEGAN = SessionBegan(thread=ThreadId("th"), frame=1, at_ms=1)
RUNS = TurnBegan(turn=T, frame=2, at_ms=1)
DONE = TurnEnded(turn=T, status="completed", frame=3, at_ms=1)
FAILED = TurnEnded(turn=T, status="failed", frame=3, at_ms=1)
CLOSED = StreamEnded(cause="eof", frame=8, at_ms=1)
EXITED = ProcessExited(code=1, frame=9, at_ms=1)
KILLED = ProcessExited(code=None, signal=9, frame=9, at_ms=1)
OWN_EXIT = ProcessExited(code=0, is_turns_own=True, frame=9, at_ms=1)


def status(word: str) -> StatusChanged:
    return StatusChanged(status=word, channel="thread/status/changed", frame=4, at_ms=1)


@pytest.mark.requirement("runtime.status")
@pytest.mark.parametrize(
    ("events", "thread", "process"),
    [
        ([], ("unknown", "unknown"), ("unknown", "unknown")),
        ([BEGAN], ("unknown", "unknown"), ("alive", "observed")),
        ([ReplyReceived(method="initialize", frame=1, at_ms=1)], ("unknown", "unknown"), ("alive", "observed")),
        ([BEGAN, RUNS, status("active")], ("active", "reported"), ("alive", "observed")),
        # A process that lives says nothing of its thread, and a thread that failed nothing of its process.
        ([BEGAN, RUNS, status("system-error"), FAILED], ("system-error", "reported"), ("alive", "observed")),
        ([BEGAN, RUNS, status("not-loaded")], ("not-loaded", "reported"), ("alive", "observed")),
        ([BEGAN, RUNS, status("idle"), DONE, CLOSED, EXITED], ("idle", "reported"), ("exited", "observed")),
        ([BEGAN, RUNS, status("active"), CLOSED, KILLED], ("unknown", "unknown"), ("killed", "observed")),
        ([BEGAN, RUNS, status("active"), CLOSED], ("unknown", "unknown"), ("unknown", "unknown")),
        # An agent that says nothing of its thread: how its last turn ended does.
        ([BEGAN, RUNS, DONE, OWN_EXIT], ("idle", "inferred"), ("exited", "observed")),
        ([BEGAN, RUNS, FAILED, OWN_EXIT], ("system-error", "inferred"), ("exited", "observed")),
        ([BEGAN, RUNS, DONE, OWN_EXIT, RUNS], ("unknown", "unknown"), ("alive", "observed")),
        # A word that is none of ours tells nothing.
        ([BEGAN, RUNS, status("pondering")], ("unknown", "unknown"), ("alive", "observed")),
    ],
)
def test_thread_and_process_are_told_apart(
    events: list[Event], thread: tuple[str, str], process: tuple[str, str]
) -> None:
    fold = StatusFold()
    for event in events:
        fold.feed(event)
    assert (fold.thread.value, fold.thread.authority) == thread
    assert (fold.process.value, fold.process.authority) == process


def test_a_status_names_the_channel_and_the_frame_it_came_by() -> None:
    fold = StatusFold()
    fold.feed(status("idle"))
    assert fold.thread == Fact(
        value="idle", authority=Authority.REPORTED, source="thread/status/changed", refs=("frames.jsonl:4",)
    )
