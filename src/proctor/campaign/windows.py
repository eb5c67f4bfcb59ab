"""Finds the quotas that are still used up when a campaign is resumed, from its attempts so far. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from proctor.campaign.schedule import ALL, rationed
from proctor.plan.progress import AttemptEnding, remedy_for, retry_wait
from proctor.plan.recover import Remedy
from proctor.plan.wait import Wait


class StartedAttempt(AttemptEnding, Protocol):
    """An attempt whose start is known."""

    @property
    def started_at_ms(self) -> int: ...


A = TypeVar("A", bound=StartedAttempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A key that is shut until a time, and the code of the refusal that shut it."""

    key: str
    until_ms: int
    code: str


def shut_windows(
    tried: Sequence[A], *, keys: Callable[[A], tuple[str, ...] | None], now_ms: int, longest_ms: int
) -> Iterator[Window]:
    """Yield the keys that a provider shut until later, unless a later attempt on the key was served.

    `keys` returns the limits that an attempt counted against, or None if that is not known any more.
    """
    shut: dict[str, tuple[Wait, str]] = {}
    for each in tried:
        if remedy_for(each) is not Remedy.PARK or (wait := retry_wait(each)) is None or (its := keys(each)) is None:
            continue
        key = rationed(each.code, its)
        if key not in shut or _order(shut[key][0]) < _order(wait):
            shut[key] = wait, each.code or Remedy.PARK.value
    for each in tried if shut else ():
        if each.state == "sealed" and remedy_for(each) is Remedy.NONE:
            for key in (ALL, *(keys(each) or ())):
                # An attempt that began before the refusal says nothing about the time after it.
                if key in shut and each.started_at_ms > shut[key][0].since_ms:
                    del shut[key]
    for key, (wait, code) in shut.items():
        if (until_ms := wait.ends_at_ms(now_ms, longest_ms=longest_ms)) is not None:
            yield Window(key=key, until_ms=until_ms, code=code)


def _order(wait: Wait) -> tuple[int, int]:
    return wait.since_ms, wait.until_ms
