"""When a loop of rounds is stopped early, because its last rounds show that another one will not help. Pure."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proctor.ids import Digest

EQUAL_ROUNDS: Final = 3
"""So many rounds in a row with equal findings stop the loop."""

FALLING_ROUNDS: Final = 2
"""So many rounds in a row, each of which met fewer criteria than the one before it, stop the loop."""


class StopReason(StrEnum):
    """Why a loop is stopped before its work is verified and its budget is used up."""

    EQUAL_FINDINGS = "equal-findings"
    """The last three rounds had the same findings."""

    FEWER_CRITERIA = "fewer-criteria"
    """The number of met criteria fell twice in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFindings:
    """What the probes found in one round."""

    findings: Digest
    """Digest of everything that speaks against the work."""
    met: int
    """Number of criteria that are met."""


def stop_early(rounds: Sequence[RoundFindings]) -> StopReason | None:
    """Return why no further round should begin; None if one may. `rounds` are all decided rounds, oldest first.

    >>> a, b = Digest("a"), Digest("b")
    >>> stop_early([RoundFindings(findings=each, met=1) for each in (b, a, a)])
    >>> stop_early([RoundFindings(findings=each, met=1) for each in (a, a, a)]).value
    'equal-findings'
    >>> stop_early([RoundFindings(findings=Digest(str(met)), met=met) for met in (3, 2, 1)]).value
    'fewer-criteria'
    >>> stop_early([RoundFindings(findings=Digest(str(n)), met=met) for n, met in enumerate((3, 2, 2, 1))])
    """
    last = rounds[-EQUAL_ROUNDS:]
    if len(last) == EQUAL_ROUNDS and len({each.findings for each in last}) == 1:
        return StopReason.EQUAL_FINDINGS
    met = [each.met for each in rounds[-FALLING_ROUNDS - 1 :]]
    if len(met) > FALLING_ROUNDS and all(later < earlier for earlier, later in itertools.pairwise(met)):
        return StopReason.FEWER_CRITERIA
    return None
