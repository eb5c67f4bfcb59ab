"""Run a probe on its own view of the workspace and return its result as a row."""

import errno
import itertools
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from proctor import places
from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.config.probe_plugins import plugin_of
from proctor.contain.fences import Fences, fence_in
from proctor.contain.intent import IntentLog
from proctor.contain.ladder import Containment
from proctor.errors import MachineError, ProctorError, exhaustion_code
from proctor.evidence.layout import is_probe_file, probe_file_prefix
from proctor.evidence.redact import Redactor
from proctor.probe.artifacts import KeptFiles, keep_files
from proctor.probe.kind import (
    NO_REFERENCE,
    Judgement,
    LayOut,
    Layout,
    ProbeKind,
    ProbeReference,
    ProbeWorkspace,
    probe_environment,
)
from proctor.probe.kinds import KINDS, LAYOUTS
from proctor.probe.model import (
    ContainmentRecord,
    Fault,
    Phase,
    ProbeProgram,
    ProbeRow,
    ProbeRun,
    Verdict,
    criterion_of,
    identify_probe,
    kind_of,
)
from proctor.probe.protect import find_caches
from proctor.probe.tail import tail
from proctor.probe.view import Subject, View, make_view
from proctor.spec.fence import Contain, Network
from proctor.spec.probe_options import RepeatSpec
from proctor.spec.probes import ProbeSpec
from proctor.transport.process import ProcessResult
from proctor.workspace.name import quoted
from proctor.workspace.patch import lay_patch
from proctor.workspace.remove import remove
from proctor.workspace.snapshot import snapshot

_REMOVAL_S: Final = 30.0
_SUMMARY_CHARS: Final = 500
_PATHS_NAMED: Final = 3
_PREFIX: Final = probe_file_prefix(0, Phase.FINAL.value)


async def run_probe(
    spec: ProbeSpec,
    *,
    index: int,
    phase: Phase,
    subject: Subject,
    scratch: Path,
    containment: Containment,
    intents: IntentLog,
    redactor: Redactor,
    hidden: Sequence[Path] = (),
    agent_folders: Sequence[Path] | None = None,
    patch: bytes | None = None,
    reference: ProbeReference = NO_REFERENCE,
    search_path: str | None = None,
    keep: Path | None = None,
    kinds: Mapping[str, ProbeKind] = KINDS,
    clock: Clock = SYSTEM_CLOCK,
) -> ProbeRow:
    """Run a probe on a view of `subject`, the workspace, and return its row. Raises nothing except cancellation.

    `scratch` must exist; what the view needs is made there and removed afterwards. Unless the spec sets
    `contain: none`, the probe can change only its view and cannot see the subject, the rest of `scratch` or the
    `hidden` paths. If this machine cannot enforce that, the verdict is `unavailable`. Without fences the digest of the
    subject is computed again afterwards, to detect a workspace that changed during the probe. `agent_folders` are the
    only folders that the agent can write to; None if it can write wherever Proctor's user can. `patch` is laid over the
    view. `reference` is what kinds that run tests compare with. Texts in the row are redacted first and then shortened.
    Files that the probe keeps are written to the folder `keep`; without one they are dropped.
    """
    began_s = clock.steady_s()
    run = _Run(programs=[])

    async def judge_once() -> Judgement:
        return await _judge(
            spec,
            run=run,
            subject=subject,
            scratch=scratch,
            hidden=(subject.folder, scratch, *hidden),
            agent_folders=agent_folders,
            patch=patch,
            containment=containment,
            intents=intents,
            redactor=redactor,
            search_path=os.environ.get("PATH", os.defpath) if search_path is None else search_path,
            reference=reference,
            kinds=kinds,
        )

    judgement, runs = await _repeat(judge_once, spec.repeat, redactor=redactor, clock=clock)
    ended_s = clock.steady_s()
    is_mutated = False
    if spec.contain is Contain.NONE:
        is_mutated = (await anyio.to_thread.run_sync(snapshot, subject.folder)).digest != subject.digest
    finished = judgement.finished
    exit_status = finished.exit if finished else None
    stdout_tail, stderr_tail = await anyio.to_thread.run_sync(lambda: _tails(finished, redactor))
    kept = KeptFiles()
    if keep is not None and judgement.artifacts:
        prefix = probe_file_prefix(index, phase.value)
        try:
            kept = await anyio.to_thread.run_sync(
                lambda: keep_files(judgement.artifacts, keep, prefix, redactor=redactor)
            )
        except MachineError as problem:
            kept = KeptFiles(left_out=(f"any file: {problem.what}",))
    return ProbeRow(
        phase=phase,
        index=index,
        kind=kind_of(spec),
        probe_digest=identify_probe(
            spec,
            files=reference.sources,
            hidden=None if reference.hidden is None else reference.hidden.digest,
        ),
        role=spec.role,
        criterion=redactor.text(criterion_of(spec, index)).text,
        workspace_digest=subject.digest,
        verdict=judgement.verdict,
        summary=redactor.text(f"{judgement.summary}{kept.remark}").text[:_SUMMARY_CHARS],
        fault=judgement.fault or Fault.WORKSPACE if judgement.verdict is Verdict.UNAVAILABLE else None,
        argv=judgement.argv,
        programs=tuple(run.programs),
        exit_code=exit_status.code if exit_status else None,
        signal=exit_status.signal if exit_status else None,
        duration_ms=round((ended_s - began_s) * 1000),
        timed_out=finished.timed_out if finished else False,
        stdout_tail=stdout_tail,
        stderr_tail=stderr_tail,
        mutated=is_mutated,
        view=None if run.view is None else run.view.kind,
        contained=_contained(spec, containment),
        judged=judgement.judged if judgement.argv and judgement.verdict in (Verdict.PASS, Verdict.FAIL) else None,
        controls=judgement.controls,
        tests=judgement.tests,
        artifacts=kept.artifacts,
        runs=runs,
    )


