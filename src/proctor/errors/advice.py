"""What a report says beside a code: whose matter it is, whether trying again can help, and what to do."""

from functools import lru_cache
from typing import TypedDict

from proctor.errors.codes import CODES
from proctor.errors.meaning import Bucket


class Advice(TypedDict):
    """What a report says beside a code."""

    bucket: Bucket | None
    retryable: bool | None
    todo: str | None


@lru_cache(maxsize=256)
def advice(code: str | None) -> Advice:
    """Nothing where there is no code, and only a bucket where it is not in the table."""
    known = None if code is None else CODES.get(code)
    return Advice(
        bucket=None if code is None else bucket_of(code),
        retryable=None if known is None else known.retryable,
        todo=None if known is None else known.todo,
    )


_FAMILY_BUCKETS = {
    "machine": Bucket.INFRA,
    "peer": Bucket.AGENT,
    "provider": Bucket.INFRA,
    "agent": Bucket.AGENT,
    "limit": Bucket.AGENT,
}


def bucket_of(code: str) -> Bucket:
    """Whose matter it is when an attempt ends with this code.

    >>> bucket_of("provider.unauthorized"), bucket_of("provider.stream-cut"), bucket_of("workspace.base-changed")
    (<Bucket.AUTH: 'auth'>, <Bucket.INFRA: 'infra'>, <Bucket.HARNESS: 'harness'>)
    """
    own = CODES[code].bucket if code in CODES else None
    return own or _FAMILY_BUCKETS.get(code.partition(".")[0], Bucket.HARNESS)
