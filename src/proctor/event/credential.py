"""Fold events into whether the provider accepted the credential. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from proctor.event.model import ErrorReported, Event, ToolBegan, TurnEnded, UsageAuthority, UsageReported
from proctor.fact import Authority, Fact

_REFUSALS = frozenset({"provider.unauthorized", "provider.forbidden"})


class CredentialState(StrEnum):
    """Whether the provider accepted the credential."""

    NOT_NEEDED = "not-needed"
    """The flow uses no login."""

    UNVERIFIED = "unverified"
    """The provider has not answered yet."""

    ACCEPTED = "accepted"
    """The model produced output."""

    REJECTED = "rejected"
    """The provider answered with 401 or 403."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialReading:
    """The state, and the number of the row that shows it."""

    state: CredentialState
    frame: int | None = None


class CredentialFold:
    """Fold events into the state of the credential; the provider's last answer counts."""

    def __init__(self) -> None:
        self.seen = CredentialReading(state=CredentialState.UNVERIFIED)
        self._most_tokens = 0

    def feed(self, event: Event) -> None:
        match event:
            case ErrorReported(code=str(code)) | TurnEnded(code=str(code)) if code in _REFUSALS:
                self.seen = CredentialReading(state=CredentialState.REJECTED, frame=event.frame)
            # A repeated total does not prove a new answer.
            case UsageReported(tokens=tokens, authority=authority) if (
                tokens.total > self._most_tokens and authority is not UsageAuthority.RESTORED_ON_RESUME
            ):
                self._most_tokens = tokens.total if event.basis == "cumulative" else 0
                self._accept(event)
            case ToolBegan():
                self._accept(event)

    def fact(self, credential_input: Fact | None) -> Fact:
        """Return the fact `credentialState`. `credential_input` is the fact of that name: a flow without a login needs
        no credential."""
        value = None if credential_input is None else credential_input.value
        if isinstance(value, dict) and value.get("login") == "none":
            return Fact(value=CredentialState.NOT_NEEDED.value, authority=Authority.DECLARED, source="flow")
        seen = self.seen
        return Fact(
            value=seen.state.value,
            authority=Authority.UNKNOWN if seen.frame is None else Authority.INFERRED,
            source="model output, or a 401 or 403 that the agent reported",
            refs=() if seen.frame is None else (f"frames.jsonl:{seen.frame}",),
        )

    def _accept(self, event: Event) -> None:
        """Record that the provider accepted the credential.

        Only tokens and tool calls prove it. Text does not: an agent may print its login error like an answer.
        """
        if self.seen.state is not CredentialState.ACCEPTED:
            self.seen = CredentialReading(state=CredentialState.ACCEPTED, frame=event.frame)