async def _repeat(
    judge_once: Callable[[], Awaitable[Judgement]], repeat: RepeatSpec | None, *, redactor: Redactor, clock: Clock
) -> tuple[Judgement, tuple[ProbeRun, ...]]:
    """Judge as often as the spec says. Return one judgement for all runs, with the output of one that decided it."""
    if repeat is None:
        return await judge_once(), ()
    judgements, runs = list[Judgement](), list[ProbeRun]()
    for _ in range(repeat.runs):
        began_s = clock.steady_s()
        judgements.append(await judge_once())
        runs.append(
            ProbeRun(
                verdict=judgements[-1].verdict,
                summary=redactor.text(judgements[-1].summary).text[:_SUMMARY_CHARS],
                duration_ms=round((clock.steady_s() - began_s) * 1000),
            )
        )
    return _combine(judgements, need=repeat.need), tuple(runs)


def _combine(judgements: Sequence[Judgement], *, need: int) -> Judgement:
    """Return one judgement for several runs. It fails only if the runs that could not judge would not change that."""
    passed = sum(each.verdict is Verdict.PASS for each in judgements)
    unknown = sum(each.verdict not in (Verdict.PASS, Verdict.FAIL) for each in judgements)
    possible = (passed >= need, Verdict.PASS), (passed + unknown >= need, Verdict.UNAVAILABLE), (True, Verdict.FAIL)
    verdict = next(each for holds, each in possible if holds)
    shown = next(each for each in judgements if each.verdict is verdict)
    return replace(shown, summary=f"{passed} of {len(judgements)} runs passed; {shown.summary}")


@dataclass(slots=True, kw_only=True)
class _Run:
    """What is known of a run, however it ended."""

    programs: list[ProbeProgram]
    view: View | None = None


def _tails(finished: ProcessResult | None, redactor: Redactor) -> tuple[str, str]:
    if finished is None:
        return "", ""
    return (
        tail(finished.stdout, redactor=redactor, is_cut=finished.stdout_cut),
        tail(finished.stderr, redactor=redactor, is_cut=finished.stderr_cut),
    )


