"""The four streams of a record while it grows, and what is made of them: one set for attempts and conversations."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from proctor.attempt.derive import Derivation
from proctor.attempt.model import AttemptAsk
from proctor.attempt.tap import OnEvent, RecordingTap
from proctor.evidence import canary, layout
from proctor.evidence.artifacts import StreamHead
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
        return {
            layout.FRAMES: self.frames.head,
            layout.TOOL_CALLS: self.calls.head,
            layout.TRANSCRIPT: self.transcript.head,
            layout.PROBES: self.probes.head,
        }


@contextmanager
def open_recording(
    ask: AttemptAsk, *, redactor: Redactor, watcher: OnEvent, is_on_disk: bool = True
) -> Iterator[Recording]:
    """The canary is planted in them first. Not on disk they take everything and keep nothing."""

    def kept(path: Path) -> Path | None:
        return path if is_on_disk else None

    paths = ask.paths
    with (
        FrameLog(kept(paths.frames), redactor=redactor, clock=ask.clock) as frames,
        ChainedLog(kept(paths.tool_calls)) as calls,
        ChainedLog(kept(paths.transcript)) as transcript,
        ChainedLog(kept(paths.probes), redactor=redactor) as probes,
    ):
        derivation = Derivation(ask.runtime.normalizer(), trace=calls.append, transcript=transcript.append)
        tap = RecordingTap(frames, derivation, watcher=watcher)
        if (planted := canary.among(ask.secrets)) is not None:
            tap.say(canary.shown(planted))
        yield Recording(
            frames=frames, calls=calls, transcript=transcript, probes=probes, derivation=derivation, tap=tap
        )
