"""Derives the files of an attempt again, from its frames alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proctor.attempt.derive import Derivation, DerivedResult
from proctor.event.laws import Laws
from proctor.event.model import SessionBegan
from proctor.event.row import Row
from proctor.evidence import layout
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.chain import ChainHead, chain_rows
from proctor.evidence.reader import MAX_FINDINGS, Finding
from proctor.ids import ThreadId
from proctor.runtime.registry import runtime_by_id
from proctor.runtime.thread_normalizer import normalizer_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RederiveResult:
    """What was derived from the frames."""

    files: dict[str, bytes]
    """Content of each derived file, by name."""
    streamed_bytes: dict[str, int]
    """How much of each file is written while rows still arrive. The rest is written when the record ends."""
    derived: DerivedResult
    thread: ThreadId | None
    """The agent's own id for the conversation."""
    is_resumed: bool | None
    """Whether it had a history before. None if the frames do not show its start."""
    findings: tuple[Finding, ...]
    """What is wrong with the frames."""


class _Lines:
    """A chained stream in memory."""

    def __init__(self) -> None:
        self._head = ChainHead()
        self.data = bytearray()

    def append(self, rows: Iterable[Any]) -> None:
        self.data += chain_rows(rows, head=self._head)


def rederive(files: AttemptFiles) -> RederiveResult:
    """Fold the recorded rows again.

    Raises EvidenceError if attempt.json cannot be read, and another ProctorError if its runtime is not available.
    """
    record = files.record
    normalizer = normalizer_of(runtime_by_id(record.runtime_id))
    trace, transcript = _Lines(), _Lines()
    derivation = Derivation(
        normalizer,
        attempt=record.attempt_id,
        runtime_id=record.runtime_id,
        trace=trace.append,
        transcript=transcript.append,
        run_id=record.run_id,
        owns_compaction=record.context is not None and record.context.owns_compaction,
    )
    reading = files.rows(layout.FRAMES, Row)
    laws = Laws()
    violations: list[Finding] = []
    thread: ThreadId | None = None
    is_resumed: bool | None = None
    for row in reading:
        for event in derivation.feed([row]):
            violation = laws.feed(event)
            if violation is not None and len(violations) < MAX_FINDINGS:
                violations.append(Finding(code="evidence.laws", file=layout.FRAMES, line=row.seq, detail=violation))
            if isinstance(event, SessionBegan):
                thread, is_resumed = event.thread, event.is_resumed
    streamed_bytes = {layout.TOOL_CALLS: len(trace.data), layout.TRANSCRIPT: len(transcript.data)}
    derived = derivation.finish()
    return RederiveResult(
        files={layout.TOOL_CALLS: bytes(trace.data), layout.TRANSCRIPT: bytes(transcript.data)},
        streamed_bytes=streamed_bytes,
        derived=derived,
        thread=thread,
        is_resumed=is_resumed,
        findings=(*reading.findings, *violations),
    )
