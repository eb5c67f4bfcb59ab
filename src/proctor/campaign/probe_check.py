"""Tests the probes of a spec without an agent: on the untouched workspace, on the solution and on each cheat."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from proctor.attempt.expectation import decide_tree
from proctor.attempt.probing import ProbeRunner
from proctor.campaign.freeze import FolderCopies, copy_folders
from proctor.campaign.hiding import find_hidden_from_probes
from proctor.campaign.probe_machine import ProbeMachine, Tree, make_redactor, open_probe_machine, run_probes, take_tree
from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.errors import Exit, InputError, unwrap_single
from proctor.ids import Digest, MissionId
from proctor.probe.model import Fault, Phase, ProbeRow, Verdict, require
from proctor.spec.collect_errors import raise_collected
from proctor.spec.expect import ExpectedVerdict
from proctor.spec.load import LoadedSpec
from proctor.spec.model import MissionSpec
from proctor.workspace.patch import apply_patch, lay_patch
from proctor.workspace.prepare import prepare


class CheckedTree(StrEnum):
    """What a mission's probes are run on."""

    UNTOUCHED = "untouched"
    """The workspace before any work. The probes must not verify it."""
    SOLUTION = "solution"
    """The workspace with the mission's solution. The probes must verify it."""
    CHEAT = "cheat"
    """The workspace with one of the mission's cheats. The probes must not verify it."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all parts of the result."""


class ProbeVerdicts(_Part, frozen=True, kw_only=True):
    """The verdicts of one probe on one tree."""

    index: int
    """Position of the probe in the mission, counted from 0."""
    kind: str
    """Kind of the probe."""
    criterion: str
    """What the probe shows, in words."""
    is_mutant: bool
    """Whether the probe ran on its mutant instead of the tree itself."""
    verdicts: tuple[Verdict, ...]
    """The verdict of each run, in their order."""
    varied: int
    """How many runs had another verdict than the most frequent one; 0 if the probe is not flaky here."""
    summary: str
    """What was observed in the last run. Redacted."""
    stdout_tail: str
    """The end of the stdout of the last run. Redacted."""
    stderr_tail: str
    """The end of the stderr of the last run. Redacted."""


class TreeCheck(_Part, frozen=True, kw_only=True):
    """What the probes decide about one tree."""

    tree: CheckedTree
    """What the probes were run on."""
    patch: str | None
    """Path of the patch, as in the spec; null for the untouched workspace."""
    workspace_digest: Digest
    """Digest of the tree."""
    verified: ExpectedVerdict
    """What the probes decide: yes, no or unknown."""
    is_as_required: bool
    """Whether the decision is the required one."""
    is_unjudged: bool
    """Whether a probe could not run on this machine, so that nothing is known."""
    reasons: tuple[str, ...]
    """Why the tree is not verified, one text per probe; why it should not be, if it is and must not be."""
    probes: tuple[ProbeVerdicts, ...]
    """The verdicts of each probe."""


class MissionCheck(_Part, frozen=True, kw_only=True):
    """The check of one mission."""

    mission_id: MissionId
    """Id of the mission."""
    has_solution: bool
    """Whether the mission has a solution. Without one nothing shows that its probes can verify anything."""
    trees: tuple[TreeCheck, ...]
    """The trees that were checked: untouched, solution, cheats. Empty if the mission has no probe."""


class SpecCheck(_Part, frozen=True, kw_only=True):
    """The check of one spec."""

    file: str
    """Path of the spec."""
    missions: tuple[MissionCheck, ...]
    """Its missions, in their order."""


class ProbeCheckResult(_Part, frozen=True, kw_only=True):
    """The result of `proctor probe check`."""

    exit: int
    """Exit code: 0 if all is as required, 1 if not, 3 if a probe cannot run here, 4 if nothing was checked."""
    runs: int
    """How often the probes ran on each tree."""
    specs: tuple[SpecCheck, ...]
    """The specs, in their order."""


OnProgress = Callable[[int, int, str], None]
"""Called with the number of finished trees, the number of all trees, and what is being checked."""


async def check_probes(
    specs: Sequence[LoadedSpec], *, runs: int, on_progress: OnProgress, clock: Clock = SYSTEM_CLOCK
) -> ProbeCheckResult:
    """Run the probes of every mission `runs` times on each of its trees. No agent runs, and nothing is recorded.

    Raises InputError, with file, line and key, if a patch does not apply; then no probe was run.
    """
    hidden = [path for loaded in specs for path in find_hidden_from_probes(loaded, root=None)]
    try:
        async with open_probe_machine(clock=clock, hidden=hidden) as machine:
            prepared = [await anyio.to_thread.run_sync(_lay_out, loaded, machine) for loaded in specs]
            if errors := [error for each in prepared for error in each.errors]:
                raise_collected(errors)
            checked = await _check_all(prepared, machine, runs=runs, on_progress=on_progress)
    except BaseExceptionGroup as group:
        raise unwrap_single(group) from group
    return ProbeCheckResult(exit=_exit(checked), runs=runs, specs=checked)


