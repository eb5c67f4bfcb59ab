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
from proctor.canonical import digest
from proctor.contain.intent import open_intents
from proctor.contain.ladder import Containment
from proctor.errors import CODES, CollectedMachineError, InputError, MachineError, disk_error
from proctor.evidence.redact import Redactor
from proctor.ids import Digest, MissionId
from proctor.probe.model import Phase, ProbeRow, Verdict
from proctor.probe.run import run_probe
from proctor.probe.view import examine_subject
from proctor.spec.argv import argv_of
from proctor.spec.collect_errors import raise_collected
from proctor.spec.fence import Contain
from proctor.spec.load import LoadedSpec
from proctor.spec.model import MissionSpec
from proctor.spec.probes import ProbeSpec
from proctor.workspace.snapshot import EMPTY

CHECK_S: Final = 600.0
"""The longest time that checking all probes may take, in seconds."""

_Key = tuple[Digest, Digest]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeChecks:
    """What the probes did on the untouched workspaces."""

    passing: tuple[InputError, ...] = ()
    """Probes that pass there, each with its location in the spec."""
    unable: tuple[MachineError, ...] = ()
    """Probes that cannot run, each with its location in the spec."""
    unchecked: int = 0
    """Probes that were not run, because the time was over or the run was asked to stop."""

    def refuse(self) -> None:
        """Raise if a probe cannot judge: the errors of the spec first, otherwise those of the machine."""
        if self.passing:
            raise_collected(self.passing)
        if len(self.unable) == 1:
            raise self.unable[0]
        if self.unable:
            raise CollectedMachineError(self.unable)

    def warnings(self) -> Iterator[str]:
        """Yield what the user should know if the run goes on."""
        for error in (*self.passing, *self.unable):
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
        wanted = {self._key(mission, spec): (mission, spec) for mission in selected for spec in mission.probes}
        if wanted:
            await self._run_all(wanted)
        placed = [
            (mission, index, spec, self.rows.get(self._key(mission, spec)))
            for mission in selected
            for index, spec in enumerate(mission.probes)
        ]
        known = [(mission, index, spec, row) for mission, index, spec, row in placed if row is not None]
        return ProbeChecks(
            passing=tuple(
                self._passes(mission, index, spec)
                for mission, index, spec, row in known
                if row.verdict is Verdict.PASS and not row.mutated and not self._has_before_hook(mission)
            ),
            unable=tuple(
                self._is_unable(mission, index, spec, row)
                for mission, index, spec, row in known
                if row.verdict is Verdict.UNAVAILABLE and not self._has_before_hook(mission)
            ),
            unchecked=len(placed) - len(known),
        )

    def _key(self, mission: MissionSpec, spec: ProbeSpec) -> _Key:
        key = mission.workspace.key
        return digest(spec), EMPTY.digest if key is None else self.frozen.workspace_digests[key]

    def _has_before_hook(self, mission: MissionSpec) -> bool:
        # A hook may provide what the probe needs, or undo what makes it pass, so only an attempt can tell.
        return has_hook(mission.hooks or self.loaded.spec.hooks, "before")

    async def _run_all(self, wanted: Mapping[_Key, tuple[MissionSpec, ProbeSpec]]) -> None:
        folder = self.scratch / "preflight"
        try:
            for each in (folder, folder / "empty", folder / "probes"):
                each.mkdir(mode=0o700)
        except OSError as error:
            raise disk_error(error, path=folder) from error
        limiter, done = anyio.CapacityLimiter(self.parallel), 0
        self.watcher.probes_checked(0, of=len(wanted))
        async with open_intents(places.spawns_dir()) as intents:

            async def run_one(key: _Key, source: str | None, spec: ProbeSpec) -> None:
                nonlocal done
                # An attempt could not run it for longer than its own limit either.
                async with limiter:
                    with anyio.move_on_after(self.frozen.plan.limits.attempt_ms / 1000):
                        place = folder / "empty" if source is None else self.frozen.workspaces[source]
                        subject = await anyio.to_thread.run_sync(examine_subject, place, key[1])
                        self.rows[key] = await run_probe(
                            spec,
                            index=0,
                            phase=Phase.BASELINE,
                            subject=subject,
                            scratch=folder / "probes",
                            hidden=self.hidden,
                            containment=self.containment,
                            intents=intents,
                            redactor=self.redactor,
                        )
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
                    for key, (mission, spec) in wanted.items():
                        tasks.start_soon(run_one, key, mission.workspace.key, spec)

    def _passes(self, mission: MissionSpec, index: int, spec: ProbeSpec) -> InputError:
        what = f"mission `{mission.id}`: the probe passes on the untouched workspace: {self._command(spec)}"
        return self._locate("probe.passes-untouched", what, mission, index)

    def _is_unable(self, mission: MissionSpec, index: int, spec: ProbeSpec, row: ProbeRow) -> MachineError:
        what = f"mission `{mission.id}`: the probe cannot run: {row.summary}: {self._command(spec)}"
        at = self._locate("probe.cannot-run", what, mission, index)
        is_unfenced = spec.contain is not Contain.NONE and self.containment.rung != 1
        suggestion = CODES["machine.no-fences"].todo if is_unfenced else None
        return MachineError(at.code, at.what, file=at.file, line=at.line, key=at.key, suggestion=suggestion)

    def _locate(self, code: str, what: str, mission: MissionSpec, index: int) -> InputError:
        error = self.loaded.mission_sources[mission.id].error(code, what, key=f"probes[{index}]")
        return self.loaded.without_line_if_built(error)

    def _command(self, spec: ProbeSpec) -> str:
        return self.redactor.text(shlex.join(argv_of(spec.command))).text
