"""What the supervisor records becomes events: the failures of listeners and hooks have a code."""

import msgspec
import pytest

from proctor.errors import CODES
from proctor.event.model import WarningRaised
from proctor.event.row import CALLBACK_FAILED, CALLBACK_GIVEN_UP, GENESIS, Direction, HookEnded, Row, StepTaken
from proctor.event.supervisor_events import supervisor_event
from proctor.event.transcript import TranscriptFold


@pytest.mark.requirement("schedule.recovery")
@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (StepTaken(step=CALLBACK_FAILED, detail={"request": "1", "what": "KeyError: x"}), "listener.failed"),
        (StepTaken(step=CALLBACK_GIVEN_UP, detail={"request": "1", "what": "it runs on"}), "listener.stuck"),
        (HookEnded(phase="after", argv=("make",), duration_ms=1, exit_code=2, problem="exit status 2"), "hook.failed"),
    ],
)
def test_listener_failures_are_warnings_with_a_code(seen: StepTaken | HookEnded, code: str) -> None:
    row = Row(seq=1, at_ms=0, dir=Direction.SELF, prev=GENESIS, frame=msgspec.Raw(msgspec.json.encode(seen)))
    event = supervisor_event(row)
    assert isinstance(event, WarningRaised)
    assert event.code == code
    assert code in CODES
    line = TranscriptFold().feed(event)
    assert line is not None
    assert (line.kind, line.code) == ("warning", code)