async def _judge(
    spec: ProbeSpec,
    *,
    run: _Run,
    subject: Subject,
    scratch: Path,
    hidden: Sequence[Path],
    agent_folders: Sequence[Path] | None,
    patch: bytes | None,
    containment: Containment,
    intents: IntentLog,
    redactor: Redactor,
    search_path: str,
    reference: ProbeReference,
    kinds: Mapping[str, ProbeKind],
) -> Judgement:
    folder: Path | None = None
    try:
        folder = Path(tempfile.mkdtemp(dir=scratch, prefix="probe-"))
        home, temporary, out, tools, layers, changes = (
            folder / name for name in ("home", "tmp", "out", "tools", "workspace", "layout")
        )
        for each in (home, temporary, out, tools, layers, changes):
            each.mkdir(mode=0o700)
        layout = await _lay_out(spec, subject=subject, reference=reference, folder=changes)
        if layout.tampered:
            return Judgement(verdict=Verdict.FAIL, summary=f"tampered: {_list(layout.tampered)} changed")
        has_overlays = containment.has_overlays and spec.contain is not Contain.NONE
        over = () if reference.hidden is None else (reference.hidden.folder,)
        if reference.hidden is not None and subject.tree is not None:
            # A compiled file of the agent could take the place of a hidden one.
            layout = replace(layout, removed=(*layout.removed, *find_caches(subject.tree)))
        made = itertools.count(1)

        async def make() -> View:
            number = next(made)
            # The first view uses the folder itself: most probes need no other.
            place = layers if number == 1 else layers.with_name(f"{layers.name}-{number}")
            place.mkdir(mode=0o700, exist_ok=True)
            return await _make_view(
                subject, folder=place, has_overlays=has_overlays, over=over, layout=layout, patch=patch
            )

        view = run.view = await make()
        of_agents = (*hidden, places.cache_dir() / "runs")
        env = probe_environment(search_path=search_path, home=home, temporary=temporary, of_agents=of_agents)

        def fence(program: str, seen: View) -> Fences:
            fences = fence_in(
                (*(() if seen.overlay else (seen.place,)), home, temporary, out),
                hidden=hidden,
                network=spec.network,
                search_path=env["PATH"],
                program=program,
            )
            return replace(fences, read_only=(*fences.read_only, tools.resolve()), overlay=seen.overlay)

        probe_workspace = ProbeWorkspace(
            view=view,
            make_view=make,
            subject=subject,
            out=out,
            tools=tools,
            env=env,
            containment=containment,
            intents=intents,
            redactor=redactor,
            programs=run.programs,
            agent_folders=agent_folders,
            layout=layout,
            reference=reference,
            fence=None if spec.contain is Contain.NONE else fence,
        )
        plugin = plugin_of(spec)
        judge = kinds[kind_of(spec)] if plugin is None else plugin.judge
        judgement = await judge(spec, probe_workspace)
        if not isinstance(judgement, Judgement):
            raise TypeError(f"returned {judgement!r} instead of a Judgement")
        if bad := [name for name in judgement.artifacts if not is_probe_file(f"{_PREFIX}{name}")]:
            raise TypeError(f"returned a file with a name that is not plain: {bad[0]!r}")
    except ProctorError as problem:
        return Judgement(verdict=Verdict.UNAVAILABLE, summary=str(problem), fault=_fault_of(problem))
    # A probe kind may be a plugin: any exception that it raises becomes a row.
    except Exception as problem:
        summary = f"the probe raised an exception: {type(problem).__name__}: {problem}"
        return Judgement(verdict=Verdict.UNAVAILABLE, summary=summary, fault=_fault_of(problem))
    else:
        return _with_links_out(judgement, subject.links_out)
    finally:
        if folder is not None:
            # Shielded so that cancellation leaves no copy behind; bounded because a disk may hang.
            with anyio.move_on_after(_REMOVAL_S, shield=True), suppress(OSError):
                await anyio.to_thread.run_sync(remove, folder, abandon_on_cancel=True)


async def _lay_out(spec: ProbeSpec, *, subject: Subject, reference: ProbeReference, folder: Path) -> Layout:
    plugin = plugin_of(spec)
    lay_out: LayOut | None = LAYOUTS.get(kind_of(spec)) if plugin is None else getattr(plugin, "lay_out", None)
    if lay_out is None:
        return Layout()
    return await anyio.to_thread.run_sync(lambda: lay_out(spec, subject=subject, reference=reference, folder=folder))


async def _make_view(
    subject: Subject,
    *,
    folder: Path,
    has_overlays: bool,
    over: tuple[Path, ...],
    layout: Layout,
    patch: bytes | None,
) -> View:
    def make() -> View:
        patched = None
        if patch is not None:
            place = folder.with_name(f"{folder.name}-patched")
            place.mkdir(mode=0o755)
            patched = lay_patch(patch, base=subject.folder, into=place)
        return make_view(
            subject,
            folder=folder,
            has_overlays=has_overlays,
            # Hidden files lie above a patch, as they lie above the work of an agent.
            over=(*(() if patched is None else (patched.folder,)), *over, *layout.over),
            removed=layout.removed if patched is None else (*patched.removed, *layout.removed),
            keep_changes=layout.keep_changes,
        )

    if has_overlays and not subject.left_out and not layout.removed and patch is None:
        return make()  # makes no file
    return await anyio.to_thread.run_sync(make)


def _with_links_out(judgement: Judgement, outside: Sequence[str]) -> Judgement:
    """Say in the summary which links the probe did not see."""
    if not outside:
        return judgement
    what = f"left out, because they lead out of the workspace: {_list(outside)}"
    return replace(judgement, summary=f"{judgement.summary}; {what}")


def _list(paths: Sequence[str]) -> str:
    """Return the first few paths, and how many more there are."""
    first = ", ".join(quoted(each) for each in paths[:_PATHS_NAMED])
    more = f" and {len(paths) - _PATHS_NAMED:,} more" if len(paths) > _PATHS_NAMED else ""
    return f"{first}{more}"


def _fault_of(problem: Exception) -> Fault:
    """Return where the cause of an exception lies: with the workspace unless it is known to be the machine's."""
    cause = problem.__context__
    if isinstance(cause, OSError) and cause.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return Fault.WORKSPACE  # a name or link that cannot be copied, whatever the error is called
    is_machine = isinstance(problem, MachineError | MemoryError)
    if isinstance(problem, OSError):
        is_machine = exhaustion_code(problem.errno) is not None
    return Fault.MACHINE if is_machine else Fault.WORKSPACE


def _contained(spec: ProbeSpec, containment: Containment) -> ContainmentRecord | None:
    if spec.contain is Contain.NONE:
        return ContainmentRecord(by=containment.variant, files=Contain.NONE, network=Network.HOST)
    if containment.rung != 1:
        return None
    return ContainmentRecord(by=containment.variant, files=Contain.FENCED, network=spec.network)
