"""The record of an attempt or conversation while it is written: its first files, and its four streams."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from proctor import canonical
from proctor.attempt.derive import Derivation
from proctor.attempt.model import AttemptRequest
from proctor.attempt.tap import OnEvent, RecordingTap
from proctor.evidence import layout, tripwire
from proctor.evidence.artifacts import AttemptRecord, SealedFile, StreamHead
from proctor.evidence.recorder import ChainedLog, FrameLog
from proctor.evidence.redact import Redactor
from proctor.ids import Digest
from proctor.probe.model import ProbeRow
from proctor.runtime.thread_normalizer import normalizer_of
from proctor.spec.choices import SCRIPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The open streams. Rows enter through `tap`, which also writes the derived streams `calls` and `transcript`."""

    frames: FrameLog
    calls: ChainedLog
    transcript: ChainedLog
    probes: ChainedLog
    probe_rows: list[ProbeRow] = field(default_factory=list)
    """Results of the probes so far."""
    derivation: Derivation
    tap: RecordingTap

    def record_probes(self, rows: Sequence[ProbeRow]) -> None:
        """Write results of probes."""
        self.probe_rows.extend(rows)
        self.probes.append(rows)

    def heads(self) -> dict[str, StreamHead]:
        """Return the end of each stream, by file name."""
        return {name: stream.head for name, stream in self._streams()}

    def files(self) -> dict[str, SealedFile]:
        """Return digest and size of each stream, and of each file that a probe kept, by file name."""
        kept = {
            each.file: SealedFile(sha256=each.sha256.removeprefix("sha256:"), bytes=each.bytes)
            for row in self.probe_rows
            for each in row.artifacts
        }
        return {**kept, **{name: stream.file for name, stream in self._streams()}}

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
            normalizer_of(request.runtime),
            attempt=request.attempt_id,
            runtime_id=request.runtime.id,
            trace=calls.append,
            transcript=transcript.append,
            run_id=request.run_id,
            owns_compaction=request.context is not None and request.context.owns_compaction,
        )
        tap = RecordingTap(frames, derivation, derived=(calls, transcript, probes), watcher=watcher)
        if planted is not None:
            tap.note(tripwire.planted_row(planted))
        yield Recording(
            frames=frames, calls=calls, transcript=transcript, probes=probes, derivation=derivation, tap=tap
        )


def write_first_files(request: AttemptRequest, *, prompt: str, base: Digest, redactor: Redactor) -> dict[str, bytes]:
    """Write prompt.txt and attempt.json, before the agent gets its prompt. Return their bytes by file name."""
    paths, flow, continuation = request.paths, request.flow, request.continuation
    written = layout.write_text_artifact(paths.prompt, prompt, redactor=redactor, is_durable=False)
    record = AttemptRecord(
        attempt_id=request.attempt_id,
        trial=request.trial.id,
        n=request.n,
        campaign_id=request.campaign_id,
        run_id=request.run_id,
        mission_id=request.mission.id,
        flow_id=flow.id,
        repeat=request.trial.repeat,
        runtime_id=request.runtime.id,
        is_scripted=request.model.provider == SCRIPTED,
        plan_digest=request.plan_digest,
        plan_file_digest=request.plan_file_digest,
        trial_digest=request.trial.digest,
        prompt_digest=canonical.digest_bytes(written),
        workspace_digest=base,
        required_probes=request.required_probes,
        waivers=tuple(request.mission.waive),
        expect=request.mission.expect,
        isolation=flow.isolation,
        sandbox=flow.sandbox,
        approvals=flow.approvals,
        limits=request.limits,
        tools=flow.tools,
        secret_names=tuple(secret.name for secret in request.secrets),
        sitting=request.sitting,
        context=request.context,
        continues=None if continuation is None else continuation.attempt,
        continued_from=None if continuation is None else continuation.taken,
        fresh_start=request.fresh_start,
        created_at_ms=request.clock.wall_ms(),
    )
    return {
        layout.PROMPT: written,
        layout.ATTEMPT: layout.write_artifact(paths.attempt, record, redactor=redactor, is_durable=False),
    }
