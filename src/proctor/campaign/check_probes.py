"""Preflight of the probes: run each once on the untouched workspace, before the first token is spent.

A probe that passes there verifies nothing, and one that cannot run judges nothing. The rows are not evidence: every
attempt runs its own baseline, which decides whether its trial is scored.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from proctor import places
from proctor.attempt.hooks import has_hook
from proctor.campaign.freeze import FrozenSpec
from proctor.campaign.watch import CampaignWatcher
from proctor.contain.intent import open_intents
from proctor.contain.ladder import Containment
from proctor.errors import CODES, CollectedMachineError, InputError, MachineError, disk_error
from proctor.evidence.redact import Redactor
from proctor.ids import Digest, MissionId
from proctor.probe.kind import ProbeReference
from proctor.probe.model import Fault, Phase, ProbeRow, Verdict, identify_probe
from proctor.probe.run import run_probe
from proctor.probe.view import examine_subject
from proctor.spec.collect_errors import raise_collected
from proctor.spec.criterion import Role
from proctor.spec.fence import Contain
from proctor.spec.load import LoadedSpec
from proctor.spec.model import MissionSpec
from proctor.spec.probes import ProbeSpec
from proctor.workspace.snapshot import EMPTY

CHECK_S: Final = 600.0
"""The longest time that checking all probes may take, in seconds."""

_Key = tuple[Digest, Digest, Phase]
"""Digests of the probe and of the untouched workspace, and whether the probe's mutant is laid over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """One run of one probe, on the untouched workspace or on its mutant."""

    mission: MissionSpec
    index: int
    spec: ProbeSpec
    phase: Phase


