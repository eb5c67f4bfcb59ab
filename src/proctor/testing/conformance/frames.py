"""Cases of what may happen on the way from a real agent to us: nothing is lost, and nothing is counted twice."""

import time
from collections.abc import Sequence
from typing import Any, Final

from proctor.event.model import Event, TextSaid, TextStreamed
from proctor.event.outcome import Outcome
from proctor.runtime.samples import samples_of
from proctor.testing.conformance.case import NotApplicableError, must
from proctor.testing.conformance.subject import DONE, Kept, Subject
from proctor.testing.conformance.wire import anything
from proctor.transport.fault import Alter, Break, Delay, Duplicate, Hold, Inject

PIECES: Final = 3_000
BALLAST_BYTES: Final = 20_000_000
_PIECE: Final = "word "
_SLOW_LINES: Final = 12
_SLOW_S: Final = 0.05
_TASK: Final = ({"run": "echo out"}, {"say": {"text": DONE, "chunk_chars": 9}})
_GARBAGE: Final = (b"[1, 2", b"not JSON at all", b'{"half":"\xff\x00', b'"a text"', b"17", b"{}")


async def duplicate_frames(subject: Subject) -> None:
    _must_be_protocol(subject)
    await _sound(subject, [Break(at=anything, how=Duplicate(), times=None)])


async def reordered_frames(subject: Subject) -> None:
    samples = subject.samples
    try:
        kept = await _sound(subject, [Break(at=samples.is_delta, how=Hold(lines=1), times=2)])
    except NotApplicableError as error:
        raise NotApplicableError("its answers come whole: there are no pieces that could change places") from error
    streamed = sorted(char for event in kept.of(TextStreamed) for char in event.text)
    must(streamed == sorted(DONE), "pieces of its words that came in another order were lost")


async def malformed_frames(subject: Subject) -> None:
    _must_be_protocol(subject)
    kept = await _sound(subject, [Break(at=anything, how=Inject(lines=_GARBAGE), times=2)])
    must(kept.has_on_record(b"not JSON at all"), "what is no message is not on record")


async def unknown_frames(subject: Subject) -> None:
    stranger = subject.samples.unknown_frame
    kept = await _sound(subject, [Break(at=anything, how=Inject(lines=(stranger,)), times=3)])
    must(kept.has_on_record(stranger), "a frame that nobody knows is not on record")


async def long_line(subject: Subject) -> None:
    if subject.is_protocol:
        kept = await _sound(subject, [Break(at=subject.samples.is_turn_end, how=Alter(to=_bloated))])
    else:
        kept = await subject.mission({"say": {"text": "x", "repeat": BALLAST_BYTES}}, {"say": DONE})
        kept.must_end(Outcome.COMPLETED)
        said = "".join(event.text for event in kept.of(TextSaid)).replace("\n", "")
        must(said == "x" * BALLAST_BYTES + DONE, f"its words come to {len(said)} characters")
    size_bytes = kept.paths.frames.stat().st_size
    must(size_bytes > BALLAST_BYTES, f"of a line of {BALLAST_BYTES} bytes {size_bytes} are on record")


async def flood(subject: Subject) -> None:
    kept = await subject.mission(_flood(subject))
    _must_hold_the_flood(kept)


async def slow_consumer(subject: Subject) -> None:
    stalls = [0]

    def stall(event: Event) -> None:
        # Not a wait: it stands for a disk or a viewer that is slow, while the agent would speak on.
        if isinstance(event, TextStreamed) and stalls[0] < _SLOW_LINES:
            stalls[0] += 1
            time.sleep(_SLOW_S / 10)

    late = Break(at=anything, how=Delay(delay_s=_SLOW_S), times=_SLOW_LINES)
    kept = await subject.mission(_flood(subject), plan=[late], tell=stall)
    _must_hold_the_flood(kept)


def _flood(subject: Subject) -> dict[str, Any]:
    """In a few pieces to an agent that tells its answers whole: it has no use for more, and may lose them by itself."""
    samples = samples_of(subject.runtime)
    if samples is not None and not samples.has_deltas:
        return {"say": {"text": _PIECE * PIECES, "chunk_chars": len(_PIECE) * PIECES // 10}}
    return {"say": {"text": _PIECE, "repeat": PIECES}}


def _must_hold_the_flood(kept: Kept) -> None:
    kept.must_end(Outcome.COMPLETED)
    whole = _PIECE * PIECES
    said = [event.text for event in kept.of(TextSaid)]
    must(said == [whole], f"of one text of {len(whole)} characters there are {[len(text) for text in said]}")
    streamed = "".join(event.text for event in kept.of(TextStreamed))
    must(streamed in ("", whole), f"the pieces of {len(whole)} characters come to {len(streamed)}")


async def _sound(subject: Subject, plan: Sequence[Break]) -> Kept:
    """A command and an answer come through as if nothing had happened."""
    kept = await subject.mission(*_TASK, plan=plan)
    kept.must_end(Outcome.COMPLETED)
    metrics = kept.report.metrics
    counts = kept.report.claimed, metrics.tool_calls, metrics.tool_failures, [x.text for x in kept.of(TextSaid)]
    calls = 1 if subject.has_calls else 0
    must(counts == (True, calls, 0, [DONE]), f"claimed, calls, failures and words are {counts}")
    return kept


def _must_be_protocol(subject: Subject) -> None:
    if not subject.is_protocol:
        raise NotApplicableError("its lines are its words: none of them is wrong")


def _bloated(line: bytes) -> bytes:
    """The same message, with a member in it that nobody knows."""
    return line.rstrip().removesuffix(b"}") + b',"ballast":"' + b"x" * BALLAST_BYTES + b'"}'
