"""The four streams of an attempt or conversation while they are written."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from proctor.attempt.derive import Derivation
from proctor.attempt.model import AttemptRequest
from proctor.attempt.tap import OnEvent, RecordingTap
from proctor.evidence import layout, tripwire
from proctor.evidence.artifacts import SealedFile, StreamHead
from proctor.evidence.recorder import ChainedLog, FrameLog
from proctor.evidence.redact import Redactor


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The open streams. Rows enter through `tap`, which also writes the derived streams `calls` and `transcript`."""

    frames: FrameLog
    calls: ChainedLog
    transcript: ChainedLog
    probes: ChainedLog
    derivation: Derivation
    tap: RecordingTap

    def heads(self) -> dict[str, StreamHead]:
        """Return the end of each stream, by file name."""
        return {name: stream.head for name, stream in self._streams()}

    def files(self) -> dict[str, SealedFile]:
        """Return digest and size of each stream, by file name."""
        return {name: stream.file for name, stream in self._streams()}

    def _streams(self) -> Iterator[tuple[str, FrameLog | ChainedLog]]:
        yield layout.FRAMES, self.frames
        yield layout.TOOL_CALLS, self.calls
        yield layout.TRANSCRIPT, self.transcript
        yield layout.PROBES, self.probes


@contextmanager
def open_recording(
    request: AttemptRequest, *, redactor: Redactor, watcher: OnEvent, is_on_disk: bool = True
) -> Iterator[Recording]:
    """Open the streams and stage the tripwire as the first row. With `is_on_disk=False`, nothing is stored."""

    def on_disk(path: Path) -> Path | None:
        return path if is_on_disk else None

    paths, planted = request.paths, tripwire.find_tripwire(request.secrets)
    forbidden = tripwire.forbidden_bytes(planted)
    with (
        FrameLog(on_disk(paths.frames), redactor=redactor, clock=request.clock, forbidden=forbidden) as frames,
        ChainedLog(on_disk(paths.tool_calls), forbidden=forbidden) as calls,
        ChainedLog(on_disk(paths.transcript), forbidden=forbidden) as transcript,
        ChainedLog(on_disk(paths.probes), redactor=redactor, forbidden=forbidden) as probes,
    ):
        derivation = Derivation(
            request.runtime.normalizer(), attempt=request.attempt_id, trace=calls.append, transcript=transcript.append
        )
        tap = RecordingTap(frames, derivation, derived=(calls, transcript, probes), watcher=watcher)
        if planted is not None:
            tap.note(tripwire.planted_row(planted))
        yield Recording(
            frames=frames, calls=calls, transcript=transcript, probes=probes, derivation=derivation, tap=tap
        )
