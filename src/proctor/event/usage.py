"""Fold reports of token usage into the tokens of each turn, which are never the total of the thread. Pure."""

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

STRENGTH = {authority: rank for rank, authority in enumerate(UsageAuthority)}
"""The rank of each source of token counts. A stronger one has a higher rank."""
NO_TOKENS = Tokens(input=0, output=0, total=0, cached_input=0, cache_write=0, reasoning_output=0)


def can_follow(earlier: Tokens, later: Tokens) -> bool:
    """Return whether a thread's total can come after an earlier one: no part of it falls, and it has parts.

    After an overflow of the context, Codex reports the size of the context window as the total, without any input or
    output.

    >>> can_follow(Tokens(input=9, output=1, total=10), Tokens(input=20, output=1, total=21))
    True
    >>> can_follow(Tokens(input=9, output=1, total=10), Tokens(input=0, output=0, total=272_000))
    False
    """
    is_filled = later.total > 0 and not later.input and not later.output
    return not is_filled and all(
        there >= here
        for here, there in (
            (earlier.input, later.input),
            (earlier.output, later.output),
            (earlier.total, later.total),
        )
    )


class TurnUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The tokens of one turn, from the strongest source."""

    turn: TurnId
    """Id of the turn."""

    tokens: Tokens | None
    """The numbers; None if only the thread's total is known, and not where the turn began."""

    basis: UsageBasis
    """How the source counted."""

    authority: UsageAuthority
    """The source."""

    check: Literal["equal", "divergent"] | None = None
    """Whether weaker sources agree; None if there are none."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The tokens of all turns of an attempt."""

    tokens: Tokens | None
    """The sum; None if the tokens of any turn are unknown."""

    scope: Literal["turn", "session"]
    """Whether it covers one turn or a session of several."""

    basis: UsageBasis
    """How the weakest source counted."""

    authority: UsageAuthority
    """The weakest source among the turns."""

    turns: tuple[TurnUsage, ...]
    """The tokens of each turn."""


class UsageFold:
    """Fold events into usage. `tokens` is the sum so far, for live display."""

    def __init__(self) -> None:
        self._total: Tokens | None = NO_TOKENS
        self._before: dict[TurnId, Tokens | None] = {}
        self._reports: dict[TurnId, dict[UsageAuthority, TurnUsage]] = {}
        self._turn: TurnId | None = None

    @property
    def tokens(self) -> Tokens | None:
        usage = self.finish()
        return None if usage is None else usage.tokens

    def feed(self, event: Event) -> None:
        match event:
            case SessionBegan(is_resumed=True):
                # A resumed thread does not begin at 0, and its total is not known yet.
                self._total = None
            case SessionBegan():
                self._total = NO_TOKENS
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
            return  # it is the thread's total before the turn
        reports = self._reports.setdefault(turn, {})
        tokens: Tokens | None = event.tokens
        if event.basis == "cumulative":
            before = self._before[turn]
            is_known = before is not None and can_follow(before, event.tokens)
            tokens = _minus(event.tokens, before) if before is not None and is_known else None
        elif event.basis == "delta" and (earlier := reports.get(event.authority)) is not None:
            tokens = None if earlier.tokens is None else plus(earlier.tokens, event.tokens)
        reports[event.authority] = TurnUsage(turn=turn, tokens=tokens, basis=event.basis, authority=event.authority)

    def finish(self) -> Usage | None:
        """Return the usage; None if it was never reported. A turn without a report has unknown tokens, not 0."""
        if not self._reports:
            return None
        turns = tuple(map(self._settled, self._before))
        weakest = min(turns, key=lambda each: STRENGTH[each.authority])
        total: Tokens | None = NO_TOKENS
        for each in turns:
            total = None if total is None or each.tokens is None else plus(total, each.tokens)
        return Usage(
            tokens=turns[0].tokens if len(turns) == 1 else total,
            scope="turn" if len(turns) == 1 else "session",
            basis=weakest.basis,
            authority=weakest.authority,
            turns=turns,
        )

    def last_turn(self) -> Usage | None:
        """Return the usage of the last turn; None if it was not reported."""
        if not self._reports:
            return None
        last = self._settled(next(reversed(self._before)))
        return Usage(tokens=last.tokens, scope="turn", basis=last.basis, authority=last.authority, turns=(last,))

    def _settled(self, turn: TurnId) -> TurnUsage:
        reports = self._reports.get(turn)
        if reports is None:
            return TurnUsage(turn=turn, tokens=None, basis="absolute", authority=UsageAuthority.NONE)
        known = [each for each in reports.values() if each.tokens is not None] or list(reports.values())
        best = max(known, key=lambda each: STRENGTH[each.authority])
        others = {each.tokens.total for each in known if each.tokens is not None and each is not best}
        if others and best.tokens is not None:
            check: Literal["equal", "divergent"] = "equal" if others == {best.tokens.total} else "divergent"
            best = msgspec.structs.replace(best, check=check)
        return best


def plus(one: Tokens, other: Tokens) -> Tokens:
    """Return the sum. A part that is unknown in either is unknown."""
    return _combine(one, other, sign=1)


def _minus(one: Tokens, other: Tokens) -> Tokens:
    return _combine(one, other, sign=-1)


def _combine(one: Tokens, other: Tokens, *, sign: int) -> Tokens:
    """Add `sign` times the other numbers. A part that is unknown on either side is unknown.

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
        cache_write=part(one.cache_write, other.cache_write),
        reasoning_output=part(one.reasoning_output, other.reasoning_output),
    )
