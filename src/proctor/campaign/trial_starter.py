"""Decides how each attempt of a campaign with `continue_after_wait` starts, and keeps what the next one may need."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio.to_thread

from proctor.attempt.model import AttemptResult, Continuation, Lease
from proctor.campaign.agents import Agents, KeptFolders
from proctor.campaign.hosts import HostPool
from proctor.campaign.kept_trials import KeptTrial, KeptTrials
from proctor.errors import EvidenceError, MachineError, ProctorError
from proctor.event.transcript import Line
from proctor.evidence import layout
from proctor.evidence.artifacts import ContinuedFrom
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import RootPaths
from proctor.evidence.seal import check_seal
from proctor.ids import AttemptId, CampaignId, RunId
from proctor.plan.continuation import WAITS, FreshStart, KeptState, SealedEnd, why_fresh
from proctor.plan.model import ResolvedFlow, Trial
from proctor.plan.recover import THREAD_LOST, remedy
from proctor.runtime.resolve import Candidate
from proctor.spec.choices import Isolation
from proctor.workspace.snapshot import Snapshot, snapshot

_PROGRESS = ("message", "tool")
"""The rows of a transcript that show that a turn has produced something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierAttempt:
    """The last attempt of a trial so far."""

    run_id: RunId
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStart:
    """How an attempt starts."""

    kept: KeptTrial | None = None
    """Where its home and workspace are kept. None if they are not."""
    folders: KeptFolders | None = None
    """The folders for its own agent process. None for a shared process, and if nothing is kept."""
    continuation: Continuation | None = None
    fresh_start: FreshStart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarter:
    """Decides from the sealed evidence of the attempt before, and from what is on disk: a resumed campaign decides the
    same."""

    root: RootPaths
    campaign_id: CampaignId
    trials: KeptTrials
    agents: Agents
    pool: HostPool

    async def start(
        self, trial: Trial, flow: ResolvedFlow, candidate: Candidate, *, before: EarlierAttempt | None
    ) -> TrialStart:
        """Decide how the trial's next attempt starts. If it starts fresh, nothing of the one before it is left."""
        is_shared = flow.isolation is Isolation.SHARED
        kept = self._place(trial, is_shared=is_shared)
        process = None if before is None or not is_shared else await self._find_process(flow, candidate)
        return await anyio.to_thread.run_sync(
            partial(self._start, kept, trial, flow, candidate, before=before, process=process)
        )

    async def ended(self, start: TrialStart, result: AttemptResult) -> None:
        """Remove what was kept for an attempt, unless the next one may continue it."""
        if start.kept is not None and not _is_waiting(result):
            with suppress(OSError):
                await anyio.to_thread.run_sync(start.kept.remove)

    def _place(self, trial: Trial, *, is_shared: bool) -> KeptTrial:
        if is_shared:
            # A shared process sees only the workspaces of its run, and its threads end with it.
            return KeptTrial(
                agent=self.agents.workspaces / trial.id, sessions=self.agents.sessions / trial.id, has_home=False
            )
        return self.trials.trial(trial.id)

    async def _find_process(self, flow: ResolvedFlow, candidate: Candidate) -> Lease | None:
        try:
            async with self.agents.lease(flow, candidate, self.pool) as lease:
                return lease
        except ProctorError:
            return None  # the attempt itself reports why

    def _start(
        self,
        kept: KeptTrial,
        trial: Trial,
        flow: ResolvedFlow,
        candidate: Candidate,
        *,
        before: EarlierAttempt | None,
        process: Lease | None,
    ) -> TrialStart:
        fresh, continuation = None, None
        if before is not None:
            end, taken = self._read_end(trial, before)
            tree = _tree_in(kept.workspace)
            home = kept.home(candidate.runtime_id) if kept.has_home else None if process is None else process.home
            now = KeptState(
                runtime_id=candidate.runtime_id,
                can_resume=candidate.runtime.capabilities.thread_resume,
                is_shared=not kept.has_home,
                process=None if process is None else process.process,
                has_home=home is not None and home.is_dir(),
                has_session=flow.context is None or kept.session is not None,
                has_thread=None
                if end is None or end.thread is None or home is None
                else self.agents.has_thread(flow, candidate, end.thread, home=home),
                workspace_digest=None if tree is None else tree.digest,
            )
            fresh = why_fresh(end, now)
            if fresh is None and taken is not None and tree is not None:
                continuation = Continuation(attempt=AttemptId(f"{trial.id}.{before.n}"), taken=taken, tree=tree)
        if continuation is None and not self._renew(kept, candidate):
            return TrialStart(fresh_start=fresh)
        return TrialStart(
            kept=kept, folders=kept.folders(candidate.runtime_id), continuation=continuation, fresh_start=fresh
        )

    def _renew(self, kept: KeptTrial, candidate: Candidate) -> bool:
        """Replace what is kept by empty folders. Return whether the attempt can be continued later."""
        try:
            if candidate.runtime.capabilities.thread_resume:
                kept.create(candidate.runtime_id)
                return True
            kept.remove()
        except OSError:
            pass  # the attempt runs as without the setting, and the next one finds nothing to continue
        return False

    def _read_end(
        self, trial: Trial, before: EarlierAttempt
    ) -> tuple[SealedEnd, ContinuedFrom | None] | tuple[None, None]:
        """Return how an attempt ended, by its sealed files, and what another attempt takes over from it.

        None if it has no intact seal, or nothing to take over.
        """
        paths = self.root.run(before.run_id).attempt(trial.id, n=before.n)
        with AttemptFiles(paths) as files:
            if check_seal(files) or not files.is_sealed:
                return None, None
            try:
                record, report, ref = files.record, files.report, files.runner_ref
                lines = files.rows(layout.TRANSCRIPT, Line)
                has_progress = record.continues is not None or any(line.kind in _PROGRESS for line in lines)
            except EvidenceError:
                return None, None
            if (record.attempt_id, record.campaign_id) != (f"{trial.id}.{before.n}", self.campaign_id):
                return None, None  # a copy of another attempt, which is no evidence for this one
            thread, left = ref.thread_id, report.workspace_digest_after
            end = SealedEnd(
                remedy=remedy(report.outcome, report.code, has_begun=report.metrics.turns > 0),
                has_lost_thread=report.code == THREAD_LOST,
                has_progress=has_progress,
                runtime_id=record.runtime_id,
                process=ref.process_id,
                thread=thread,
                workspace_digest=left,
            )
            if thread is None or left is None:
                return end, None
            used, earlier = report.metrics.total_tokens, record.continued_from
            taken = ContinuedFrom(
                run_id=before.run_id,
                thread_id=thread,
                workspace_digest=left,
                tokens=(used or 0) + (0 if earlier is None else earlier.tokens),
                tokens_unknown=(used is None) + (0 if earlier is None else earlier.tokens_unknown),
            )
            return end, taken


def _is_waiting(result: AttemptResult) -> bool:
    summary = result.summary
    return summary is not None and remedy(summary.outcome, summary.code, has_begun=summary.has_begun) in WAITS


def _tree_in(workspace: Path) -> Snapshot | None:
    """Return the snapshot of a workspace; None if it does not exist, or if its digest does not cover all of it."""
    if workspace.is_symlink() or not workspace.is_dir():
        return None
    try:
        tree = snapshot(workspace)
    except MachineError:
        return None
    return None if any(entry.unread is not None for entry in tree.entries) else tree
