"""Which quotas are used up when a campaign is taken up again, as a fold of its attempts so far. Pure."""

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
    """A key that is shut until then, and the code of the refusal that said so."""

    key: str
    until_ms: int
    code: str


def shut_windows(
    tried: Sequence[A], *, keys: Callable[[A], tuple[str, ...] | None], now_ms: int, longest_ms: int
) -> Iterator[Window]:
    """Yield the keys that a provider shut until later, unless a later attempt on the key was served.

    `keys` returns the limits that an attempt counted against, or None if that is not known any more.
    """
    told: dict[str, tuple[Wait, str]] = {}
    for each in tried:
        if remedy_for(each) is not Remedy.PARK or (wait := retry_wait(each)) is None or (its := keys(each)) is None:
            continue
        key = rationed(each.code, its)
        if key not in told or _order(told[key][0]) < _order(wait):
            told[key] = wait, each.code or Remedy.PARK.value
    for each in tried if told else ():
        if each.state == "sealed" and remedy_for(each) is Remedy.NONE:
            for key in (ALL, *(keys(each) or ())):
                # One that began before tells of the time before, as in the run that heard it.
                if key in told and each.started_at_ms > told[key][0].since_ms:
                    del told[key]
    for key, (wait, code) in told.items():
        if (until_ms := wait.ends_at_ms(now_ms, longest_ms=longest_ms)) is not None:
            yield Window(key=key, until_ms=until_ms, code=code)


def _order(wait: Wait) -> tuple[int, int]:
    return wait.since_ms, wait.until_ms
