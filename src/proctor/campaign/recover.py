"""The failure table's other half: what a campaign does after an attempt that ended so. Pure."""

from enum import StrEnum

from proctor.errors import CODES, Bucket, bucket_of
from proctor.event.outcome import Outcome


class Remedy(StrEnum):
    """What comes after an attempt. A retry is a new attempt of the cell: nothing is sent again in the old one."""

    NONE = "none"  # the result stands
    AGAIN = "again"  # after a pause that doubles; it counts as a retry
    YIELD = "yield"  # asked too often: fewer at a time, after a pause; no retry is used up
    PARK = "park"  # a quota: everything that shares it waits for its window; no retry is used up
    REDO = "redo"  # it was cut off from outside: as if it had not been; no retry is used up
    STOP = "stop"  # nothing of this flow can do better: its cells are left for a resume


_BY_CODE = {
    "provider.rate-limited": Remedy.YIELD,
    "provider.overloaded": Remedy.YIELD,
    "peer.overloaded": Remedy.YIELD,
    "provider.usage-limit": Remedy.PARK,
    "run.cancelled": Remedy.REDO,
    "run.cut-off": Remedy.REDO,
    "limit.campaign": Remedy.REDO,
}


def remedy(outcome: Outcome, code: str | None) -> Remedy:
    """What the campaign does after it.

    >>> remedy(Outcome.COMPLETED, None), remedy(Outcome.CRASHED, "peer.hangup")
    (<Remedy.NONE: 'none'>, <Remedy.AGAIN: 'again'>)
    """
    if outcome is Outcome.COMPLETED or code is None:
        return Remedy.NONE
    if code in _BY_CODE:
        return _BY_CODE[code]
    if bucket_of(code) in (Bucket.AUTH, Bucket.QUOTA):
        return Remedy.STOP
    return Remedy.AGAIN if code in CODES and CODES[code].retryable else Remedy.NONE
