"""The bucket, the action and the retryability that a report prints beside an error code."""

from functools import lru_cache
from typing import TypedDict

from proctor.errors.codes import CODES
from proctor.errors.meaning import Bucket


class Advice(TypedDict):
    """The fields that a report prints beside an error code; each is None if unknown."""

    bucket: Bucket | None
    retryable: bool | None
    todo: str | None


@lru_cache(maxsize=256)
def advice(code: str | None, *, has_begun: bool = True) -> Advice:
    """Return the advice for a code. Every field is None without a code; an unknown code has only a bucket.

    `has_begun` is whether the agent had accepted a turn.
    """
    known = None if code is None else CODES.get(code)
    return Advice(
        bucket=None if code is None else bucket_of(code, has_begun=has_begun),
        retryable=None if known is None else known.retryable,
        todo=None if known is None else known.todo,
    )


_FAMILY_BUCKETS = {
    "machine": Bucket.INFRA,
    "engine": Bucket.INFRA,
    "peer": Bucket.AGENT,
    "provider": Bucket.INFRA,
    "agent": Bucket.AGENT,
    "limit": Bucket.AGENT,
}


def bucket_of(code: str, *, has_begun: bool = True) -> Bucket:
    """Return the cause of a failure with this code.

    A program that did not accept a turn shows nothing about the agent's work: such a failure is never the agent's.

    >>> bucket_of("provider.unauthorized"), bucket_of("provider.stream-cut"), bucket_of("workspace.base-changed")
    (<Bucket.AUTH: 'auth'>, <Bucket.INFRA: 'infra'>, <Bucket.HARNESS: 'harness'>)
    >>> bucket_of("peer.hangup"), bucket_of("peer.hangup", has_begun=False)
    (<Bucket.AGENT: 'agent'>, <Bucket.INFRA: 'infra'>)
    """
    own_bucket = CODES[code].bucket if code in CODES else None
    bucket = own_bucket or _FAMILY_BUCKETS.get(code.partition(".")[0], Bucket.HARNESS)
    return Bucket.INFRA if bucket is Bucket.AGENT and not has_begun else bucket
