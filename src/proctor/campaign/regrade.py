"""Regrades sealed attempts without an agent: rebuilds the tree that it left, runs probes on it and decides again.

The old evidence stays as it is. The new decisions are a record in the campaign's folder `regrades`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from proctor.attempt.expectation import decide_tree
from proctor.attempt.probing import ProbeRunner
from proctor.campaign.frozen_missions import FrozenMissions, read_frozen_missions
from proctor.campaign.hiding import find_hidden_from_probes
from proctor.campaign.probe_machine import (
    ProbeMachine,
    Tree,
    make_redactor,
    open_probe_machine,
    run_probes,
)
from proctor.campaign.scratch import find_kept_workspaces
from proctor.campaign.stamp import stamp
from proctor.canonical import digest_bytes
from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.errors import EvidenceError, Exit, InputError, MachineError, disk_error, unwrap_single
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Part
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.disk import replace_file, sync_folder
from proctor.evidence.layout import (
    SEAL,
    WORKSPACE_DIFF,
    AttemptPaths,
    CampaignPaths,
    RegradePaths,
    RootPaths,
    write_artifact,
)
from proctor.evidence.mask import is_masked
from proctor.evidence.redact import Redactor
from proctor.evidence.regrade_record import GradeRecord, RegradedAttempt, RegradeRecord, RegradeStatus
from proctor.evidence.validate import Status, validate_attempt
from proctor.ids import AttemptId, CampaignId, Digest, MissionId
from proctor.probe.kind import HiddenFiles
from proctor.probe.model import Fault, Phase, ProbeRow, Verdict, require
from proctor.spec.load import LoadedSpec
from proctor.spec.model import MissionSpec
from proctor.workspace.clone import clone
from proctor.workspace.prepare import prepare
from proctor.workspace.rebuild import RebuildError, rebuild
from proctor.workspace.remove import remove
from proctor.workspace.snapshot import snapshot


class RegradeRow(Part, frozen=True, kw_only=True):
    """One row of regrade.probes.jsonl: one run of a probe during a regrade."""

    mission_id: MissionId
    """The mission whose probe it is."""
    attempt_id: AttemptId | None
    """The attempt whose tree was judged. Null for the untouched workspace, which all attempts of a mission share."""
    probe: ProbeRow
    """The row of the probe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegradeResult:
    """A regrade and where its record is."""

    record: RegradeRecord
    folder: Path
    is_unable: bool
    """Whether a probe could not run on this machine."""

    @property
    def exit(self) -> int:
        """The exit code: the worst that happened to an attempt."""
        found = {each.status for each in self.record.attempts}
        if RegradeStatus.INVALID in found:
            return Exit.EVIDENCE
        if self.is_unable:
            return Exit.INFRASTRUCTURE
        if RegradeStatus.IMPOSSIBLE in found or RegradeStatus.REGRADED not in found:
            return Exit.UNVERIFIED
        return Exit.OK


OnProgress = Callable[[int, int, str], None]
"""Called with the number of finished attempts, the number of all, and the id of the attempt."""


async def regrade(
    campaign: CampaignPaths,
    attempts: Sequence[AttemptPaths],
    *,
    root: RootPaths,
    new: LoadedSpec | None,
    on_progress: OnProgress,
    clock: Clock = SYSTEM_CLOCK,
) -> RegradeResult:
    """Run the campaign's probes, or those of the `new` spec, on the trees that the agents of `attempts` left.

    Writes one record into the campaign's folder. Raises EvidenceError if the campaign's frozen spec was changed,
    InputError if it cannot be restored, and MachineError if the disk refuses.
    """
    frozen = read_frozen_missions(campaign)
    specs = [(frozen.spec, frozen.secret_files)]
    hidden = [root.folder, *frozen.judging_paths]
    if new is not None:
        specs.append((new.spec, new.secret_files))
        hidden += find_hidden_from_probes(new, root=root.folder)
    redactor = make_redactor(*specs)
    try:
        async with open_probe_machine(clock=clock, hidden=hidden) as machine:
            regrader = _Regrader(frozen=frozen, new=new, machine=machine, redactor=redactor)
            records = await regrader.run(attempts, on_progress=on_progress)
    except BaseExceptionGroup as group:
        raise unwrap_single(group) from group
    id_ = stamp(clock)
    paths = campaign.regrade(id_)
    rows = b"".join(redactor.encoded(row) + b"\n" for row in regrader.rows)
    record = RegradeRecord(
        regrade_id=id_,
        campaign_id=CampaignId(campaign.folder.name),
        created_at_ms=clock.wall_ms(),
        spec=None if new is None else str(new.path),
        spec_digest=frozen.digest if new is None else new.digest,
        rows_digest=digest_bytes(rows),
        attempts=records,
    )
    _write(paths, record, rows, redactor=redactor)
    is_unable = any(
        row.probe.verdict is Verdict.UNAVAILABLE and row.probe.fault is Fault.MACHINE for row in regrader.rows
    )
    return RegradeResult(record=record, folder=paths.folder, is_unable=is_unable)


