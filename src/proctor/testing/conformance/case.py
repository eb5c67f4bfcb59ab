"""A case of the suite as data, and what can come of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from proctor.testing.conformance.subject import Subject


class Result(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    REFUSED = "refused"  # not claimed, and refused as such before anything was sent, where it can be asked
    NOT_APPLICABLE = "not applicable"  # could not be tried on this runtime: never a pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to be shown. `run` returns where it was, and raises why it was not.

    `proves` is the claim it is a proof of; without the claims it `needs` it is refused. `supply` is what a runtime has
    to bring for it beside the contract.
    """

    id: str
    sentence: str
    run: Callable[["Subject"], Awaitable[None]]
    proves: str | None = None
    needs: tuple[str, ...] = ()
    supply: str = ""

    @property
    def claims(self) -> tuple[str, ...]:
        return self.needs if self.proves is None else (self.proves, *self.needs)


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of a case; `what` says why it is not passed."""

    case: str
    result: Result
    what: str | None = None
    proves: str | None = None
    duration_ms: int = 0


class UnprovenError(Exception):
    """The case ran, and did not show what it is to show."""


class NotApplicableError(Exception):
    """The case cannot be tried on this runtime."""


def must(holds: bool, what: str) -> None:
    if not holds:
        raise UnprovenError(what)
