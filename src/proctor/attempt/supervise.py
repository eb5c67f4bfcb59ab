"""One attempt from start to seal: whatever happens to the agent, there is a typed outcome and nothing left running."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread

from proctor import canonical
from proctor.attempt.derive import Derivation
from proctor.attempt.finalize import Conversation, finalize
from proctor.attempt.machine import Move, State, after
from proctor.attempt.model import AttemptAsk, AttemptResult, Lease
from proctor.attempt.tap import RecordingTap
from proctor.attempt.watchdog import Fired, Watch, under_watch
from proctor.errors import HangupError, MachineError, ProctorError, disk_refusal
from proctor.event.claim import with_footer
from proctor.event.row import ClockRanOut, StepTaken, WasCancelled, WasRefused
from proctor.evidence import canary, layout
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.recorder import ChainedLog, FrameLog
from proctor.evidence.redact import Redactor
from proctor.probe.model import Phase, require
from proctor.probe.run import run_probe
from proctor.runtime.base import Session, SessionAsk
from proctor.workspace.prepare import prepare
from proctor.workspace.remove import remove
from proctor.workspace.snapshot import Snapshot, remove_leftovers, snapshot

TEARDOWN_S = 30.0


async def run_attempt(ask: AttemptAsk) -> AttemptResult:
    """Run it. Cancelling the caller stops the agent and leaves a partial record; setting `ask.stop` ends it sealed."""
    supervisor = _Supervisor(ask)
    try:
        return await supervisor.run()
    except ProctorError as error:
        # The evidence cannot be kept, so there must be no seal; what was written stays as it is.
        supervisor.move(Move.ABANDON)
        return AttemptResult(attempt_id=ask.attempt_id, state=supervisor.state, error=error)
    finally:
        if not ask.is_scratch_kept:
            await _remove_scratch(ask.scratch)


async def _remove_scratch(folder: Path) -> None:
    """Shielded and bounded. What cannot be removed is left for the end of the run: the attempt is over all the same."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(TEARDOWN_S), suppress(OSError):
        await anyio.to_thread.run_sync(remove, folder, abandon_on_cancel=True)


