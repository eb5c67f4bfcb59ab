"""Find everything that is wrong with a campaign before it runs, not only the first error."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from proctor import places
from proctor.campaign.flow_engines import find_flow_engines
from proctor.campaign.freeze import copy_workspaces
from proctor.campaign.logins import find_identities
from proctor.campaign.preflight import ChainBuilder, secrets_of
from proctor.config.load import load_config
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.ladder import choose, survey
from proctor.contain.launch import no_program
from proctor.errors import InputError, ProctorError, disk_error
from proctor.event.outcome import Outcome
from proctor.ids import FlowId
from proctor.model.script import Patch, Script, load_script
from proctor.plan.expand import resolve_flow
from proctor.probe.command import is_in_workspace
from proctor.probe.kind import search_path_of
from proctor.runtime.base import sees_tool_calls
from proctor.runtime.registry import runtime_by_id
from proctor.runtime.resolve import Candidate, ExamineProgram, Link, RefusedRuntime
from proctor.runtime.rollout import check_config
from proctor.spec.argv import argv_of
from proctor.spec.campaign_options import ToolsSpec
from proctor.spec.criterion import Role
from proctor.spec.expect import TraceExpect
from proctor.spec.load import LoadedSpec
from proctor.spec.suite_probes import SuiteOptions
from proctor.workspace.remove import remove


@dataclass(slots=True, kw_only=True)
class LintResult:
    """The errors that keep a campaign from running, and warnings."""

    findings: list[ProctorError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def lint(loaded: LoadedSpec, *, examine: ExamineProgram) -> LintResult:
    """Check the scripts, programs, logins, hooks, probes and workspaces of a loaded spec."""
    result = LintResult()
    for path in loaded.scripts.values():
        _try(result, partial(load_script, path))
    _try(result, lambda: _lint_flows(loaded, result, examine))
    _try(result, lambda: choose(survey(bundled_bwrap=bundled_bwrap())))
    result.findings += _hook_findings(loaded)
    _try(result, lambda: _lint_workspaces(loaded, result))
    result.warnings += _probe_warnings(loaded)
    result.warnings += _guard_warnings(loaded)
    result.warnings += _protect_warnings(loaded)
    result.warnings += _expect_warnings(loaded)
    result.warnings += _unseen_warnings(loaded)
    result.warnings += _script_warnings(loaded)
    result.warnings += _schedule_warnings(loaded)
    return result


def _try(result: LintResult, check: Callable[[], object]) -> None:
    """Run a check, and add its errors to the result."""
    try:
        check()
    except ProctorError as error:
        result.findings += error.all_errors
    except OSError as error:
        result.findings.append(disk_error(error, path=error.filename))


def _lint_flows(loaded: LoadedSpec, result: LintResult, examine: ExamineProgram) -> None:
    config = load_config(loaded.folder)
    check_config(config)
    flows = [resolve_flow(flow, spec=loaded.spec) for flow in loaded.spec.flows]
    builder = ChainBuilder(loaded, config=config, health={}, now_ms=0, examine=examine)
    chains: dict[FlowId, tuple[Link, ...]] = {}
    for at, flow in enumerate(flows):
        try:
            chains[flow.id] = builder.chain(at, flow)
        except ProctorError as error:
            result.findings.append(error)
    result.warnings += (f"flow `{id_}`: {text}" for id_, chain in chains.items() for text in _skipped_runtimes(chain))
    usable = [flow for flow in flows if flow.id in chains]
    candidates = {flow.id: [each for each in chains.get(flow.id, ()) if isinstance(each, Candidate)] for flow in flows}
    _try(result, lambda: find_flow_engines(loaded, flows, config=config, chains=candidates))
    identities = find_identities(loaded, usable, chains=candidates, logins=builder.logins)
    runtimes = [candidate.runtime for chain in candidates.values() for candidate in chain]
    secrets_of(loaded, runtimes, [each.credential for each in identities.values()])


def _skipped_runtimes(chain: tuple[Link, ...]) -> Iterator[str]:
    """Yield why runtimes of a chain before the first usable one are skipped."""
    for link in chain:
        if isinstance(link, Candidate):
            return
        if isinstance(link, RefusedRuntime):
            yield f"runtime `{link.runtime_id}` would be skipped: {link.error.what}"


def _hook_findings(loaded: LoadedSpec) -> Iterator[InputError]:
    phases = ("before", "after")
    for phase in phases:
        if (problem := _missing_program(getattr(loaded.spec.hooks, phase), cwd=loaded.folder)) is not None:
            yield loaded.without_line_if_built(
                loaded.source_file.error("spec.missing-file", problem, key=f"hooks.{phase}")
            )
    for mission in loaded.missions:
        for phase in phases:
            if (problem := _missing_program(getattr(mission.hooks, phase, None), cwd=loaded.folder)) is not None:
                source = loaded.mission_sources[mission.id]
                yield loaded.without_line_if_built(source.error("spec.missing-file", problem, key=f"hooks.{phase}"))


def _missing_program(command: list[str] | str | None, *, cwd: Path) -> str | None:
    """Return an error text if a command's program does not exist, else None."""
    if command is None:
        return None
    program = argv_of(command)[0]
    name = str(cwd / program) if "/" in program else program
    if shutil.which(name, path=os.environ.get("PATH", os.defpath)) is not None:
        return None
    return no_program(name)


