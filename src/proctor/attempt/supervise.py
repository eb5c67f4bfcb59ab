"""One attempt from start to seal: whatever happens to the agent, there is a typed outcome and nothing left running."""

import os
import shlex
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from proctor.attempt.finalize import Conversation, finalize
from proctor.attempt.hooks import HookPhase, has_hook, run_hook
from proctor.attempt.machine import Move, State, after
from proctor.attempt.model import AttemptAsk, AttemptResult
from proctor.attempt.record import write_record
from proctor.attempt.recording import open_recording
from proctor.attempt.tap import RecordingTap
from proctor.attempt.turn import TEARDOWN_S, open_session, take_turn
from proctor.attempt.watchdog import Fired, Overspent, Watch, under_watch
from proctor.errors import HangupError, MachineError, ProctorError, disk_refusal
from proctor.event.claim import with_footer
from proctor.event.model import Event
from proctor.event.row import ClockRanOut, HookEnded, StepTaken, UsedUp, WasCancelled, WasRefused
from proctor.evidence import layout
from proctor.evidence.recorder import ChainedLog
from proctor.evidence.redact import Redactor
from proctor.evidence.seal import affix
from proctor.probe.model import Phase
from proctor.probe.run import run_probe
from proctor.runtime.base import Session
from proctor.workspace.diff import diff
from proctor.workspace.prepare import prepare
from proctor.workspace.remove import remove
from proctor.workspace.snapshot import EMPTY, Snapshot, is_empty, remove_leftovers, snapshot

SMALL_BYTES = 256 * 1024
SCRATCH = ("workspace", "tmp")
PROBES = "probes"

T = TypeVar("T")


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
            await remove_scratch(ask.scratch)


async def remove_scratch(folder: Path) -> None:
    """Shielded and bounded. What cannot be removed is left for the end of the run: the attempt is over all the same."""
    with suppress(OSError):
        place = str(folder)
        for name in SCRATCH:
            os.rmdir(f"{place}/{name}")  # noqa: PTH106  a Path takes as long to make as the call itself
        os.rmdir(place)  # noqa: PTH106
        return  # nothing was left in it
    with anyio.CancelScope(shield=True), anyio.move_on_after(TEARDOWN_S), suppress(OSError):
        await anyio.to_thread.run_sync(remove, folder, abandon_on_cancel=True)


async def _off_loop(work: Callable[[], T], *, is_small: bool) -> T:
    """In a thread what may take long. What is small takes longer there: the interpreter's lock changes hands at each
    of its system calls, and whoever waits for it burns time too."""
    return work() if is_small else await anyio.to_thread.run_sync(work)


