"""What the record says of a credential: nothing, until a provider has answered."""

import pytest

from proctor.event.credential import CredentialFold, CredentialSeen, CredentialState
from proctor.event.model import ErrorReported, Event, TextSaid, TurnBegan, TurnEnded
from proctor.ids import ItemId, TurnId

BEGAN = TurnBegan(turn=TurnId("t"), frame=1, at_ms=1)
SPOKE = TextSaid(turn=TurnId("t"), item=ItemId("i"), text="hi", frame=2, at_ms=1)
REFUSED = ErrorReported(text="no", error_class="responseStreamDisconnected:401", will_retry=True, frame=3, at_ms=1)
FORBIDDEN = TurnEnded(
    turn=TurnId("t"), status="failed", error="no", error_class="httpConnectionFailed:403", frame=4, at_ms=1
)
BUSY = ErrorReported(text="busy", error_class="httpConnectionFailed:503", frame=5, at_ms=1)
ENDED = TurnEnded(turn=TurnId("t"), status="completed", frame=6, at_ms=1)


@pytest.mark.requirement("runtime.credential")
@pytest.mark.parametrize(
    ("events", "state", "frame"),
    [
        ([], CredentialState.UNVERIFIED, None),
        ([BEGAN, BUSY, ENDED], CredentialState.UNVERIFIED, None),
        ([BEGAN, SPOKE, SPOKE, BUSY, ENDED], CredentialState.ACCEPTED, 2),
        ([BEGAN, REFUSED, FORBIDDEN], CredentialState.REJECTED, 4),
        ([BEGAN, SPOKE, REFUSED], CredentialState.REJECTED, 3),
        ([BEGAN, REFUSED, SPOKE], CredentialState.ACCEPTED, 2),
    ],
)
def test_the_last_answer_of_the_provider_counts(events: list[Event], state: CredentialState, frame: int | None) -> None:
    fold = CredentialFold()
    for event in events:
        fold.feed(event)
    assert fold.seen == CredentialSeen(state=state, frame=frame)
