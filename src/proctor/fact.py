"""A value with its source and authority. A weaker statement never replaces a stronger one, and conflicts are kept."""

from enum import StrEnum
from typing import Any

import msgspec


class Authority(StrEnum):
    """How far a statement can be trusted, from the weakest to the strongest."""

    UNKNOWN = "unknown"
    """There is no statement."""

    DECLARED = "declared"
    """A spec, a config file or a runtime declares it."""

    REPORTED = "reported"
    """The agent program reported it."""

    INFERRED = "inferred"
    """A versioned rule of Proctor concluded it."""

    OBSERVED = "observed"
    """Proctor observed it directly."""

    VERIFIED = "verified"
    """Proctor checked it against an independent source."""


_STRENGTH = {authority: rank for rank, authority in enumerate(Authority)}


class Fact(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """One statement about an attempt."""

    value: Any
    """The value; None if it is unknown."""

    authority: Authority
    """How far the value can be trusted."""

    source: str
    """Where the value comes from, in a few words."""

    refs: tuple[str, ...] = ()
    """The rows that support it, as `frames.jsonl:ROW`."""

    conflicts: tuple["Fact", ...] = ()
    """Statements with another value that this one prevailed over."""


UNKNOWN = Fact(value=None, authority=Authority.UNKNOWN, source="not reported")


def settle(old: Fact, new: Fact) -> Fact:
    """Combine two statements: the stronger one wins, or the newer of equals. A loser that differs becomes a conflict.

    >>> reported = Fact(value="1.0", authority=Authority.REPORTED, source="userAgent")
    >>> observed = Fact(value="1.1", authority=Authority.OBSERVED, source="--version")
    >>> settle(observed, reported).value, [f.value for f in settle(observed, reported).conflicts]
    ('1.1', ['1.0'])
    """
    if old.authority is Authority.UNKNOWN:
        return new
    winner, loser = (new, old) if _STRENGTH[new.authority] >= _STRENGTH[old.authority] else (old, new)
    if new.authority is Authority.UNKNOWN or winner.value == loser.value:
        return winner
    conflict = msgspec.structs.replace(loser, conflicts=())
    return msgspec.structs.replace(winner, conflicts=(*old.conflicts, *new.conflicts, conflict))
