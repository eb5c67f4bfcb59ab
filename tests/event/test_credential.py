"""What the record says of a credential: nothing, until a provider has answered."""

import msgspec
import pytest

from proctor.event.credential import CredentialFold, CredentialReading, CredentialState
from proctor.event.model import ErrorReported, Event, TextSaid, ToolBegan, TurnBegan, TurnEnded, UsageAuthority
from proctor.fact import Authority, Fact
from proctor.ids import CallId, ItemId, TurnId
from tests.event.streams import total

BEGAN = TurnBegan(turn=TurnId("t"), frame=1, at_ms=1)
USED = total(2, frame=2)
USED_NONE = total(0, frame=2)
USED_BEFORE = msgspec.structs.replace(total(2, frame=2), authority=UsageAuthority.RESTORED_ON_RESUME)
REFUSED = ErrorReported(text="no", code="provider.unauthorized", will_retry=True, frame=3, at_ms=1)
FORBIDDEN = TurnEnded(turn=TurnId("t"), status="failed", error="no", code="provider.forbidden", frame=4, at_ms=1)
BUSY = ErrorReported(text="busy", code="provider.unavailable", frame=5, at_ms=1)
ENDED = TurnEnded(turn=TurnId("t"), status="completed", frame=6, at_ms=1)
SAID = TextSaid(turn=TurnId("t"), item=ItemId("i"), text="Invalid API key. Please log in.", frame=7, at_ms=1)
CALLED = ToolBegan(turn=TurnId("t"), call=CallId("c"), kind="command", name="shell", frame=8, at_ms=1)
STRANGE = ErrorReported(text="no", error_class="someoneElses:401", frame=9, at_ms=1)


@pytest.mark.requirement("runtime.credential")
@pytest.mark.parametrize(
    ("events", "state", "frame"),
    [
        ([], CredentialState.UNVERIFIED, None),
        ([BEGAN, BUSY, ENDED], CredentialState.UNVERIFIED, None),
        ([BEGAN, STRANGE, ENDED], CredentialState.UNVERIFIED, None),
        ([BEGAN, SAID, USED_NONE, ENDED], CredentialState.UNVERIFIED, None),
        ([BEGAN, USED_BEFORE, ENDED], CredentialState.UNVERIFIED, None),
        ([BEGAN, USED, USED, BUSY, ENDED], CredentialState.ACCEPTED, 2),
        ([BEGAN, CALLED, USED], CredentialState.ACCEPTED, 8),
        ([BEGAN, REFUSED, FORBIDDEN], CredentialState.REJECTED, 4),
        ([BEGAN, REFUSED, SAID], CredentialState.REJECTED, 3),
        ([BEGAN, USED, REFUSED, USED], CredentialState.REJECTED, 3),
        ([BEGAN, REFUSED, USED], CredentialState.ACCEPTED, 2),
    ],
)
def test_the_last_answer_of_the_provider_counts(events: list[Event], state: CredentialState, frame: int | None) -> None:
    fold = CredentialFold()
    for event in events:
        fold.feed(event)
    assert fold.seen == CredentialReading(state=state, frame=frame)
    fact = fold.fact(None)
    assert (fact.value, fact.authority) == (state, "unknown" if frame is None else "inferred")
    assert fact.refs == (() if frame is None else (f"frames.jsonl:{frame}",))


@pytest.mark.requirement("runtime.credential")
def test_where_no_login_is_needed_nothing_was_accepted() -> None:
    fold = CredentialFold()
    fold.feed(USED)
    given = Fact(value={"login": "none", "from": None}, authority=Authority.OBSERVED, source="flow")
    assert fold.fact(given) == Fact(value="not-needed", authority=Authority.DECLARED, source="flow")
