"""A value together with who says so: weaker never overwrites stronger, conflicts are kept, unknown is a value."""

from enum import StrEnum
from typing import Any

import msgspec


class Authority(StrEnum):
    """How far a statement may be trusted, the strongest last."""

    UNKNOWN = "unknown"
    DECLARED = "declared"  # a spec or a runtime claims it
    REPORTED = "reported"  # the agent program said so
    INFERRED = "inferred"  # a versioned rule of ours concluded it
    OBSERVED = "observed"  # we saw it ourselves
    VERIFIED = "verified"  # we checked it against something independent


_STRENGTH = {authority: rank for rank, authority in enumerate(Authority)}


class Fact(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """One statement: the value, its authority, where it came from, and what it points at."""

    value: Any
    authority: Authority
    source: str
    refs: tuple[str, ...] = ()
    conflicts: tuple["Fact", ...] = ()


UNKNOWN = Fact(value=None, authority=Authority.UNKNOWN, source="nobody said")


def settle(old: Fact, new: Fact) -> Fact:
    """The stronger statement wins, the newer one among equals; a loser that disagrees is kept beside it.

    >>> said = Fact(value="1.0", authority=Authority.REPORTED, source="userAgent")
    >>> seen = Fact(value="1.1", authority=Authority.OBSERVED, source="--version")
    >>> settle(seen, said).value, [f.value for f in settle(seen, said).conflicts]
    ('1.1', ['1.0'])
    """
    if old.authority is Authority.UNKNOWN:
        return new
    winner, loser = (new, old) if _STRENGTH[new.authority] >= _STRENGTH[old.authority] else (old, new)
    if new.authority is Authority.UNKNOWN or winner.value == loser.value:
        return winner
    bare = msgspec.structs.replace(loser, conflicts=())
    return msgspec.structs.replace(winner, conflicts=(*old.conflicts, *new.conflicts, bare))