def _write(paths: RegradePaths, record: RegradeRecord, rows: bytes, *, redactor: Redactor) -> None:
    """Write both files under another name first, so that a regrade that exists is complete."""
    draft = RegradePaths(paths.folder.with_name(f".{paths.folder.name}"))
    draft.create()
    replace_file(draft.rows, rows)
    write_artifact(draft.record, record, redactor=redactor)
    try:
        draft.folder.rename(paths.folder)
        sync_folder(paths.folder.parent)
    except OSError as error:
        raise disk_error(error, path=paths.folder) from error


class _ImpossibleError(Exception):
    """An attempt cannot be regraded. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """What is read from the folder of a sealed attempt."""

    paths: AttemptPaths
    record: AttemptRecord
    report: AttemptReport
    diff: str
    seal_digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judges:
    """What judges the attempts of one mission, with its rows on the untouched workspace."""

    mission: MissionSpec
    hidden: HiddenFiles | None
    sources: Mapping[str, bytes]
    untouched: Tree
    runner: ProbeRunner
    before: Sequence[ProbeRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Regrader:
    frozen: FrozenMissions
    new: LoadedSpec | None
    machine: ProbeMachine
    redactor: Redactor
    rows: list[RegradeRow] = field(default_factory=list)

    async def run(self, attempts: Sequence[AttemptPaths], *, on_progress: OnProgress) -> tuple[RegradedAttempt, ...]:
        done: dict[str, RegradedAttempt] = {}
        by_mission: dict[MissionId, list[_Evidence]] = {}
        for paths in attempts:
            found = self._read(paths)
            if isinstance(found, RegradedAttempt):
                done[str(paths.folder)] = found
            else:
                by_mission.setdefault(found.record.mission_id, []).append(found)
        limiter = anyio.CapacityLimiter(max(1, len(os.sched_getaffinity(0))))

        async def regrade_mission(id_: MissionId, own: Sequence[_Evidence]) -> None:
            async with limiter:
                judges: _Judges | None = None
                for each in own:
                    try:
                        judges = judges or await self._prepare(id_, each)
                        result = await self._regrade(each, judges)
                    except _ImpossibleError as error:
                        result = _describe(each, RegradeStatus.IMPOSSIBLE, str(error))
                    done[str(each.paths.folder)] = result
                    on_progress(len(done), len(attempts), each.record.attempt_id)

        async with anyio.create_task_group() as tasks:
            for id_, own in by_mission.items():
                mission = self._mission(id_)
                if mission is not None and not mission.probes:
                    for each in own:
                        done[str(each.paths.folder)] = _describe(
                            each, RegradeStatus.NO_PROBE, "the mission has no probe"
                        )
                else:
                    tasks.start_soon(regrade_mission, id_, own)
        return tuple(done[str(paths.folder)] for paths in attempts)

    def _mission(self, id_: MissionId) -> MissionSpec | None:
        missions = self.frozen.missions if self.new is None else {each.id: each for each in self.new.missions}
        return missions.get(id_)

    def _read(self, paths: AttemptPaths) -> _Evidence | RegradedAttempt:
        """Read an attempt whose files are as they were sealed; otherwise return why it cannot be used."""
        id_ = AttemptId(paths.folder.name)
        with AttemptFiles(paths) as files:
            if not files.is_sealed:
                what = "the attempt has no seal: it was cut off, or is running"
                status = RegradeStatus.IMPOSSIBLE
                return RegradedAttempt(attempt_id=id_, run_id=None, mission_id=None, status=status, why=what)
            checked = validate_attempt(files, is_strict=False)
            try:
                if checked.status is not Status.VALID:
                    found = checked.findings[0]
                    raise EvidenceError(found.code, found.detail, file=found.file)
                if files.record.plan_file_digest != self.frozen.plan_file_digest:
                    raise EvidenceError("evidence.plan", "not the plan that the attempt was run with", file="plan.json")
                return _Evidence(
                    paths=paths,
                    record=files.record,
                    report=files.report,
                    diff=files.read_bytes(WORKSPACE_DIFF).decode("utf-8", "replace"),
                    seal_digest=digest_bytes(files.read_bytes(SEAL)),
                )
            except EvidenceError as error:
                status = RegradeStatus.INVALID
                return RegradedAttempt(attempt_id=id_, run_id=None, mission_id=None, status=status, why=str(error))

    async def _prepare(self, id_: MissionId, evidence: _Evidence) -> _Judges:
        """Restore what judges a mission, and run its probes on the untouched workspace."""
        mission = self._mission(id_)
        if mission is None:
            raise _ImpossibleError(f"the spec has no mission `{id_}`")
        sources = self.frozen.sources if self.new is None else self.new.sources
        for probe in mission.probes:
            for path in probe.files.values():
                if path not in sources:
                    what = f"`{path}`, which a probe needs, is not text or was redacted, and the original has changed"
                    raise _ImpossibleError(what)
        hidden = await anyio.to_thread.run_sync(self._restore_hidden, mission)
        untouched = await anyio.to_thread.run_sync(self._restore_base, id_, evidence.record.workspace_digest)
        runner = self.machine.make_runner(
            mission, untouched=untouched, sources=sources, hidden_files=hidden, redactor=self.redactor
        )
        before = await run_probes(runner, Phase.BASELINE, untouched)
        self.rows.extend(RegradeRow(mission_id=id_, attempt_id=None, probe=row) for row in before)
        return _Judges(
            mission=mission, hidden=hidden, sources=sources, untouched=untouched, runner=runner, before=before
        )

    async def _regrade(self, evidence: _Evidence, judges: _Judges) -> RegradedAttempt:
        record, mission = evidence.record, judges.mission
        if record.workspace_digest != judges.untouched.snapshot.digest:
            raise _ImpossibleError("the attempt began with another workspace than others of its mission")
        kept = await anyio.to_thread.run_sync(_find_kept, evidence)
        tree = kept if kept is not None else await self._rebuild_off_loop(evidence, judges.untouched)
        rows = await run_probes(judges.runner, Phase.FINAL, tree)
        if kept is None:
            with suppress(OSError):  # it is removed with the scratch folder otherwise
                await anyio.to_thread.run_sync(remove, tree.folder)
        self.rows.extend(RegradeRow(mission_id=mission.id, attempt_id=record.attempt_id, probe=row) for row in rows)
        hidden = None if judges.hidden is None else judges.hidden.digest
        required = require(mission.probes, files=judges.sources, hidden=hidden)
        decision = decide_tree(
            required,
            (*judges.before, *rows),
            workspace_digest=tree.snapshot.digest,
            base_digest=record.workspace_digest,
            waivers=mission.waive,
        )
        after = GradeRecord(
            verified=decision.verified.as_bool,
            judged=decision.judged,
            reasons=decision.reasons,
            reason_codes=decision.reason_codes,
            criteria=decision.criteria,
        )
        return msgspec.structs.replace(
            _describe(evidence, RegradeStatus.REGRADED, None),
            base_digest=record.workspace_digest,
            workspace_digest=tree.snapshot.digest,
            tree="rebuilt" if kept is None else "kept",
            required_probes=required,
            after=after,
        )

    # ── trees ──

    async def _rebuild_off_loop(self, evidence: _Evidence, untouched: Tree) -> Tree:
        return await anyio.to_thread.run_sync(self._rebuild, evidence, untouched)

    def _rebuild(self, evidence: _Evidence, untouched: Tree) -> Tree:
        """Return the tree that the agent left. Raises _ImpossibleError if it cannot be restored exactly."""
        due = evidence.report.workspace_digest_after
        if due is None:
            raise _ImpossibleError("the attempt did not record the digest of its final workspace")
        place = self.machine.new_place("tree")
        prepare(untouched.folder, into=place)
        redacted = "workspace.diff is redacted" if is_masked(evidence.diff) else None
        try:
            rebuild(evidence.diff, tree=place, layer=self.machine.new_folder("layer"))
        except RebuildError as error:
            raise _ImpossibleError(redacted or str(error)) from error
        except MachineError as error:
            # A folder without write permission, which the agent changed; a full disk ends the command.
            if error.code != "machine.unwritable":
                raise
            raise _ImpossibleError(f"the tree cannot be written: {error.what}") from error
        tree = Tree(folder=place, snapshot=snapshot(place))
        if tree.snapshot.digest != due:
            raise _ImpossibleError(redacted or "the rebuilt tree has another digest than the attempt recorded")
        return tree

    def _restore_base(self, id_: MissionId, due: Digest) -> Tree:
        """Return the untouched workspace. Raises _ImpossibleError if no spec names one with this digest."""
        frozen, why = self.frozen.missions.get(id_), ""
        candidates = [] if frozen is None else [(frozen, self.frozen.folder)]
        if self.new is not None and (mission := self._mission(id_)) is not None:
            candidates.append((mission, self.new.folder))
        for mission, folder in candidates:
            place, workspace = self.machine.new_place("base"), mission.workspace
            try:
                if workspace.key is None:
                    prepare(None, into=place)
                elif folder is None:
                    why = why or "the untouched workspace is missing: the campaign did not record the spec's folder"
                    continue
                elif workspace.git is not None:
                    clone(folder / workspace.git, workspace.ref or "", into=place, forbidden=())
                else:
                    prepare(folder / (workspace.copy or ""), into=place, exclude=workspace.exclude)
            except InputError as error:
                why = why or f"the untouched workspace is missing: {error.what}"
                continue
            tree = Tree(folder=place, snapshot=snapshot(place))
            if tree.snapshot.digest == due:
                return tree
            why = why or "the untouched workspace has changed since the campaign began"
        raise _ImpossibleError(why)

    def _restore_hidden(self, mission: MissionSpec) -> HiddenFiles | None:
        """Return the mission's hidden files. Raises _ImpossibleError if they are not those of the campaign."""
        if mission.overlay is None:
            return None
        folder = self.frozen.folder if self.new is None else self.new.folder
        if folder is None:
            raise _ImpossibleError("the hidden files are missing: the campaign did not record the spec's folder")
        place = self.machine.new_place("hidden")
        try:
            prepare(folder / mission.overlay, into=place)
        except InputError as error:
            raise _ImpossibleError(f"the hidden files are missing: {error.what}") from error
        digest = snapshot(place).digest
        if self.new is None and digest != self.frozen.overlays.get(mission.overlay):
            raise _ImpossibleError("the hidden files have changed since the campaign began")
        return HiddenFiles(folder=place, digest=digest)


def _find_kept(evidence: _Evidence) -> Tree | None:
    """Return the tree that `keep` or `--keep-scratch` kept, if it is still what the agent left."""
    for place in find_kept_workspaces(evidence.record.run_id, evidence.record.attempt_id):
        tree = Tree(folder=place, snapshot=snapshot(place))
        if tree.snapshot.digest == evidence.report.workspace_digest_after:
            return tree
    return None


def _describe(evidence: _Evidence, status: RegradeStatus, why: str | None) -> RegradedAttempt:
    report = evidence.report
    return RegradedAttempt(
        attempt_id=evidence.record.attempt_id,
        run_id=evidence.record.run_id,
        mission_id=evidence.record.mission_id,
        status=status,
        why=why,
        seal_digest=evidence.seal_digest,
        before=GradeRecord(
            verified=report.verified,
            judged=report.judged,
            reasons=report.reasons,
            reason_codes=report.reason_codes,
            criteria=report.criteria,
        ),
    )
