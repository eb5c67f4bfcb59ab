"""The record of what a thread is given: the row before it, the row after it, and what the caller gets."""

from proctor.canonical import digest_bytes
from proctor.event.row import HistoryOffer, HistoryReceipt
from proctor.ids import Digest
from proctor.runtime.base import Delivery
from proctor.runtime.conversion import Conversion, clean

NOTHING = Conversion(items=())


def offer_of(conversion: Conversion = NOTHING, *, instructions: str | None = None) -> HistoryOffer:
    """Return the row to write before anything is sent."""
    return HistoryOffer(
        entries=conversion.entries,
        items=len(conversion.items),
        sha256=_sha256(conversion),
        instructions_sha256=instructions_sha256(instructions),
    )


def receipt_of(
    conversion: Conversion = NOTHING, *, instructions: str | None = None, problem: str | None = None
) -> HistoryReceipt:
    """Return the row to write when the agent has answered. `conversion` has only what it accepted."""
    return HistoryReceipt(
        entries=conversion.entries,
        items=len(conversion.items),
        sha256=_sha256(conversion),
        instructions_sha256=instructions_sha256(instructions),
        problem=problem,
    )


def delivery_of(conversion: Conversion) -> Delivery:
    """Return the delivery of messages that were all accepted."""
    return Delivery(
        entries=conversion.entries,
        items=len(conversion.items),
        sha256=_sha256(conversion),
        omitted=conversion.omitted,
        unanswered=conversion.unanswered,
    )


def instructions_sha256(text: str | None) -> Digest | None:
    """Return the digest of instructions. None if there are none."""
    return None if text is None else digest_bytes(clean(text).encode())


def _sha256(conversion: Conversion) -> Digest | None:
    return conversion.sha256 if conversion.items else None