def _exit(specs: Sequence[SpecCheck]) -> int:
    trees = [tree for spec in specs for mission in spec.missions for tree in mission.trees]
    if not trees:
        return Exit.UNVERIFIED
    if any(not tree.is_as_required and not tree.is_unjudged for tree in trees):
        return Exit.JUDGED_NO
    return Exit.INFRASTRUCTURE if any(tree.is_unjudged for tree in trees) else Exit.OK


# ── the trees ──


@dataclass(frozen=True, slots=True, kw_only=True)
class _PatchedTree:
    kind: CheckedTree
    patch: str
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A spec with every tree that its probes will run on."""

    loaded: LoadedSpec
    copies: FolderCopies
    bases: dict[MissionId, Path]
    patched: dict[MissionId, list[_PatchedTree]]
    errors: list[InputError]

    @property
    def missions(self) -> list[MissionSpec]:
        return [mission for mission in self.loaded.missions if mission.probes]


def _lay_out(loaded: LoadedSpec, machine: ProbeMachine) -> _Prepared:
    """Copy the workspaces of a spec, and lay out a tree for each patch."""
    copies = copy_folders(loaded, into=machine.new_place("bases"))
    prepared = _Prepared(loaded=loaded, copies=copies, bases={}, patched={}, errors=[])
    for mission in prepared.missions:
        key = mission.workspace.key
        base = machine.new_folder("empty") if key is None else copies.workspaces[key]
        prepared.bases[mission.id], prepared.patched[mission.id] = base, []
        for index, probe in enumerate(mission.probes):
            if probe.mutant is not None:
                patch = loaded.sources[probe.mutant]
                with _Located(prepared, mission, key=f"probes[{index}].mutant", patch=probe.mutant):
                    lay_patch(patch, base=base, into=machine.new_folder("layer"))
        for kind, name, spec_key in _find_patches(mission):
            tree = machine.new_place("tree")
            with _Located(prepared, mission, key=spec_key, patch=name):
                prepare(base, into=tree)
                apply_patch(loaded.sources[name], tree=tree, layer=machine.new_folder("layer"))
                prepared.patched[mission.id].append(_PatchedTree(kind=kind, patch=name, folder=tree))
    return prepared


def _find_patches(mission: MissionSpec) -> Iterator[tuple[CheckedTree, str, str]]:
    """Yield the kind, the path and the key of each patch of a mission."""
    if mission.solution is not None:
        yield CheckedTree.SOLUTION, mission.solution, "solution"
    for at, cheat in enumerate(mission.cheats):
        yield CheckedTree.CHEAT, cheat, f"cheats[{at}]"


class _Located:
    """Collects an input error raised inside, with the place of the key in the spec."""

    def __init__(self, prepared: _Prepared, mission: MissionSpec, *, key: str, patch: str) -> None:
        self._prepared = prepared
        self._mission = mission
        self._key = key
        self._patch = patch

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, InputError):
            return False
        loaded = self._prepared.loaded
        what = f"mission `{self._mission.id}`: `{self._patch}` does not apply: {error.what}"
        located = loaded.mission_sources[self._mission.id].error("workspace.patch", what, key=self._key)
        self._prepared.errors.append(loaded.without_line_if_built(located))
        return True


# ── the probes ──


async def _check_all(
    prepared: Sequence[_Prepared], machine: ProbeMachine, *, runs: int, on_progress: OnProgress
) -> tuple[SpecCheck, ...]:
    found: dict[tuple[int, MissionId], MissionCheck] = {}
    of = sum(1 + len(each.patched[mission.id]) for each in prepared for mission in each.missions)
    done = 0

    def tree_done(name: str) -> None:
        nonlocal done
        done += 1
        on_progress(done, of, name)

    limiter = anyio.CapacityLimiter(max(1, len(os.sched_getaffinity(0))))

    async def check_one(at: int, each: _Prepared, mission: MissionSpec) -> None:
        async with limiter:
            check = _MissionChecker(prepared=each, mission=mission, machine=machine, runs=runs, tree_done=tree_done)
            found[at, mission.id] = await check.run()

    async with anyio.create_task_group() as tasks:
        for at, each in enumerate(prepared):
            for mission in each.missions:
                tasks.start_soon(check_one, at, each, mission)
    return tuple(
        SpecCheck(
            file=each.loaded.file,
            missions=tuple(
                found.get((at, mission.id))
                or MissionCheck(mission_id=mission.id, has_solution=mission.solution is not None, trees=())
                for mission in each.loaded.missions
            ),
        )
        for at, each in enumerate(prepared)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _MissionChecker:
    prepared: _Prepared
    mission: MissionSpec
    machine: ProbeMachine
    runs: int
    tree_done: Callable[[str], None]

    async def run(self) -> MissionCheck:
        loaded, mission = self.prepared.loaded, self.mission
        untouched = await take_tree(self.prepared.bases[mission.id])
        runner = self.machine.make_runner(
            mission,
            untouched=untouched,
            sources=loaded.sources,
            hidden_files=self.prepared.copies.overlay_of(mission),
            redactor=make_redactor((loaded.spec, loaded.secret_files)),
        )
        before = await self._run(runner, Phase.BASELINE, untouched)
        checks = [self._judge(CheckedTree.UNTOUCHED, None, untouched, untouched, before=before, rows=before)]
        self.tree_done(f"{mission.id}: untouched")
        for each in self.prepared.patched[mission.id]:
            tree = await take_tree(each.folder)
            rows = await self._run(runner, Phase.FINAL, tree)
            checks.append(self._judge(each.kind, each.patch, tree, untouched, before=before, rows=rows))
            self.tree_done(f"{mission.id}: {each.kind} {each.patch}")
        return MissionCheck(mission_id=mission.id, has_solution=mission.solution is not None, trees=tuple(checks))

    async def _run(self, runner: ProbeRunner, phase: Phase, tree: Tree) -> list[ProbeRow]:
        rows: list[ProbeRow] = []
        for _ in range(self.runs):
            rows += await run_probes(runner, phase, tree)
        return rows

    def _judge(
        self,
        kind: CheckedTree,
        patch: str | None,
        tree: Tree,
        untouched: Tree,
        *,
        before: Sequence[ProbeRow],
        rows: Sequence[ProbeRow],
    ) -> TreeCheck:
        hidden = self.prepared.copies.overlay_of(self.mission)
        # A waived criterion is never verified, so waivers are left out: the probes are tested, not the mission.
        decision = decide_tree(
            require(
                self.mission.probes,
                files=self.prepared.loaded.sources,
                hidden=None if hidden is None else hidden.digest,
            ),
            (*before, *rows) if kind is not CheckedTree.UNTOUCHED else before,
            workspace_digest=tree.snapshot.digest,
            base_digest=untouched.snapshot.digest,
        )
        probes = tuple(_verdicts_of(rows))
        is_verified, reasons = decision.verified is ExpectedVerdict.YES, list(decision.reasons)
        is_as_required = is_verified == (kind is CheckedTree.SOLUTION)
        if kind is CheckedTree.UNTOUCHED:
            # Not verified is not enough: a goal that passes here, or a blind guard, can verify no work either.
            is_as_required = not is_verified and decision.unjudged is None and not any(each.varied for each in probes)
        if is_verified and not is_as_required:
            reasons += [f"{each.criterion.rstrip('.')}: passes: {each.summary}" for each in probes]
        return TreeCheck(
            tree=kind,
            patch=patch,
            workspace_digest=tree.snapshot.digest,
            verified=decision.verified,
            is_as_required=is_as_required,
            is_unjudged=not is_verified and any(_is_unable(row, kind) for row in rows),
            reasons=tuple(reasons),
            probes=probes,
        )


def _is_unable(row: ProbeRow, kind: CheckedTree) -> bool:
    """Return whether a probe could not run, and the patch is not the reason."""
    is_ours = row.fault is Fault.MACHINE or kind is CheckedTree.UNTOUCHED
    return row.verdict is Verdict.UNAVAILABLE and is_ours


def _verdicts_of(rows: Sequence[ProbeRow]) -> Iterator[ProbeVerdicts]:
    by_probe: dict[tuple[int, bool], list[ProbeRow]] = {}
    for row in rows:
        by_probe.setdefault((row.index, row.phase is Phase.MUTANT), []).append(row)
    for (index, is_mutant), own in sorted(by_probe.items()):
        [(_, most)] = Counter(row.verdict for row in own).most_common(1)
        last = own[-1]
        yield ProbeVerdicts(
            index=index,
            kind=last.kind,
            criterion=last.criterion,
            is_mutant=is_mutant,
            verdicts=tuple(row.verdict for row in own),
            varied=len(own) - most,
            summary=last.summary,
            stdout_tail=last.stdout_tail,
            stderr_tail=last.stderr_tail,
        )
