"""Runs one attempt from start to seal. However the agent fails, the outcome is typed and no process is left running."""

import shlex
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal

import anyio
import anyio.to_thread

from proctor import places
from proctor.attempt.finalize import finalize
from proctor.attempt.hooks import HookPhase, has_hook, run_hook
from proctor.attempt.kept_turns import KeptTurns
from proctor.attempt.machine import Move, State, after
from proctor.attempt.model import CONTINUE_PROMPT, AttemptRequest, AttemptResult
from proctor.attempt.probing import ProbeRunner
from proctor.attempt.scratch_disk import DiskSpace, ScratchDisk
from proctor.attempt.supervision import Supervision, off_loop
from proctor.attempt.turn import open_session, take_turn
from proctor.attempt.watchdog import ClockExpiry, ClockName, Stop
from proctor.attempt.workspace_layout import TMP, WORKSPACE, private_workspace, remove_scratch
from proctor.errors import Bucket, InputError, MachineError, ProctorError, RefusedError, bucket_of, disk_error
from proctor.event.claim import with_footer
from proctor.event.model import Event
from proctor.event.outcome import OPERATOR_CANCEL
from proctor.event.row import FailureFound, HookEnded, TurnClosed, TurnWanted
from proctor.evidence.artifacts import RequiredProbe
from proctor.evidence.seal import write_seal
from proctor.evidence.summary import AttemptSummary
from proctor.plan.recover import THREAD_LOST
from proctor.probe.kind import UntouchedTree
from proctor.probe.model import Phase, ProbeRow, Verdict
from proctor.runtime.agent_fences import writes_only_own_folders
from proctor.spec.choices import Isolation
from proctor.workspace.capture import Capture, capture
from proctor.workspace.copy import copy_tree
from proctor.workspace.prepare import prepare
from proctor.workspace.remove import remove
from proctor.workspace.snapshot import Snapshot, is_empty, snapshot
from proctor.workspace.walk import walk

SMALL_BYTES = 256 * 1024
"""Evidence below this size is finalized on the event loop, without a thread."""
_AGENT_CLOCKS: Final = ("attempt", "mission")
"""Clocks that measure how long the agent took. The clock of the campaign does not."""


async def run_attempt(request: AttemptRequest) -> AttemptResult:
    """Run one attempt.

    Setting `request.stop` ends it as cancelled, and it is sealed. Cancelling the caller stops the agent and leaves a
    record without a seal. The result is `abandoned`, with the error, if the evidence cannot be written.
    """
    attempt = _AttemptSteps(request)
    try:
        result = await attempt.run()
        if request.keep_workspace is not None:
            await anyio.to_thread.run_sync(_keep_workspace, request, request.keep_workspace)
        return result
    except ProctorError as error:
        # The evidence is incomplete, so it must not be sealed. What was written stays.
        attempt.move(Move.ABANDON)
        return AttemptResult(attempt_id=request.attempt_id, state=attempt.state, error=error)
    finally:
        await remove_scratch(request)


