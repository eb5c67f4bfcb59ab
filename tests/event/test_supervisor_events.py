"""What the supervisor records becomes events: the failures of listeners and hooks have a code."""

import msgspec
import pytest

from proctor.errors import CODES
from proctor.event.model import HistoryGiven, HistoryOffered, WarningRaised
from proctor.event.row import (
    CALLBACK_FAILED,
    CALLBACK_GIVEN_UP,
    GENESIS,
    Direction,
    HistoryOffer,
    HistoryReceipt,
    HookEnded,
    Row,
    StepTaken,
    SupervisorRow,
)
from proctor.event.supervisor_events import supervisor_event
from proctor.event.transcript import TranscriptFold
from proctor.ids import Digest, EntryId, RuntimeId


def row_of(seen: SupervisorRow) -> Row:
    return Row(seq=1, at_ms=0, dir=Direction.SELF, prev=GENESIS, frame=msgspec.Raw(msgspec.json.encode(seen)))


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
    event = supervisor_event(row_of(seen))
    assert isinstance(event, WarningRaised)
    assert event.code == code
    assert code in CODES
    line = TranscriptFold(RuntimeId("r")).feed(event)
    assert line is not None
    assert (line.kind, line.code) == ("warning", code)


_ENTRIES = (EntryId("run/a.1#3"), EntryId("run/a.1#7"))
_DIGEST, _OTHER = Digest("sha256:01"), Digest("sha256:02")


@pytest.mark.requirement("context.projection.native")
def test_history_offer_and_receipt_become_events_with_ids_and_digests() -> None:
    offer = HistoryOffer(entries=_ENTRIES, items=2, sha256=_DIGEST, instructions_sha256=_OTHER)
    receipt = HistoryReceipt(entries=_ENTRIES, items=2, sha256=_DIGEST, instructions_sha256=_OTHER)
    assert [supervisor_event(row_of(row)) for row in (offer, receipt)] == [
        HistoryOffered(entries=_ENTRIES, items=2, sha256=_DIGEST, instructions_sha256=_OTHER, frame=1, at_ms=0),
        HistoryGiven(entries=_ENTRIES, items=2, sha256=_DIGEST, instructions_sha256=_OTHER, frame=1, at_ms=0),
    ]


@pytest.mark.parametrize(
    ("receipt", "text"),
    [
        (HistoryReceipt(entries=_ENTRIES, instructions_sha256=_DIGEST), "2 messages as items and instructions"),
        (HistoryReceipt(entries=_ENTRIES[:1]), "1 message as items"),
        (HistoryReceipt(instructions_sha256=_DIGEST), "instructions"),
        (HistoryReceipt(problem="items must not be empty"), "nothing: items must not be empty"),
    ],
)
def test_transcript_says_in_one_note_what_the_thread_was_given(receipt: HistoryReceipt, text: str) -> None:
    line = TranscriptFold(RuntimeId("r")).feed(supervisor_event(row_of(receipt)))
    assert line is not None
    assert (line.kind, line.source, line.text) == ("note", "history", f"the thread was given {text}")