def _lint_workspaces(loaded: LoadedSpec, result: LintResult) -> None:
    """Copy every workspace once, as for a run, and delete the copy."""
    cache = places.cache_dir()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    of_key = {mission.workspace.key: mission for mission in reversed(loaded.missions)}
    first = [mission for mission in loaded.missions if mission is of_key[mission.workspace.key]]
    for mission in first:
        if mission.workspace.key is not None:
            _try(result, partial(_copy_workspace, replace(loaded, missions=(mission,)), cache=cache))


def _copy_workspace(loaded: LoadedSpec, *, cache: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="lint-", dir=cache))
    try:
        copy_workspaces(loaded, into=folder / "bases")
    finally:
        with suppress(OSError):
            remove(folder)


def _probe_warnings(loaded: LoadedSpec) -> Iterator[str]:
    search_path = search_path_of(os.environ.get("PATH", os.defpath))
    for mission in loaded.missions:
        for at, probe in enumerate(mission.probes):
            for program in probe.programs:
                if not is_in_workspace(program) and shutil.which(program, path=search_path) is None:
                    problem = f"`{program}` is not installed on this machine, so the probe cannot verify anything"
                    yield f"mission `{mission.id}`, probe {at + 1}: {problem}"


def _protect_warnings(loaded: LoadedSpec) -> Iterator[str]:
    for mission in loaded.missions:
        if mission.protect and not any(isinstance(probe, SuiteOptions) for probe in mission.probes):
            problem = "`protect` has no effect: no probe of the mission runs tests (unit_tests, test_suite_parity)"
            yield f"mission `{mission.id}`: {problem}"


def _guard_warnings(loaded: LoadedSpec) -> Iterator[str]:
    for mission in loaded.missions:
        for at, probe in enumerate(mission.probes):
            if probe.role is Role.GUARD and probe.mutant is None:
                problem = "a guard without `mutant` leaves the mission unverified: nothing shows that it can fail"
                yield f"mission `{mission.id}`, probe {at + 1}: {problem}"


def _expect_warnings(loaded: LoadedSpec) -> Iterator[str]:
    """Warn of missions whose probes may fail although everything that they expect is met."""
    for mission in loaded.missions:
        expect = mission.expect
        is_failure_expected = expect.outcome not in (None, Outcome.COMPLETED)
        if mission.probes and expect.states_something and expect.verified is None and not is_failure_expected:
            problem = "`expect` does not state `verified`, so a result that the probes refute is still as expected"
            yield f"mission `{mission.id}`: {problem}; add `verified: yes`"


def _unseen_warnings(loaded: LoadedSpec) -> Iterator[str]:
    """Warn of rules about tool calls on runtimes that cannot see them."""
    traced = [mission.id for mission in loaded.missions if mission.expect.trace not in (None, TraceExpect())]
    for spec in loaded.spec.flows:
        flow = resolve_flow(spec, spec=loaded.spec)
        for runtime_id in flow.runtime:
            with suppress(ProctorError):  # other checks report these
                if sees_tool_calls(runtime_by_id(runtime_id).normalizer()):
                    continue
                why = f"{runtime_id} cannot see tool calls"
                if flow.tools != ToolsSpec():
                    yield f"flow `{flow.id}`: whether `tools` is obeyed will be unknown: {why}"
                if traced:
                    yield f"flow `{flow.id}`: `expect.trace` of {', '.join(traced)} will be unknown: {why}"


def _script_warnings(loaded: LoadedSpec) -> Iterator[str]:
    """Warn of patches for lines that a copied workspace does not have.

    Only the first patch of each file is checked: the lines after it are not known.
    """
    for mission in loaded.missions:
        if mission.script is None or mission.workspace.copy is None or mission.workspace.key is None:
            continue
        with suppress(ProctorError, OSError, UnicodeDecodeError):  # other checks report these
            workspace, patched = loaded.workspaces[mission.workspace.key], set[str]()
            for patch in _patches(load_script(loaded.scripts[mission.script])):
                if patch.file not in patched and patch.old is not None and not _fits(patch.old, workspace / patch.file):
                    problem = (
                        f"{patch.file} does not have the lines that the patch replaces (it must quote whole lines)"
                    )
                    yield f"mission `{mission.id}`, {mission.script}: {problem}"
                patched.add(patch.file)


def _patches(script: Script) -> Iterator[Patch]:
    for step in script.steps:
        yield from (each for each in step.for_try(0).intents() if isinstance(each, Patch))


def _fits(old: str, file: Path) -> bool:
    """Return whether a file has these lines. White space around a line is ignored, as agents do.

    A file that does not exist counts as fitting, because an earlier step may create it.
    """
    if not file.is_file():
        return True
    lines, wanted = ([line.strip() for line in text.splitlines()] for text in (file.read_text(), old))
    return any(lines[at : at + len(wanted)] == wanted for at in range(len(lines) - len(wanted) + 1))


def _schedule_warnings(loaded: LoadedSpec) -> Iterator[str]:
    schedule = loaded.spec.schedule
    limits = {
        **{f"runtimes.{name}": most for name, most in schedule.runtimes.items()},
        **{f"providers.{name}": most for name, most in schedule.providers.items()},
        "per_credential": schedule.per_credential or 0,
    }
    for key, most in limits.items():
        if most > schedule.parallel:
            yield f"`schedule.{key}` is {most}, but has no effect: `schedule.parallel` is only {schedule.parallel}"
    if schedule.parallel > loaded.trial_count and schedule.parallel != type(schedule)().parallel:
        yield f"`schedule.parallel` is {schedule.parallel}, but there are only {loaded.trial_count} trials"
