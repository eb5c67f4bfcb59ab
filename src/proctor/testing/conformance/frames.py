"""Cases of faults between the agent and Proctor: nothing is lost, and nothing is counted twice."""

import time
from collections.abc import Sequence
from typing import Any, Final

from proctor.event.model import Event, TextSaid, TextStreamed
from proctor.event.outcome import Outcome
from proctor.runtime.samples import samples_of
from proctor.testing.conformance.case import NotApplicableError, must
from proctor.testing.conformance.subject import DONE, MissionEvidence, Subject
from proctor.testing.conformance.wire import anything
from proctor.transport.fault import Alter, Delay, Duplicate, Hold, Inject, LineFault

PIECES: Final = 3_000
BALLAST_BYTES: Final = 20_000_000
_PIECE: Final = "word "
_SLOW_LINES: Final = 12
_SLOW_S: Final = 0.05
_TASK: Final = ({"run": "echo out"}, {"say": {"text": DONE, "chunk_chars": 9}})
_GARBAGE: Final = (b"[1, 2", b"not JSON at all", b'{"half":"\xff\x00', b'"a text"', b"17", b"{}")


async def duplicate_frames(subject: Subject) -> None:
    _must_be_protocol(subject)
    await _sound(subject, [LineFault(at=anything, how=Duplicate(), times=None)])


async def reordered_frames(subject: Subject) -> None:
    samples = subject.samples
    try:
        evidence = await _sound(subject, [LineFault(at=samples.is_delta, how=Hold(lines=1), times=2)])
    except NotApplicableError as error:
        raise NotApplicableError("the agent does not stream its answers: there are no pieces to reorder") from error
    streamed = sorted(char for event in evidence.of(TextStreamed) for char in event.text)
    must(streamed == sorted(DONE), "pieces of text that arrived in another order were lost")


async def malformed_frames(subject: Subject) -> None:
    _must_be_protocol(subject)
    evidence = await _sound(subject, [LineFault(at=anything, how=Inject(lines=_GARBAGE), times=2)])
    must(evidence.has_on_record(b"not JSON at all"), "a line that is not a message is not recorded")


async def unknown_frames(subject: Subject) -> None:
    stranger = subject.samples.unknown_frame
    evidence = await _sound(subject, [LineFault(at=anything, how=Inject(lines=(stranger,)), times=3)])
    must(evidence.has_on_record(stranger), "an unknown frame is not recorded")


async def long_line(subject: Subject) -> None:
    if subject.is_protocol:
        evidence = await _sound(subject, [LineFault(at=subject.samples.is_turn_end, how=Alter(to=_bloated))])
    else:
        evidence = await subject.mission({"say": {"text": "x", "repeat": BALLAST_BYTES}}, {"say": DONE})
        evidence.must_end(Outcome.COMPLETED)
        said = "".join(event.text for event in evidence.of(TextSaid)).replace("\n", "")
        must(said == "x" * BALLAST_BYTES + DONE, f"the recorded text has {len(said)} characters")
    size_bytes = evidence.paths.frames.stat().st_size
    must(size_bytes > BALLAST_BYTES, f"the record has {size_bytes} bytes of a line of {BALLAST_BYTES} bytes")


async def flood(subject: Subject) -> None:
    evidence = await subject.mission(_flood(subject))
    _must_hold_the_flood(evidence)


async def slow_consumer(subject: Subject) -> None:
    stalls = [0]

    def stall(event: Event) -> None:
        # Blocks on purpose: it simulates a slow disk or viewer while the agent continues to write.
        if isinstance(event, TextStreamed) and stalls[0] < _SLOW_LINES:
            stalls[0] += 1
            time.sleep(_SLOW_S / 10)

    late = LineFault(at=anything, how=Delay(delay_s=_SLOW_S), times=_SLOW_LINES)
    evidence = await subject.mission(_flood(subject), plan=[late], tell=stall)
    _must_hold_the_flood(evidence)


def _flood(subject: Subject) -> dict[str, Any]:
    """Return the step with many pieces of text; with few pieces for an agent that does not stream."""
    samples = samples_of(subject.runtime)
    if samples is not None and not samples.has_deltas:
        return {"say": {"text": _PIECE * PIECES, "chunk_chars": len(_PIECE) * PIECES // 10}}
    return {"say": {"text": _PIECE, "repeat": PIECES}}


def _must_hold_the_flood(evidence: MissionEvidence) -> None:
    evidence.must_end(Outcome.COMPLETED)
    whole = _PIECE * PIECES
    said = [event.text for event in evidence.of(TextSaid)]
    must(said == [whole], f"expected one text of {len(whole)} characters, recorded are {[len(text) for text in said]}")
    streamed = "".join(event.text for event in evidence.of(TextStreamed))
    must(streamed in ("", whole), f"the pieces of {len(whole)} characters have {len(streamed)} in total")


async def _sound(subject: Subject, plan: Sequence[LineFault]) -> MissionEvidence:
    """Run a mission with these faults and check that a command and an answer are recorded as without them."""
    evidence = await subject.mission(*_TASK, plan=plan)
    evidence.must_end(Outcome.COMPLETED)
    summary = evidence.summary
    counts = summary.claimed, summary.tool_calls, summary.tool_failures, [x.text for x in evidence.of(TextSaid)]
    calls = 1 if subject.has_calls else 0
    must(counts == (True, calls, 0, [DONE]), f"claimed, tool calls, tool failures and texts are {counts}")
    return evidence


def _must_be_protocol(subject: Subject) -> None:
    if not subject.is_protocol:
        raise NotApplicableError("the program writes plain text, in which no line is invalid")


def _bloated(line: bytes) -> bytes:
    """Return the same message with a large additional member."""
    return line.rstrip().removesuffix(b"}") + b',"ballast":"' + b"x" * BALLAST_BYTES + b'"}'
