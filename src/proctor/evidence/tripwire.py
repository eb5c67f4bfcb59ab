"""The tripwire: a worthless secret, recorded in every run but never given to an agent, to show that masking works."""

from collections.abc import Iterable
from secrets import token_hex

from proctor.event.row import StepTaken
from proctor.evidence.secrets import Secret
from proctor.fact import Authority, Fact

NAME = "PROCTOR_TRIPWIRE"


def plant() -> Secret:
    """Return a new tripwire."""
    return Secret(name=NAME, value=f"tripwire-{token_hex(16)}")


def find_tripwire(secrets: Iterable[Secret]) -> Secret | None:
    """Return the tripwire among the secrets; None if none was planted."""
    return next((secret for secret in secrets if secret.name == NAME), None)


def forbidden_bytes(tripwire: Secret | None) -> bytes:
    """Return the bytes that no evidence file may contain; empty without a tripwire."""
    return b"" if tripwire is None else tripwire.value.encode()


def planted_row(tripwire: Secret) -> StepTaken:
    """Return the first row of a record. On disk, the value is masked."""
    return StepTaken(step="tripwire", detail={"planted": tripwire.value})


def fact(tripwire: Secret) -> Fact:
    """Return the tripwire as a fact for a JSON file. On disk, the value is masked."""
    source = "planted in this run, and never given to the agent"
    return Fact(value={"tripwire": tripwire.value}, authority=Authority.OBSERVED, source=source)
