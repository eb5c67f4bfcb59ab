"""Whether the provider took the credential, as a fold of what was recorded. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from proctor.event.model import (
    ErrorReported,
    Event,
    ReasoningStreamed,
    TextSaid,
    TextStreamed,
    ToolBegan,
    TurnEnded,
    UsageReported,
)

_SPOKEN = (UsageReported, TextStreamed, TextSaid, ReasoningStreamed, ToolBegan)
_REFUSALS = (":401", ":403", "unauthorized")


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

    def feed(self, event: Event) -> None:
        match event:
            case ErrorReported(error_class=str(error_class)) | TurnEnded(error_class=str(error_class)):
                if error_class.endswith(_REFUSALS):
                    self.seen = CredentialSeen(state=CredentialState.REJECTED, frame=event.frame)
            case _ if isinstance(event, _SPOKEN) and self.seen.state is not CredentialState.ACCEPTED:
                # Only a model that was let speak has anything to say.
                self.seen = CredentialSeen(state=CredentialState.ACCEPTED, frame=event.frame)
