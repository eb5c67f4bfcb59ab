"""The four streams of a record while it grows, and what is made of them: one set for attempts and conversations."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from proctor.attempt.derive import Derivation
from proctor.attempt.model import AttemptAsk
from proctor.attempt.tap import OnEvent, RecordingTap
from proctor.evidence import canary, layout
from proctor.evidence.artifacts import SealedFile, StreamHead
from proctor.evidence.recorder import ChainedLog, FrameLog
from proctor.evidence.redact import Redactor


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Fed through `tap`; the two derived ones come of it by themselves."""

    frames: FrameLog
    calls: ChainedLog
    transcript: ChainedLog
    probes: ChainedLog
    derivation: Derivation
    tap: RecordingTap

    def heads(self) -> dict[str, StreamHead]:
        return {name: stream.head for name, stream in self._streams()}

    def files(self) -> dict[str, SealedFile]:
        return {name: stream.file for name, stream in self._streams()}

    def _streams(self) -> Iterator[tuple[str, FrameLog | ChainedLog]]:
        yield layout.FRAMES, self.frames
        yield layout.TOOL_CALLS, self.calls
        yield layout.TRANSCRIPT, self.transcript
        yield layout.PROBES, self.probes


@contextmanager
def open_recording(
    ask: AttemptAsk, *, redactor: Redactor, watcher: OnEvent, is_on_disk: bool = True
) -> Iterator[Recording]:
    """The canary is planted in them first. Not on disk they take everything and keep nothing."""

    def kept(path: Path) -> Path | None:
        return path if is_on_disk else None

    paths, planted = ask.paths, canary.among(ask.secrets)
    unsaid = canary.unsaid(planted)
    with (
        FrameLog(kept(paths.frames), redactor=redactor, clock=ask.clock, unsaid=unsaid) as frames,
        ChainedLog(kept(paths.tool_calls), unsaid=unsaid) as calls,
        ChainedLog(kept(paths.transcript), unsaid=unsaid) as transcript,
        ChainedLog(kept(paths.probes), redactor=redactor, unsaid=unsaid) as probes,
    ):
        derivation = Derivation(ask.runtime.normalizer(), trace=calls.append, transcript=transcript.append)
        tap = RecordingTap(frames, derivation, watcher=watcher)
        if planted is not None:
            tap.note(canary.shown(planted))
        yield Recording(
            frames=frames, calls=calls, transcript=transcript, probes=probes, derivation=derivation, tap=tap
        )
