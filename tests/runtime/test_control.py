"""What control did on raw frames is what the record, redacted, comes to."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.attempt.derive import Derivation
from proctor.attempt.tap import RecordingTap
from proctor.errors import HangupError
from proctor.event.outcome import Outcome
from proctor.evidence.recorder import FrameLog
from proctor.evidence.redact import Redactor
from proctor.evidence.secrets import find_secrets
from proctor.ids import AttemptId
from proctor.runtime.codex_app_server import RUNTIME
from proctor.runtime.codex_app_server.normalize import CodexNormalizer
from proctor.testing.clock import FakeClock
from tests.runtime.twin import Request, Twin, connected, notification, run, session_ask, turn_completed

THREAD = "thread-1"
TURN = "turn-of-thread-1"
# Values that stand in the frames which decide when a turn is over.
SECRETS = [THREAD, TURN, "completed", "interrupted", "turn/completed", "agentMessage", "The end is near."]

FRAMES: list[dict[str, Any]] = [
    notification("turn/started", threadId=THREAD, turn={"id": TURN, "status": "inProgress"}),
    *(turn_completed(THREAD, status=status) for status in ("completed", "failed", "interrupted", "paused")),
    turn_completed("helper"),
    notification("turn/completed", threadId=THREAD),
    notification("turn/completed", threadId=THREAD, turn=[]),
    notification("item/agentMessage/delta", threadId=THREAD, turnId=TURN, itemId="m", delta="The end is"),
    notification(
        "item/completed",
        threadId=THREAD,
        turnId=TURN,
        item={"id": "m", "type": "agentMessage", "text": "The end is near."},
    ),
    notification("thread/status/changed", threadId=THREAD, status={"type": "idle"}),
    notification("error", threadId=THREAD, turnId=TURN, error={"message": "completed"}, willRetry=True),
]


@pytest.mark.requirement("runtime.events.pure")
@settings(max_examples=60)
@given(st.lists(st.sampled_from(FRAMES), max_size=6), st.sets(st.sampled_from(SECRETS)))
def test_a_turn_has_ended_for_whoever_waited_exactly_when_it_has_on_record(
    frames: list[dict[str, Any]], secrets: set[str]
) -> None:
    async def test(log: FrameLog) -> tuple[bool, Outcome]:
        rows: list[Any] = []
        derivation = Derivation(
            CodexNormalizer(), attempt=AttemptId("a"), runtime_id=RUNTIME.id, trace=rows.extend, transcript=rows.extend
        )
        tap = RecordingTap(log, derivation)

        def start(twin: Twin, request: Request) -> None:
            twin.say({"id": request.id, "result": {"turn": {"id": TURN, "status": "inProgress"}}}, *frames)
            twin.hang_up()

        async with (
            connected(Twin({"turn/start": start})) as line,
            line.host.open_session(session_ask(), tap) as session,
        ):
            try:
                await session.turn("Go on.")
                has_ended = True
            except HangupError:
                has_ended = False
        assert tap.failure is None
        return has_ended, derivation.ending.outcome

    # The words of the protocol among them are never secrets: that is what the law rests on.
    environ = {f"S{number}_KEY": value for number, value in enumerate(sorted(secrets))}
    redactor = Redactor(find_secrets(environ, declared=[], words=RUNTIME.protocol_words), private=RUNTIME.private_paths)
    with (
        tempfile.TemporaryDirectory() as folder,
        FrameLog(Path(folder) / "frames.jsonl", redactor=redactor, clock=FakeClock()) as log,
    ):
        has_ended, outcome = run(lambda: test(log))
    assert outcome in ({Outcome.COMPLETED, Outcome.FAILED} if has_ended else {Outcome.CRASHED})
