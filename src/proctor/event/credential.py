"""Whether the provider took the credential, as a fold of what was recorded. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from proctor.event.model import ErrorReported, Event, ToolBegan, TurnEnded, UsageAuthority, UsageReported
from proctor.fact import Authority, Fact

_REFUSALS = frozenset({"provider.unauthorized", "provider.forbidden"})


class CredentialState(StrEnum):
    """What is known of a credential. `unverified` is what it is until a provider has answered."""

    NOT_NEEDED = "not-needed"
    UNVERIFIED = "unverified"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialSeen:
    """The state, and the row that says so."""

    state: CredentialState
    frame: int | None = None


class CredentialFold:
    """Feed it events; the last answer of the provider counts."""

    def __init__(self) -> None:
        self.seen = CredentialSeen(state=CredentialState.UNVERIFIED)
        self._most_tokens = 0

    def feed(self, event: Event) -> None:
        match event:
            case ErrorReported(code=str(code)) | TurnEnded(code=str(code)) if code in _REFUSALS:
                self.seen = CredentialSeen(state=CredentialState.REJECTED, frame=event.frame)
            # A total that is told again is no new answer.
            case UsageReported(tokens=tokens, authority=authority) if (
                tokens.total > self._most_tokens and authority is not UsageAuthority.RESTORED_ON_RESUME
            ):
                self._most_tokens = tokens.total if event.basis == "cumulative" else 0
                self._accept(event)
            case ToolBegan():
                self._accept(event)

    def fact(self, given: Fact | None) -> Fact:
        """`given` is what was found for the flow before the run; where it needs nothing, there is nothing to accept."""
        if given is not None and isinstance(given.value, dict) and given.value.get("login") == "none":
            return Fact(value=CredentialState.NOT_NEEDED.value, authority=Authority.DECLARED, source="flow")
        seen = self.seen
        return Fact(
            value=seen.state.value,
            authority=Authority.UNKNOWN if seen.frame is None else Authority.INFERRED,
            source="whether the model was let speak, or refused with 401 or 403, as the agent told it",
            refs=() if seen.frame is None else (f"frames.jsonl:{seen.frame}",),
        )

    def _accept(self, event: Event) -> None:
        """Only a model that was let work uses tokens or calls tools. Words prove nothing: an agent may well say its
        login error as if it were an answer."""
        if self.seen.state is not CredentialState.ACCEPTED:
            self.seen = CredentialSeen(state=CredentialState.ACCEPTED, frame=event.frame)
