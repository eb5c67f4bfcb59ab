"""Runs the probes of missions without an agent: containment, scratch and runners for `probe check` and `regrade`."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import anyio.to_thread

from proctor import places
from proctor.attempt.probing import ProbeRunner
from proctor.campaign.scratch import open_scratch, scratch_of_runs, sweep
from proctor.campaign.stamp import stamp
from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import IntentLog, open_intents
from proctor.contain.ladder import Containment, choose, survey
from proctor.contain.reap import reap_leftovers
from proctor.errors import disk_error
from proctor.evidence.redact import Redactor
from proctor.evidence.secrets import find_secrets
from proctor.ids import RunId
from proctor.probe.kind import HiddenFiles, UntouchedTree
from proctor.probe.model import Phase, ProbeRow
from proctor.spec.campaign_options import MissionsFolder
from proctor.spec.model import CampaignSpec, MissionSpec
from proctor.workspace.snapshot import Snapshot, snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A folder to be judged, with its snapshot, which is taken once."""

    folder: Path
    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeMachine:
    """What probes need on this machine. Everything below `scratch` is removed when it is closed."""

    scratch: Path
    containment: Containment
    intents: IntentLog
    clock: Clock = SYSTEM_CLOCK
    hidden: Sequence[Path] = ()
    """Paths that fenced probes must not see."""
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    def new_place(self, name: str) -> Path:
        """Return a path below the scratch folder that does not exist yet."""
        return self.scratch / f"{next(self.numbers)}-{name}"

    def new_folder(self, name: str) -> Path:
        """Create an empty folder below the scratch folder. Raises MachineError if the disk refuses."""
        place = self.new_place(name)
        try:
            place.mkdir(mode=0o700)
        except OSError as error:
            raise disk_error(error, path=place) from error
        return place

    def make_runner(
        self,
        mission: MissionSpec,
        *,
        untouched: Tree,
        sources: Mapping[str, bytes],
        hidden_files: HiddenFiles | None,
        redactor: Redactor,
    ) -> ProbeRunner:
        """Return what runs the mission's probes, as attempts run them."""
        return ProbeRunner(
            mission=mission,
            untouched=UntouchedTree(folder=untouched.folder, tree=untouched.snapshot),
            sources=sources,
            hidden_files=hidden_files,
            scratch=self.new_folder("views"),
            hidden=self.hidden,
            containment=self.containment,
            intents=self.intents,
            redactor=redactor,
            clock=self.clock,
            # There is no agent that could change a program meanwhile.
            agent_folders=(),
        )


@asynccontextmanager
async def open_probe_machine(
    *, clock: Clock = SYSTEM_CLOCK, hidden: Sequence[Path] = ()
) -> AsyncIterator[ProbeMachine]:
    """Choose a containment, end processes that a dead Proctor left, and create the scratch folder."""

    def find_containment() -> Containment:
        reap_leftovers(places.spawns_dir())
        with suppress(OSError):
            sweep(scratch_of_runs())
        return choose(survey(bundled_bwrap=bundled_bwrap()))

    containment = await anyio.to_thread.run_sync(find_containment)
    with open_scratch(RunId(stamp(clock)), is_kept=False) as scratch:
        async with open_intents(places.spawns_dir()) as intents:
            yield ProbeMachine(scratch=scratch, containment=containment, intents=intents, clock=clock, hidden=hidden)


async def run_probes(runner: ProbeRunner, phase: Phase, tree: Tree) -> list[ProbeRow]:
    """Run every probe of a mission once on a tree, and return the rows."""
    async with aclosing(runner.run(phase, tree.folder, tree.snapshot)) as rows:
        return [row async for row in rows]


async def take_tree(folder: Path) -> Tree:
    """Return the tree in a folder with its snapshot."""
    return Tree(folder=folder, snapshot=await anyio.to_thread.run_sync(snapshot, folder))


def make_redactor(*specs: tuple[CampaignSpec, Sequence[Path]]) -> Redactor:
    """Return what masks the secrets of specs, each with its secret files. No agent runs, so none must exist."""
    words, declared, files = set[str](), list[str](), list[Path]()
    for spec, secret_files in specs:
        missions = [] if isinstance(spec.missions, MissionsFolder) else spec.missions
        words |= {spec.campaign, *(mission.id for mission in missions), *(flow.id for flow in spec.flows)}
        declared += [each for each in spec.secrets if isinstance(each, str) and os.environ.get(each, "").strip()]
        files += secret_files
    return Redactor(find_secrets(os.environ, declared=declared, files=files, words=words))
