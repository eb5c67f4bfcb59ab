"""A conformance case as data, and its possible results."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from proctor.evidence.proofs import Result as Result
from proctor.runtime.proof import PROVING_CASES
from proctor.testing.unproven import NotApplicableError as NotApplicableError
from proctor.testing.unproven import UnprovenError as UnprovenError
from proctor.testing.unproven import must as must

if TYPE_CHECKING:
    from proctor.testing.conformance.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One conformance case."""

    id: str
    sentence: str
    """What the case shows, as a sentence for users."""
    run: Callable[["Subject"], Awaitable[None]]
    """Returns if the case passes; raises UnprovenError, NotApplicableError or another error if not."""
    needs: tuple[str, ...] = ()
    """Further capabilities without which the case is refused."""
    supply: str = ""
    """What a runtime must provide for the case, for the onboarding page."""

    @property
    def proves(self) -> str | None:
        """The capability that the case proves; None if it applies to every runtime."""
        return next((capability for capability, cases in PROVING_CASES.items() if self.id in cases), None)

    @property
    def capabilities(self) -> tuple[str, ...]:
        return self.needs if self.proves is None else (self.proves, *self.needs)


class CaseVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The verdict on one case."""

    case: str
    """The id of the case."""
    result: Result
    """The result: passed, failed, refused or not applicable."""
    what: str | None = None
    """Why the case did not pass; null if it passed."""
    proves: str | None = None
    """The capability that the case proves; null if it applies to every runtime."""
    duration_ms: int = 0
    """How long the case took, in milliseconds."""
