"""Which quotas are used up when a campaign is taken up again, as a fold of its attempts so far. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from proctor.campaign.schedule import ALL, rationed
from proctor.plan.recover import Remedy
from proctor.plan.standing import Tried, follows, waits
from proctor.plan.wait import Wait

Keys = Callable[[Tried], tuple[str, ...] | None]
"""What an attempt counted against, beside the limit for all; None where that cannot be said any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A key that is shut until then, and the code of the refusal that said so."""

    key: str
    until_ms: int
    code: str


def shut_windows(tried: Sequence[Tried], *, keys: Keys, now_ms: int, longest_ms: int) -> Iterator[Window]:
    """By what was told last of each key, unless somebody began after that and was served."""
    told: dict[str, tuple[Wait, str]] = {}
    for each in tried:
        if follows(each) is not Remedy.PARK or (wait := waits(each)) is None or (its := keys(each)) is None:
            continue
        key = rationed(each.code, its)
        if key not in told or _order(told[key][0]) < _order(wait):
            told[key] = wait, each.code or Remedy.PARK.value
    for each in tried if told else ():
        if each.state == "sealed" and follows(each) is Remedy.NONE:
            for key in (ALL, *(keys(each) or ())):
                # One that began before tells of the time before, as in the run that heard it.
                if key in told and each.claimed_at_ms > told[key][0].since_ms:
                    del told[key]
    for key, (wait, code) in told.items():
        if (until_ms := wait.ends_at_ms(now_ms, longest_ms=longest_ms)) is not None:
            yield Window(key=key, until_ms=until_ms, code=code)


def _order(wait: Wait) -> tuple[int, int]:
    return wait.since_ms, wait.until_ms
