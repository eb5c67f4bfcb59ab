"""What each turn cost, folded from reports of every kind: a turn's is never a thread's total. Pure."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from proctor.event.model import (
    Event,
    SessionBegan,
    Tokens,
    TurnBegan,
    UsageAuthority,
    UsageBasis,
    UsageReported,
)
from proctor.ids import TurnId

_STRENGTH = {authority: rank for rank, authority in enumerate(UsageAuthority)}
NOTHING = Tokens(input=0, output=0, total=0, cached_input=0, reasoning_output=0)


class TurnUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The tokens of one turn on the strongest word there is; None where only a total is known and not where it began.

    `check` says whether other words for it agree, where there are any.
    """

    turn: TurnId
    tokens: Tokens | None
    basis: UsageBasis
    authority: UsageAuthority
    check: Literal["equal", "divergent"] | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What all turns cost together: on the weakest word among theirs, and only where each is known."""

    tokens: Tokens | None
    scope: Literal["turn", "session"]
    basis: UsageBasis
    authority: UsageAuthority
    turns: tuple[TurnUsage, ...]


class UsageFold:
    """Feed it events. `tokens` is what is known so far, for whoever watches."""

    def __init__(self) -> None:
        self._total: Tokens | None = NOTHING
        self._before: dict[TurnId, Tokens | None] = {}
        self._said: dict[TurnId, dict[UsageAuthority, TurnUsage]] = {}
        self._turn: TurnId | None = None

    @property
    def tokens(self) -> Tokens | None:
        usage = self.finish()
        return None if usage is None else usage.tokens

    def feed(self, event: Event) -> None:
        match event:
            case SessionBegan(is_resumed=True):
                # It did not begin at nought, and nobody has said yet where it stands.
                self._total = None
            case TurnBegan(turn=turn):
                self._turn = turn
                self._before[turn] = self._total
            case UsageReported():
                self._report(event)
            case _:
                pass

    def _report(self, event: UsageReported) -> None:
        turn = event.turn or self._turn
        if event.basis == "cumulative":
            self._total = event.tokens
        if turn is None or turn not in self._before or event.authority is UsageAuthority.RESTORED_ON_RESUME:
            return  # it says where the thread stood before
        said = self._said.setdefault(turn, {})
        tokens: Tokens | None = event.tokens
        if event.basis == "cumulative":
            before = self._before[turn]
            tokens = None if before is None or before.total > event.tokens.total else _minus(event.tokens, before)
        elif event.basis == "delta" and (earlier := said.get(event.authority)) is not None:
            tokens = None if earlier.tokens is None else _plus(earlier.tokens, event.tokens)
        said[event.authority] = TurnUsage(turn=turn, tokens=tokens, basis=event.basis, authority=event.authority)

    def finish(self) -> Usage | None:
        """None where nobody ever spoke of it. Of several turns one that nobody spoke of is unknown, never nought."""
        if not self._said:
            return None
        turns = tuple(self._settled())
        weakest = min(turns, key=lambda each: _STRENGTH[each.authority])
        total: Tokens | None = NOTHING
        for each in turns:
            total = None if total is None or each.tokens is None else _plus(total, each.tokens)
        return Usage(
            tokens=turns[0].tokens if len(turns) == 1 else total,
            scope="turn" if len(turns) == 1 else "session",
            basis=weakest.basis,
            authority=weakest.authority,
            turns=turns,
        )

    def _settled(self) -> Iterator[TurnUsage]:
        for turn in self._before:
            words = self._said.get(turn)
            if words is None:
                yield TurnUsage(turn=turn, tokens=None, basis="absolute", authority=UsageAuthority.NONE)
                continue
            known = [each for each in words.values() if each.tokens is not None] or list(words.values())
            best = max(known, key=lambda each: _STRENGTH[each.authority])
            others = {each.tokens.total for each in known if each.tokens is not None and each is not best}
            if others and best.tokens is not None:
                check: Literal["equal", "divergent"] = "equal" if others == {best.tokens.total} else "divergent"
                best = msgspec.structs.replace(best, check=check)
            yield best


def _plus(one: Tokens, other: Tokens) -> Tokens:
    return _combine(one, other, sign=1)


def _minus(one: Tokens, other: Tokens) -> Tokens:
    return _combine(one, other, sign=-1)


def _combine(one: Tokens, other: Tokens, *, sign: int) -> Tokens:
    """
    >>> _minus(Tokens(input=20, output=3, total=23, cached_input=5), Tokens(input=9, output=1, total=10)).cached_input

    >>> _minus(Tokens(input=20, output=3, total=23), Tokens(input=9, output=1, total=10)).total
    13
    """

    def part(a: int | None, b: int | None) -> int | None:
        return None if a is None or b is None else a + sign * b

    return Tokens(
        input=one.input + sign * other.input,
        output=one.output + sign * other.output,
        total=one.total + sign * other.total,
        cached_input=part(one.cached_input, other.cached_input),
        reasoning_output=part(one.reasoning_output, other.reasoning_output),
    )