class _Supervisor:
    """The attempt's own state; each step is one method."""

    def __init__(self, ask: AttemptAsk) -> None:
        self.state = State.QUEUED
        self._ask = ask
        self._redactor = Redactor(ask.secrets, private=ask.runtime.private)
        self._workspace = ask.scratch / "workspace"
        self._conversation = Conversation()
        self._session: Session | None = None
        limits = ask.limits
        self._began_s = ask.clock.steady_s()
        self._watch = Watch(
            now_s=self._began_s,
            attempt_ms=limits.attempt_ms,
            turn_ms=limits.turn_ms,
            stall_ms=limits.stall_ms,
            left=ask.left,
            tokens=limits.tokens,
        )

    def move(self, move: Move) -> None:
        self.state = after(self.state, move)
        self._ask.watcher.entered(self._ask.attempt_id, self.state)

    async def run(self) -> AttemptResult:
        ask, paths = self._ask, self._ask.paths
        self.move(Move.PREPARE)
        paths.create()

        def saw(event: Event) -> None:
            ask.watcher.saw(ask.attempt_id, event)
            self._watch.saw(event)

        with open_recording(ask, redactor=self._redactor, watcher=saw) as streams:
            frames, probes, tap = streams.frames, streams.probes, streams.tap
            base = await self._prepare()
            await self._watched(tap, lambda: self._work(tap, base, probes))
            self.move(Move.STOP)
            tap.release("")
            tap.commit()
            if (failure := self._failure(tap)) is not None:
                raise failure
            now = await self._settled_snapshot(base)
            if ask.mission.probes and not ask.stop.is_set():
                self.move(Move.PROBE)
                await self._watched(tap, lambda: self._probe(Phase.FINAL, now, probes))
            changes = None
            if has_hook(ask.mission.hooks, "after"):
                # What the agent changed, before a command that may change anything.
                changes = await anyio.to_thread.run_sync(
                    lambda: diff(ask.workspace_source, self._workspace, base=base, now=now)
                )
                tap.say(await self._hook("after"))
            ask.at_rest()
            derived = streams.derivation.finish()
            report, sealed = await _off_loop(
                lambda: finalize(
                    ask,
                    derived,
                    self._conversation,
                    base=base,
                    now=now,
                    workspace=self._workspace,
                    changes=changes,
                    redactor=self._redactor,
                    duration_ms=round((ask.clock.steady_s() - self._began_s) * 1000),
                    streams=streams.heads(),
                    files=streams.files(),
                ),
                is_small=not base.entries and now == base and frames.size_bytes + probes.size_bytes < SMALL_BYTES,
            )
            if ask.make_durable is None:
                await anyio.to_thread.run_sync(lambda: affix(paths, sealed, is_durable=True))
            else:
                await ask.make_durable()
                affix(paths, sealed, is_durable=False)
        self.move(Move.SEAL)
        return AttemptResult(attempt_id=ask.attempt_id, state=self.state, report=report)

    # ── before ──

    async def _prepare(self) -> Snapshot:
        ask = self._ask
        base = await _off_loop(self._lay_out, is_small=ask.workspace_source is None)
        self._conversation.prompt = with_footer(ask.mission.prompt)
        prompt = layout.write_text_artifact(
            ask.paths.prompt, self._conversation.prompt, redactor=self._redactor, is_durable=False
        )
        written = write_record(ask, base=base.digest, prompt=prompt, redactor=self._redactor)
        self._conversation.written = {layout.PROMPT: prompt, layout.ATTEMPT: written}
        return base

    def _lay_out(self) -> Snapshot:
        scratch, source = self._ask.scratch, self._ask.workspace_source
        try:
            scratch.mkdir(mode=0o700, parents=True)
            for name in (*SCRATCH[source is not None :], *((PROBES,) if self._ask.mission.probes else ())):
                os.mkdir(f"{scratch}/{name}", 0o700)  # noqa: PTH102
        except OSError as error:
            raise disk_refusal(error, path=scratch) from error
        if source is None:
            return EMPTY
        prepare(source, into=self._workspace)
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
            heard_s=self._heard_s,
            failure=lambda: self._failure(tap),
            stop=self._ask.stop,
            on_stop=lambda cause: self._record_stop(tap, cause),
        )

    def _heard_s(self) -> float:
        # Silence counts only while there is an agent that could speak.
        if self._session is None or not self._watch.is_in_turn:
            return self._ask.clock.steady_s()
        return self._session.last_heard_s

    def _failure(self, tap: RecordingTap) -> ProctorError | None:
        """Why the record is no longer whole: this attempt's own, or that of the process it has a place in."""
        lease = self._conversation.lease
        return tap.failure or (None if lease is None else lease.failure())

    async def _work(self, tap: RecordingTap, base: Snapshot, probes: ChainedLog) -> None:
        if has_hook(self._ask.mission.hooks, "before"):
            await self._before(tap, base)
        await self._probe(Phase.BASELINE, base, probes)
        self.move(Move.START)
        await self._talk(tap)

    async def _before(self, tap: RecordingTap, base: Snapshot) -> None:
        """MachineError, and so no session, where the hook fails or has changed the workspace."""
        clock = self._ask.clock
        self._watch.hold(clock.steady_s())
        try:
            ended = await self._hook("before")
        finally:
            self._watch.let_go(clock.steady_s())
        tap.say(ended)
        if ended.problem is not None:
            said = (ended.stderr_tail or ended.stdout_tail).strip()
            what = f"{shlex.join(ended.argv)}: {ended.problem}" + (said and f": {said}")
            raise MachineError("hook.failed", what)
        if (await anyio.to_thread.run_sync(snapshot, self._workspace)).digest != base.digest:
            what = f"{shlex.join(ended.argv)}: it changed the workspace, which is to be the agent's alone"
            raise MachineError("hook.failed", what)

    async def _hook(self, phase: HookPhase) -> HookEnded:
        return await run_hook(phase, self._ask, workspace=str(self._workspace), redactor=self._redactor)

    async def _talk(self, tap: RecordingTap) -> None:
        async with open_session(self._ask, tap, self._workspace, self._conversation, watch=self._watch) as session:
            self.move(Move.READY)
            self.move(Move.ASK)
            self._session = session
            prompt = self._conversation.prompt
            await take_turn(session, lambda: session.turn(prompt), watch=self._watch, clock=self._ask.clock)

    def _record_stop(self, tap: RecordingTap, cause: Fired | Overspent | ProctorError) -> None:
        match cause:
            case Overspent(most=most, used=used):
                tap.say(UsedUp(limit="tokens", most=most, used=used))
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

    async def _settled_snapshot(self, base: Snapshot) -> Snapshot:
        if is_empty(self._workspace):
            return EMPTY

        def settled() -> Snapshot:
            remove_leftovers(self._workspace, base)
            return snapshot(self._workspace)

        return await anyio.to_thread.run_sync(settled)

    async def _probe(self, phase: Phase, subject: Snapshot, log: ChainedLog) -> None:
        ask = self._ask
        for index, spec in enumerate(ask.mission.probes):
            row = await run_probe(
                spec,
                index=index,
                phase=phase,
                subject=self._workspace,
                subject_digest=subject.digest,
                scratch=ask.scratch / PROBES,
                hidden=ask.hidden,
                containment=ask.containment,
                intents=ask.intents,
                redactor=self._redactor,
                clock=ask.clock,
            )
            self._conversation.probes.append(row)
            log.append([row])
