"""A case of the engine suite as data, its verdict, and the report of all verdicts."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from proctor.context.engine import EngineInfo
from proctor.evidence.proofs import Result

if TYPE_CHECKING:
    from proctor.testing.engines.engine_subject import EngineSubject


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCase:
    """One case of the engine suite."""

    id: str
    number: int | None
    """Number of the required behaviour that the case is one part of. None if only the contract states it."""
    sentence: str
    """What the case shows, as a sentence for authors."""
    todo: str
    """What the author should do if it fails."""
    run: Callable[["EngineSubject"], Awaitable[None]]
    """Returns if the case passes; raises UnprovenError, NotApplicableError or another error if not."""


class EngineVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The verdict on one case of the engine suite."""

    case: str
    """Id of the case. It never changes."""
    number: int | None
    """Number of the required behaviour that the case is one part of. Null if only the contract states it."""
    sentence: str
    """What the case shows."""
    result: Result
    """The result: passed, failed or not applicable."""
    what: str | None = None
    """What was wrong, or why the case could not be run. Null if it passed."""
    todo: str | None = None
    """What the author of the engine should do. Null if the case did not fail."""
    duration_ms: int = 0
    """How long the case took, in milliseconds."""


class EngineReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The verdicts on one engine."""

    engine: EngineInfo | None
    """What the engine is. Null if it could not be created."""
    verdicts: tuple[EngineVerdict, ...]
    """One verdict per case, in the order of the suite."""

    @property
    def failures(self) -> tuple[str, ...]:
        """One text for each case that failed: `assert not check_engine(create).failures` prints them."""
        return tuple(
            f"{each.case}: {each.sentence} {each.what}. {each.todo}"
            for each in self.verdicts
            if each.result is Result.FAILED
        )
