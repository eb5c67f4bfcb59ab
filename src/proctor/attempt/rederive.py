"""The derived files of an attempt, made again from its frames alone, in another process at another time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proctor.attempt.derive import Derivation, Derived
from proctor.event.laws import Laws
from proctor.event.model import SessionBegan
from proctor.event.row import Row
from proctor.evidence import layout
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.chain import ChainHead, chain_rows
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import MAX_PROBLEMS, Problem, read_artifact, read_rows
from proctor.ids import ThreadId
from proctor.runtime.registry import runtime_by_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Rederived:
    """The bytes that the frames give, what they come to, and what was wrong on the way.

    `streamed_bytes` is how much of each file arises while rows still come, before an end is put to it.
    """

    files: dict[str, bytes]
    streamed_bytes: dict[str, int]
    derived: Derived
    thread: ThreadId | None
    problems: tuple[Problem, ...]


class _Lines:
    """A chained stream that stays in memory."""

    def __init__(self) -> None:
        self._head = ChainHead()
        self.data = bytearray()

    def append(self, rows: Iterable[Any]) -> None:
        self.data += chain_rows(rows, head=self._head)


def rederive(paths: AttemptPaths) -> Rederived:
    """Fold the recorded rows again. EvidenceError where the attempt does not even say what it is."""
    record = read_artifact(paths.attempt, AttemptRecord)
    trace, transcript = _Lines(), _Lines()
    normalizer = runtime_by_id(record.strategy).normalizer()
    derivation = Derivation(normalizer, trace=trace.append, transcript=transcript.append)
    reading = read_rows(paths.frames, Row)
    laws = Laws()
    broken: list[Problem] = []
    thread: ThreadId | None = None
    for row in reading:
        for event in derivation.feed([row]):
            law = laws.feed(event)
            if law is not None and len(broken) < MAX_PROBLEMS:
                broken.append(Problem(code="evidence.laws", file=layout.FRAMES, line=row.seq, detail=law))
            if isinstance(event, SessionBegan):
                thread = event.thread
    streamed_bytes = {layout.TOOL_CALLS: len(trace.data), layout.TRANSCRIPT: len(transcript.data)}
    derived = derivation.finish()
    return Rederived(
        files={layout.TOOL_CALLS: bytes(trace.data), layout.TRANSCRIPT: bytes(transcript.data)},
        streamed_bytes=streamed_bytes,
        derived=derived,
        thread=thread,
        problems=(*reading.problems, *broken),
    )