def _is_bad_patch(row: ProbeRow) -> bool:
    """Return whether a mutant is the reason why a probe cannot run: it saw no view of the workspace."""
    return row.phase is Phase.MUTANT and row.view is None and row.fault is Fault.WORKSPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeChecks:
    """What the probes did on the untouched workspaces."""

    unfit: tuple[InputError, ...] = ()
    """Goals that pass there, and guards that fail there or do not fail on their mutant, each with its location in the
    spec."""
    unable: tuple[MachineError, ...] = ()
    """Probes that cannot run, each with its location in the spec."""
    unchecked: int = 0
    """Probes that were not run, because the time was over or the run was asked to stop."""

    def refuse(self) -> None:
        """Raise if a probe cannot judge: the errors of the spec first, otherwise those of the machine."""
        if self.unfit:
            raise_collected(self.unfit)
        if len(self.unable) == 1:
            raise self.unable[0]
        if self.unable:
            raise CollectedMachineError(self.unable)

    def warnings(self) -> Iterator[str]:
        """Yield what the user should know if the run goes on."""
        for error in (*self.unfit, *self.unable):
            yield f"{error}; its trials end unscored"
        if self.unchecked:
            number = f"{self.unchecked:,} probe{'' if self.unchecked == 1 else 's'}"
            yield f"{number} not checked before the run; each attempt still runs every probe on its untouched workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeChecker:
    """Runs the probes of missions on their untouched workspaces. Equal probes on equal workspaces are run once."""

    loaded: LoadedSpec
    frozen: FrozenSpec
    scratch: Path
    """An existing folder of the run."""
    hidden: tuple[Path, ...]
    """Paths that fenced probes must not see."""
    containment: Containment
    redactor: Redactor
    parallel: int
    watcher: CampaignWatcher
    stop: anyio.Event
    """Ends the check early."""
    rows: dict[_Key, ProbeRow] = field(default_factory=dict)

    async def check(self, missions: Iterable[MissionId]) -> ProbeChecks:
        """Run each probe of the missions once. Takes at most CHECK_S seconds. Raises MachineError if the disk fails."""
        by_id = {mission.id: mission for mission in self.loaded.missions}
        selected = [by_id[id_] for id_ in dict.fromkeys(missions) if by_id[id_].probes]
        places = [
            _Check(mission=mission, index=index, spec=spec, phase=phase)
            for mission in selected
            for index, spec in enumerate(mission.probes)
            for phase in (Phase.BASELINE, Phase.MUTANT)
            if phase is Phase.BASELINE or spec.mutant is not None
        ]
        wanted = {self._key(each): each for each in places}
        if wanted:
            await self._run_all(wanted)
        found = [(each, self.rows.get(self._key(each))) for each in places]
        known = [(each, row) for each, row in found if row is not None and not self._has_before_hook(each.mission)]
        return ProbeChecks(
            unfit=tuple(error for each, row in known if (error := self._find_unfit(each, row)) is not None),
            unable=tuple(
                self._is_unable(each, row)
                for each, row in known
                if row.verdict is Verdict.UNAVAILABLE and not _is_bad_patch(row)
            ),
            unchecked=sum(row is None for _, row in found),
        )

    def _key(self, check: _Check) -> _Key:
        key = check.mission.workspace.key
        base = EMPTY.digest if key is None else self.frozen.workspace_digests[key]
        hidden = self.frozen.overlay_of(check.mission)
        probe = identify_probe(check.spec, files=self.loaded.sources, hidden=None if hidden is None else hidden.digest)
        return probe, base, check.phase

    def _has_before_hook(self, mission: MissionSpec) -> bool:
        # A hook may provide what the probe needs, or undo what makes it pass, so only an attempt can tell.
        return has_hook(mission.hooks or self.loaded.spec.hooks, "before")

    async def _run_all(self, wanted: Mapping[_Key, _Check]) -> None:
        folder = self.scratch / "preflight"
        try:
            for each in (folder, folder / "empty", folder / "probes"):
                each.mkdir(mode=0o700)
        except OSError as error:
            raise disk_error(error, path=folder) from error
        limiter, done = anyio.CapacityLimiter(self.parallel), 0
        ended = {key: anyio.Event() for key in wanted}
        self.watcher.probes_checked(0, of=len(wanted))
        async with open_intents(places.spawns_dir()) as intents:

            async def run_one(key: _Key, check: _Check, *, baseline: ProbeRow | None) -> None:
                # An attempt could not run it for longer than its own limit either.
                with anyio.move_on_after(self.frozen.plan.limits.attempt_ms / 1000):
                    spec, source = check.spec, check.mission.workspace.key
                    place = folder / "empty" if source is None else self.frozen.workspaces[source]
                    subject = await anyio.to_thread.run_sync(examine_subject, place, key[1])
                    self.rows[key] = await run_probe(
                        spec,
                        index=0,
                        phase=check.phase,
                        subject=subject,
                        patch=self.loaded.sources[spec.mutant or ""] if check.phase is Phase.MUTANT else None,
                        scratch=folder / "probes",
                        hidden=self.hidden,
                        containment=self.containment,
                        intents=intents,
                        redactor=self.redactor,
                        reference=ProbeReference(
                            sources=self.loaded.sources,
                            hidden=self.frozen.overlay_of(check.mission),
                            baseline=baseline,
                        ),
                    )

            async def run_in_turn(key: _Key, check: _Check) -> None:
                nonlocal done
                baseline = None
                if check.phase is Phase.MUTANT:
                    before = (*key[:2], Phase.BASELINE)
                    await ended[before].wait()
                    baseline = self.rows.get(before)
                # A mutant is judged by comparison with the workspace without it.
                if check.phase is Phase.BASELINE or baseline is not None:
                    async with limiter:
                        await run_one(key, check, baseline=baseline)
                ended[key].set()
                done += 1
                self.watcher.probes_checked(done, of=len(wanted))
                if done == len(wanted):
                    tasks.cancel_scope.cancel()  # ends the wait for a stop

            async def wait_for_stop() -> None:
                await self.stop.wait()
                tasks.cancel_scope.cancel()

            with anyio.move_on_after(CHECK_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(wait_for_stop)
                    for key, check in wanted.items():
                        tasks.start_soon(run_in_turn, key, check)

    def _find_unfit(self, check: _Check, row: ProbeRow) -> InputError | None:
        """Return the error if a probe can judge no work, as its row shows; None if it may."""
        is_goal = check.spec.role is Role.GOAL
        match check.phase, row.verdict:
            case _ if row.mutated:
                return None
            case Phase.BASELINE, Verdict.PASS if is_goal:
                code, what = "probe.passes-untouched", "the probe passes on the untouched workspace"
            case Phase.BASELINE, Verdict.FAIL if not is_goal:
                code, what = "probe.fails-untouched", f"the guard fails on the untouched workspace: {row.summary}"
            case Phase.MUTANT, Verdict.PASS:
                code, what = "probe.passes-mutant", f"the guard passes on its mutant `{check.spec.mutant}`"
            case _ if _is_bad_patch(row):
                what = f"mission `{check.mission.id}`: `{check.spec.mutant}` does not apply: {row.summary}"
                return self._locate("workspace.patch", what, check, key=".mutant")
            case _:
                return None
        return self._locate(code, f"mission `{check.mission.id}`: {what}: {self._command(check.spec)}", check)

    def _is_unable(self, check: _Check, row: ProbeRow) -> MachineError:
        what = f"mission `{check.mission.id}`: the probe cannot run: {row.summary}: {self._command(check.spec)}"
        at = self._locate("probe.cannot-run", what, check)
        is_unfenced = check.spec.contain is not Contain.NONE and self.containment.rung != 1
        suggestion = CODES["machine.no-fences"].todo if is_unfenced else None
        return MachineError(at.code, at.what, file=at.file, line=at.line, key=at.key, suggestion=suggestion)

    def _locate(self, code: str, what: str, check: _Check, *, key: str = "") -> InputError:
        source = self.loaded.mission_sources[check.mission.id]
        return self.loaded.without_line_if_built(source.error(code, what, key=f"probes[{check.index}]{key}"))

    def _command(self, spec: ProbeSpec) -> str:
        return self.redactor.text(shlex.join(spec.argv)).text