def _keep_workspace(request: AttemptRequest, place: Path) -> None:
    """Move the workspace to a folder that no later agent sees. If the disk refuses, it is not kept.

    One that the next attempt may continue in is copied.
    """
    with suppress(OSError, InputError, MachineError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        workspace = request.scratch / WORKSPACE
        if request.is_kept:
            place.mkdir(mode=0o700)
            copy_tree(workspace, walk(workspace), into=place)
        else:
            workspace.rename(place)


def _space_of(tree: Snapshot) -> DiskSpace:
    return DiskSpace(sum(entry.size_bytes for entry in tree.entries), len(tree.entries))


class _AttemptSteps:
    """State and steps of one attempt.

    The order is: prepare the workspace; before-hook; baseline probes; session and turn; stop the agent; capture the
    workspace; final probes, unless a stop was requested; after-hook; last files; seal. Everything up to the end of the
    turn, and the final probes, run under the clocks.
    """

    def __init__(self, request: AttemptRequest) -> None:
        self.state = State.QUEUED
        self._request = request
        self._supervision = Supervision(request, private_workspace(request))
        self._turns: KeptTurns | None = None
        if request.kept is not None:
            self._turns = KeptTurns(self._supervision, request.kept, thread_opened=self._thread_opened)
        self._root = self._supervision.workspace.root
        # The prompt of the mission, with its footer, is in the thread of a continued attempt.
        self._prompt = with_footer(request.mission.prompt) if request.continuation is None else CONTINUE_PROMPT
        self._stop_cause: ClockName | Literal["other"] | None = None
        self._disk: ScratchDisk | None = None
        self._probes: ProbeRunner | None = None
        self._found: FailureFound | None = None
        self._is_found_recorded = False

    def move(self, move: Move) -> None:
        """Change the state and report it to the watcher."""
        self.state = after(self.state, move)
        self._request.watcher.state_entered(self._request.attempt_id, self.state)

    async def run(self) -> AttemptResult:
        """Run all steps. Raises ProctorError if the evidence cannot be written."""
        request, supervision = self._request, self._supervision
        self.move(Move.PREPARE)
        request.paths.create()
        with supervision.open_recording(self._event_recorded):
            await self._prepare()
            await self._run_agent()
            request.turn_over()
            # Otherwise an agent that exceeds a limit just before its turn ends would keep the probes from running.
            supervision.watch.lift_limits()
            self.move(Move.STOP)
            supervision.flush()
            if (failure := supervision.failure()) is not None:
                raise failure
            await self._remove_full_homes()
            left = await self._capture()
            now = left.snapshot
            if (found := self._found or self._find_spoiled(left)) is not None:
                self._record_found(found)
            elif request.mission.probes:
                await self._judge_work(now)
            self._fail_probes(now)
            changes = None
            if has_hook(request.mission.hooks, "after"):
                # The diff is taken before the hook runs, because the hook may change the workspace.
                changes = await anyio.to_thread.run_sync(supervision.diff, now)
                supervision.tap.record(await self._hook("after"))
            if self._found is None or self._found.code != "agent.disk":
                # Otherwise the next attempt would find the disk full: it starts once the scratch folder is removed.
                request.at_rest()
            summary = await self._seal(now, changes)
        self.move(Move.SEAL)
        return AttemptResult(attempt_id=request.attempt_id, state=self.state, summary=summary)

    # ── before the agent ──

    async def _prepare(self) -> None:
        request, supervision = self._request, self._supervision
        await supervision.lay_out()
        if request.mission.probes:
            self._create_probes_folder()
        supervision.write_first_files(self._prompt)
        self._probes = self._make_runner()
        self._disk = ScratchDisk(request.scratch, base=_space_of(supervision.at_start), owned=self._owned_folders)

    def _event_recorded(self, event: Event) -> None:
        self._request.watcher.event_recorded(self._request.attempt_id, event)
        if self._turns is not None:
            self._turns.feed(event)

    # ── under the clocks ──

    async def _run_agent(self) -> None:
        """Do everything up to the end of the turn and of its session. With a context engine, the turn is committed."""
        turns = self._turns
        if turns is None:
            await self._watched(self._work)
            return
        try:
            async with turns.open_threads():
                await self._watched(self._work)
                if turns.keeper.open_turn is not None:
                    # Not under the clocks: they measure the agent, which is done.
                    self._supervision.tap.record(TurnClosed())
                    await turns.settle()
        except ProctorError as error:
            self._record_stop(error)

    async def _watched(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work that may take long until it ends, a clock expires, a stop is requested or recording fails."""
        await self._supervision.watched(
            work,
            stop=self._request.stop,
            failure=lambda: self._supervision.failure() or self._find_full_disk(),
            on_stop=self._record_stop,
        )

    def _find_full_disk(self) -> FailureFound | None:
        """Return the failure if the scratch disk is full, at this moment or at an earlier one."""
        if self._found is None and self._disk is not None:
            self._found = self._disk.find_failure()
        return self._found

    def _owned_folders(self) -> list[Path]:
        """Return the folders that only the agent of this attempt writes to."""
        return [self._root, self._request.scratch / TMP, *self._homes()]

    def _reachable_folders(self) -> list[Path] | None:
        """Return folders outside of which the agent can write nothing; None if nothing confines it.

        They contain its workspace, TMPDIR and home, which does not exist yet when the first probes run.
        """
        request = self._request
        if not writes_only_own_folders(request.runtime, request.flow):
            return None
        return [request.scratch, places.cache_dir() / "runs"]

    def _homes(self) -> list[Path]:
        """Return the homes that belong to this attempt alone."""
        request, lease = self._request, self._supervision.lease
        if lease is None or lease.home is None:
            return []
        if request.flow.isolation is Isolation.PROCESS:
            return [lease.home]
        return [lease.home / request.attempt_id, *lease.home.glob(f"*/{request.attempt_id}")]

    async def _remove_full_homes(self) -> None:
        """Remove the homes of an agent that used up the disk: they are otherwise kept until the end of the run."""
        if self._found is not None and self._found.code == "agent.disk" and not self._request.is_scratch_kept:
            for home in self._homes():
                with suppress(OSError):
                    await anyio.to_thread.run_sync(remove, home)

    async def _work(self) -> None:
        if (found := self._find_full_disk()) is not None:
            raise MachineError(found.code, found.detail)
        if has_hook(self._request.mission.hooks, "before"):
            await self._run_before_hook()
        await self._probe_untouched()
        self.move(Move.START)
        await self._run_turn()

    async def _run_before_hook(self) -> None:
        """Run the before-hook, with the clocks held. Raises MachineError if it fails or changes the workspace."""
        clock, supervision = self._request.clock, self._supervision
        supervision.watch.hold(clock.steady_s())
        try:
            ended = await self._hook("before")
        finally:
            supervision.watch.release(clock.steady_s())
        supervision.tap.record(ended)
        if ended.problem is not None:
            output = (ended.stderr_tail or ended.stdout_tail).strip()
            what = f"{shlex.join(ended.argv)}: {ended.problem}" + (output and f": {output}")
            raise MachineError("hook.failed", what)
        if (await anyio.to_thread.run_sync(snapshot, self._root)).digest != supervision.at_start.digest:
            what = f"{shlex.join(ended.argv)}: it changed the workspace, which only the agent may change"
            raise MachineError("hook.failed", what)

    async def _hook(self, phase: HookPhase) -> HookEnded:
        redactor = self._supervision.redactor
        return await run_hook(phase, self._request, workspace=str(self._root), redactor=redactor)

    async def _run_turn(self) -> None:
        """Open the session, and take the turn. Raises RefusedError THREAD_LOST if the thread to continue is gone."""
        try:
            await self._open_and_ask()
        except RefusedError as error:
            is_refused = self.state is State.SESSION_STARTING and error.code == "peer.refused"
            if self._request.continuation is None or not is_refused:
                raise
            # The next attempt starts fresh: this one has no record of a fresh start.
            raise RefusedError(THREAD_LOST, error.what) from error

    async def _open_and_ask(self) -> None:
        if self._request.refusal is not None:
            raise self._request.refusal
        if (turns := self._turns) is not None:
            self._supervision.tap.record(TurnWanted(text=self._prompt))
            await self._take(turns.take, turns.ask)
            return
        async with open_session(self._supervision) as session:
            self._thread_opened()
            await self._take(partial(take_turn, self._supervision), session.turn)

    async def _take(
        self, take: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]], ask: Callable[[str], Awaitable[None]]
    ) -> None:
        """Take the turn. From its end on, the attempt cannot be cancelled: closing the session takes a while."""

        async def start() -> None:
            await ask(self._prompt)
            self._request.turn_over()

        try:
            await take(start)
        finally:
            # An agent that the full disk has stopped may have ended before the next tick. Its home still exists.
            self._find_full_disk()

    def _thread_opened(self) -> None:
        # A context engine may open another thread in the same turn.
        if self.state is State.SESSION_STARTING:
            self.move(Move.READY)
            self.move(Move.ASK)

    def _record_stop(self, cause: Stop) -> None:
        """Record why the work is being stopped, before it is cancelled."""
        clock_name = cause.clock if isinstance(cause, ClockExpiry) else None
        self._stop_cause = self._stop_cause or clock_name or "other"
        match cause:
            case FailureFound():
                self._record_found(cause)
            case ProctorError() if self.state is State.PROBING:
                self._supervision.tap.record(FailureFound(code=cause.code, detail=str(cause)))
            case _:
                self._supervision.record_stop(
                    cause, cancelled=self._request.stop_cause, is_hangup_recorded=self.state is State.TURN_RUNNING
                )

    # ── after the agent ──

    async def _capture(self) -> Capture:
        """Capture the workspace after the agent has stopped."""
        return await off_loop(lambda: capture(self._root, self._supervision.base), is_small=is_empty(self._root))

    async def _judge_work(self, now: Snapshot) -> None:
        """Run the final probes, unless a stop was requested, and record what kept them from judging the work."""
        tap, is_in_time = self._supervision.tap, self._stop_cause is None
        if not self._request.stop.is_set():
            self.move(Move.PROBE)
            self._create_probes_folder()
            await self._watched(lambda: self._probe(Phase.FINAL, self._root, now))
        if is_in_time and self._stop_cause in _AGENT_CLOCKS:
            self._fail_cut_off_probe(now)
            what = f"the {self._stop_cause} reached its time limit before the probes had judged the work"
            tap.record(FailureFound(code=f"limit.{self._stop_cause}", detail=what))
        if (interruption := self._find_interruption()) is not None:
            tap.record(interruption)

    def _find_interruption(self) -> FailureFound | None:
        """Return what stopped the probes before all of them had run, if it says nothing about the agent.

        Whether some of them have passed or failed does not matter: which attempt counts must not depend on its outcome.
        """
        is_campaign_over = self._stop_cause == "campaign"
        if not self._request.stop.is_set() and not is_campaign_over:
            return None
        finished = sum(row.phase is Phase.FINAL for row in self._supervision.recording.probe_rows)
        if finished >= len(self._request.required_probes):
            return None
        what = "stopped before the probes had judged the work"
        if not self._request.stop.is_set():
            return FailureFound(code="limit.campaign", detail=f"{what}: the campaign reached its time limit")
        cause = self._request.stop_cause()
        return FailureFound(
            code="run.cancelled" if cause.by is None else OPERATOR_CANCEL, detail=f"{what}: {cause.why}"
        )

    def _find_spoiled(self, left: Capture) -> FailureFound | None:
        """Return the failure if the agent left a workspace that cannot be judged, or that no probe can copy."""
        if left.defect is not None:
            return FailureFound(code="agent.workspace", detail=left.defect)
        if self._disk is None or not self._request.mission.probes:
            return None
        return self._disk.find_failure(copy=_space_of(left.snapshot))

    def _record_found(self, found: FailureFound) -> None:
        """Record a failure that the supervisor found. Only the first one counts."""
        if not self._is_found_recorded:
            self._found, self._is_found_recorded = found, True
            self._supervision.tap.record(found)

    def _fail_probes(self, now: Snapshot) -> None:
        """Record every probe as failed, without running it, if the agent made judging impossible."""
        found = self._found
        if found is None or bucket_of(found.code) is not Bucket.AGENT:
            return
        summary = self._supervision.redactor.text(f"not run: {found.detail}").text
        rows = [self._failed_row(probe, now, summary) for probe in self._request.required_probes]
        self._supervision.recording.record_probes(rows)

    def _create_probes_folder(self) -> None:
        """Create the folder for copies, also if an agent without fences has removed or replaced it."""
        folder = self._request.judging
        try:
            if folder.is_symlink() or not folder.is_dir():
                folder.unlink(missing_ok=True)
                folder.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise disk_error(error, path=folder) from error

    async def _probe_untouched(self) -> None:
        """Run the probes on the untouched workspace. A continued attempt has another one, so they get a copy."""
        request, base = self._request, self._supervision.base
        if request.continuation is None or self._probes is None:
            await self._probe(Phase.BASELINE, self._root, base)
            return
        copy = request.judging / "untouched"
        await off_loop(lambda: prepare(request.workspace_source, into=copy), is_small=not base.entries)
        await self._probe(Phase.BASELINE, copy, base)

    async def _probe(self, phase: Phase, workspace: Path, subject: Snapshot) -> None:
        if self._probes is None:
            return
        async with aclosing(self._probes.run(phase, workspace, subject)) as rows:
            async for row in rows:
                self._supervision.recording.record_probes([row])

    def _make_runner(self) -> ProbeRunner | None:
        """Return what runs the mission's probes; None if it has none."""
        request, supervision = self._request, self._supervision
        if not request.mission.probes:
            return None
        return ProbeRunner(
            mission=request.mission,
            untouched=UntouchedTree(folder=request.workspace_source, tree=supervision.base),
            sources=request.sources,
            hidden_files=request.hidden_files,
            scratch=request.judging,
            hidden=request.hidden,
            containment=request.containment,
            intents=request.intents,
            redactor=supervision.redactor,
            clock=request.clock,
            agent_folders=self._reachable_folders(),
            keep=request.paths.folder,
        )

    def _fail_cut_off_probe(self, subject: Snapshot) -> None:
        """Record that the probe that was running did not end in time. It ended on the untouched workspace.

        Otherwise an agent could avoid a verdict by leaving work that takes too long to judge.
        """
        done = sum(row.phase is Phase.FINAL for row in self._supervision.recording.probe_rows)
        for probe in self._request.required_probes[done : done + 1]:
            row = self._failed_row(probe, subject, "did not end before the attempt reached its time limit")
            self._supervision.recording.record_probes([row])

    def _failed_row(self, probe: RequiredProbe, subject: Snapshot, summary: str) -> ProbeRow:
        return ProbeRow(
            phase=Phase.FINAL,
            index=probe.index,
            kind=probe.kind,
            probe_digest=probe.digest,
            role=probe.role,
            criterion=self._supervision.redactor.text(probe.criterion).text,
            workspace_digest=subject.digest,
            verdict=Verdict.FAIL,
            summary=summary,
        )

    async def _seal(self, now: Snapshot, changes: bytes | None) -> AttemptSummary:
        """Write the last files and the seal. `changes` is the diff if it was taken earlier."""
        request, supervision = self._request, self._supervision
        base, recording = supervision.base, supervision.recording
        size_bytes = recording.frames.size_bytes + recording.probes.size_bytes
        summary, sealed = await off_loop(
            lambda: finalize(supervision, now, changes=changes),
            is_small=not base.entries and now == base and size_bytes < SMALL_BYTES,
        )
        if request.make_durable is None:
            await anyio.to_thread.run_sync(lambda: write_seal(request.paths, sealed, is_durable=True))
        else:
            await request.make_durable()
            write_seal(request.paths, sealed, is_durable=False)
        return summary