class _Supervisor:
    """The attempt's own state; each step is one method."""

    def __init__(self, ask: AttemptAsk) -> None:
        self.state = State.QUEUED
        self._ask = ask
        self._redactor = Redactor(ask.secrets, private=ask.runtime.private)
        self._workspace = ask.scratch / "workspace"
        self._conversation = Conversation()
        self._lease: Lease | None = None
        self._session: Session | None = None
        limits = ask.limits
        self._began_s = ask.clock.steady_s()
        self._watch = Watch(
            now_s=self._began_s, attempt_ms=limits.attempt_ms, turn_ms=limits.turn_ms, stall_ms=limits.stall_ms
        )

    def move(self, move: Move) -> None:
        self.state = after(self.state, move)
        self._ask.watcher.entered(self._ask.attempt_id, self.state)

    async def run(self) -> AttemptResult:
        ask, paths = self._ask, self._ask.paths
        self.move(Move.PREPARE)
        paths.create()
        with (
            FrameLog(paths.frames, redactor=self._redactor, clock=ask.clock) as frames,
            ChainedLog(paths.tool_calls) as calls,
            ChainedLog(paths.transcript) as transcript,
            ChainedLog(paths.probes, redactor=self._redactor) as probes,
        ):
            derivation = Derivation(ask.runtime.normalizer(), trace=calls.append, transcript=transcript.append)
            tap = RecordingTap(frames, derivation, watcher=lambda event: ask.watcher.saw(ask.attempt_id, event))
            if (planted := canary.among(ask.secrets)) is not None:
                tap.say(canary.shown(planted))
            base = await self._prepare()
            await self._watched(tap, lambda: self._work(tap, base, probes))
            self.move(Move.STOP)
            tap.release("")
            if (failure := self._failure(tap)) is not None:
                raise failure
            now = await anyio.to_thread.run_sync(self._settled_snapshot, base)
            if ask.mission.probes and not ask.stop.is_set():
                self.move(Move.PROBE)
                await self._watched(tap, lambda: self._probe(Phase.FINAL, now, probes))
            derived = derivation.finish()
            report = await anyio.to_thread.run_sync(
                lambda: finalize(
                    ask,
                    derived,
                    self._conversation,
                    base=base,
                    now=now,
                    workspace=self._workspace,
                    redactor=self._redactor,
                    duration_ms=round((ask.clock.steady_s() - self._began_s) * 1000),
                    streams={
                        layout.FRAMES: frames.head,
                        layout.TOOL_CALLS: calls.head,
                        layout.TRANSCRIPT: transcript.head,
                        layout.PROBES: probes.head,
                    },
                )
            )
        self.move(Move.SEAL)
        return AttemptResult(attempt_id=ask.attempt_id, state=self.state, report=report)

    # ── before ──

    async def _prepare(self) -> Snapshot:
        ask = self._ask
        base = await anyio.to_thread.run_sync(self._lay_out)
        self._conversation.prompt = with_footer(ask.mission.prompt)
        prompt = layout.write_text_artifact(
            ask.paths.prompt, self._conversation.prompt, redactor=self._redactor, is_durable=False
        )
        flow = ask.flow
        record = AttemptRecord(
            attempt_id=ask.attempt_id,
            cell=ask.cell.id,
            n=ask.n,
            campaign_id=ask.campaign_id,
            run_id=ask.run_id,
            mission_id=ask.mission.id,
            flow_id=flow.id,
            repeat=ask.cell.repeat,
            strategy=ask.runtime.id,
            plan_digest=ask.plan_digest,
            cell_digest=ask.cell.digest,
            prompt_digest=canonical.digest_bytes(prompt),
            workspace_digest=base.digest,
            required_probes=tuple(probe.digest for probe in require(ask.mission.probes)),
            isolation=flow.isolation,
            sandbox=flow.sandbox,
            approvals=flow.approvals,
            limits=ask.limits,
            secret_names=tuple(secret.name for secret in ask.secrets),
            created_at_ms=ask.clock.wall_ms(),
        )
        written = layout.write_artifact(ask.paths.attempt, record, redactor=self._redactor, is_durable=False)
        self._conversation.written = {ask.paths.prompt: prompt, ask.paths.attempt: written}
        return base

    def _lay_out(self) -> Snapshot:
        try:
            for name in ("tmp", "probes"):
                (self._ask.scratch / name).mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise disk_refusal(error, path=self._ask.scratch) from error
        prepare(self._ask.workspace_source, into=self._workspace)
        base = snapshot(self._workspace)
        if base.digest != self._ask.workspace_digest:
            raise MachineError("workspace.base-changed", "the frozen workspace is not what it was when the run began")
        return base

    # ── under the clocks ──

    async def _watched(self, tap: RecordingTap, work: Callable[[], Awaitable[None]]) -> None:
        """Whatever may take long: a clock that fires ends it, and so does being asked to stop."""
        await under_watch(
            work,
            self._watch,
            clock=self._ask.clock,
            # Silence counts only while there is an agent that could speak.
            heard_s=lambda: self._ask.clock.steady_s() if self._session is None else self._session.last_heard_s,
            failure=lambda: self._failure(tap),
            stop=self._ask.stop,
            on_stop=lambda cause: self._record_stop(tap, cause),
        )

    def _failure(self, tap: RecordingTap) -> ProctorError | None:
        """Why the record is no longer whole: this attempt's own, or that of the process it has a place in."""
        return tap.failure or (None if self._lease is None else self._lease.failure())

    async def _work(self, tap: RecordingTap, base: Snapshot, probes: ChainedLog) -> None:
        await self._probe(Phase.BASELINE, base, probes)
        self.move(Move.START)
        await self._talk(tap)

    async def _talk(self, tap: RecordingTap) -> None:
        async with self._open_session(tap) as session:
            self.move(Move.READY)
            self.move(Move.ASK)
            self._watch.turn_began(self._ask.clock.steady_s())
            self._session = session
            try:
                await session.turn(self._conversation.prompt)
            finally:
                self._session = None
                self._watch.turn_ended()
                # Shielded so that a fired clock cannot leave the turn's children running; bounded in any case.
                with anyio.CancelScope(shield=True), anyio.move_on_after(TEARDOWN_S):
                    await session.interrupt()
                    await session.settle()

    @asynccontextmanager
    async def _open_session(self, tap: RecordingTap) -> AsyncIterator[Session]:
        ask, conversation = self._ask, self._conversation
        async with ask.lease() as lease:
            self._lease = lease
            conversation.process = lease.process
            conversation.facts = dict(lease.host.facts)
            conversation.process_rows_from = lease.rows()
            session_ask = SessionAsk(
                attempt=ask.attempt_id,
                workspace=self._workspace,
                tmp=ask.scratch / "tmp",
                sandbox=ask.flow.sandbox,
                approvals=ask.flow.approvals,
                model=ask.model,
                options=ask.flow.options.get(ask.runtime.id, {}),
            )
            try:
                async with lease.host.open_session(session_ask, tap) as session:
                    conversation.session_id = session.session_id
                    conversation.thread = session.thread
                    yield session
            finally:
                conversation.process_rows_to = lease.rows()

    def _record_stop(self, tap: RecordingTap, cause: Fired | ProctorError) -> None:
        match cause:
            case Fired(clock=None):
                tap.say(WasCancelled(why="asked to stop"))
            case Fired(clock=clock, limit_ms=limit_ms) if clock is not None:
                tap.say(ClockRanOut(clock=clock, limit_ms=limit_ms))
            case HangupError() if self.state is State.TURN_RUNNING:
                # The connection has put the end of the channel on record already.
                tap.say(StepTaken(step="hangup", detail={"what": str(cause)}))
            case ProctorError():
                tap.say(WasRefused(code=cause.code, detail=str(cause)))

    # ── after ──

    def _settled_snapshot(self, base: Snapshot) -> Snapshot:
        remove_leftovers(self._workspace, base)
        return snapshot(self._workspace)

    async def _probe(self, phase: Phase, subject: Snapshot, log: ChainedLog) -> None:
        ask = self._ask
        for index, spec in enumerate(ask.mission.probes):
            row = await run_probe(
                spec,
                index=index,
                phase=phase,
                subject=self._workspace,
                subject_digest=subject.digest,
                scratch=ask.scratch / "probes",
                hidden=ask.hidden,
                containment=ask.containment,
                intents=ask.intents,
                clock=ask.clock,
            )
            self._conversation.probes.append(row)
            log.append([row])
