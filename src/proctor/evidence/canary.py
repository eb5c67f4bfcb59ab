"""A planted canary: a secret of no worth that no agent is given, on record in every run to show that it is masked."""

from collections.abc import Iterable
from secrets import token_hex

from proctor.event.row import StepTaken
from proctor.evidence.secrets import Secret
from proctor.fact import Authority, Fact

NAME = "PROCTOR_CANARY"


def plant() -> Secret:
    return Secret(name=NAME, value=f"canary-{token_hex(16)}")


def among(secrets: Iterable[Secret]) -> Secret | None:
    """The canary, where one was planted."""
    return next((secret for secret in secrets if secret.name == NAME), None)


def unsaid(canary: Secret | None) -> bytes:
    """What no file may hold."""
    return b"" if canary is None else canary.value.encode()


def shown(canary: Secret) -> StepTaken:
    """What a record begins with. On disk it says that the value was there, and not what it was."""
    return StepTaken(step="canary", detail={"planted": canary.value})


def fact(canary: Secret) -> Fact:
    """The same for a JSON file."""
    source = "planted in this run, and never given to the agent"
    return Fact(value={"canary": canary.value}, authority=Authority.OBSERVED, source=source)
