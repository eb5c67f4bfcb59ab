"""Everything that can be found wrong with a campaign before anything runs: all of it, not the first of it."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from proctor import places
from proctor.campaign.freeze import copy_workspaces
from proctor.campaign.logins import find_identities
from proctor.campaign.preflight import Joining, secrets_of
from proctor.config.load import load_config
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.ladder import choose, survey
from proctor.contain.launch import no_program
from proctor.errors import InputError, ProctorError, disk_refusal
from proctor.ids import FlowId
from proctor.model.script import Patch, Script, load_script
from proctor.plan.expand import resolve_flow
from proctor.plan.model import ResolvedFlow
from proctor.probe.kind import search_path_of
from proctor.runtime.lane import check_config
from proctor.runtime.resolve import Candidate, Link, Refused
from proctor.spec.argv import argv_of
from proctor.spec.load import LoadedSpec
from proctor.workspace.remove import remove


@dataclass(slots=True, kw_only=True)
class Linted:
    """What keeps a campaign from running, and what its author may want to know."""

    problems: list[ProctorError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def lint(loaded: LoadedSpec) -> Linted:
    """Of a spec that could be loaded: its scripts, programs, logins, hooks, probes and workspaces."""
    found = Linted()
    for path in loaded.scripts.values():
        _try(found, partial(load_script, path))
    _try(found, lambda: _lint_flows(loaded, found))
    _try(found, lambda: choose(survey(bundled_bwrap=bundled_bwrap())))
    found.problems += _hook_problems(loaded)
    _try(found, lambda: _lint_workspaces(loaded, found))
    found.warnings += _probe_warnings(loaded)
    found.warnings += _script_warnings(loaded)
    found.warnings += _schedule_warnings(loaded)
    return found


def _try(found: Linted, check: Callable[[], object]) -> None:
    try:
        check()
    except ProctorError as error:
        found.problems += error.each
    except OSError as error:
        found.problems.append(disk_refusal(error, path=error.filename))


def _lint_flows(loaded: LoadedSpec, found: Linted) -> None:
    config = load_config(loaded.folder)
    check_config(config)
    flows = [resolve_flow(flow, spec=loaded.spec) for flow in loaded.spec.flows]
    joining = Joining(loaded, config=config, health={}, now_ms=0)
    chains: dict[FlowId, tuple[Link, ...]] = {}
    for at, flow in enumerate(flows):
        try:
            chains[flow.id] = joining.chain(at, flow)
        except ProctorError as error:
            found.problems.append(error)
    found.warnings += (f"flow `{id_}`: {told}" for id_, chain in chains.items() for told in _passed_over(chain))
    _lint_identities(loaded, [flow for flow in flows if flow.id in chains], chains, joining)


def _lint_identities(
    loaded: LoadedSpec, flows: list[ResolvedFlow], chains: dict[FlowId, tuple[Link, ...]], joining: Joining
) -> None:
    candidates = {id_: [link for link in chain if isinstance(link, Candidate)] for id_, chain in chains.items()}
    identities = find_identities(loaded, flows, chains=candidates, logins=joining.logins)
    runtimes = [candidate.runtime for chain in candidates.values() for candidate in chain]
    secrets_of(loaded, runtimes, [each.credential for each in identities.values()])


def _passed_over(chain: tuple[Link, ...]) -> Iterator[str]:
    for link in chain:
        if isinstance(link, Candidate):
            return
        if isinstance(link, Refused):
            yield f"{link.strategy} would be passed over: {link.error.what}"


def _hook_problems(loaded: LoadedSpec) -> Iterator[InputError]:
    phases = ("before", "after")
    for phase in phases:
        if (lacking := _lacking(getattr(loaded.spec.hooks, phase), cwd=loaded.folder)) is not None:
            yield loaded.as_seen(loaded.marked.problem("spec.missing-file", lacking, key=f"hooks.{phase}"))
    for mission in loaded.missions:
        for phase in phases:
            if (lacking := _lacking(getattr(mission.hooks, phase, None), cwd=loaded.folder)) is not None:
                written = loaded.written[mission.id]
                yield loaded.as_seen(written.problem("spec.missing-file", lacking, key=f"hooks.{phase}"))


def _lacking(command: list[str] | str | None, *, cwd: Path) -> str | None:
    """What to say of a command whose program is not there."""
    if command is None:
        return None
    program = argv_of(command)[0]
    named = str(cwd / program) if "/" in program else program
    if shutil.which(named, path=os.environ.get("PATH", os.defpath)) is not None:
        return None
    return no_program(named)


def _lint_workspaces(loaded: LoadedSpec, found: Linted) -> None:
    """They are copied as for a run, and the copies thrown away."""
    cache = places.cache_dir()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    of_key = {mission.workspace.key: mission for mission in reversed(loaded.missions)}
    first = [mission for mission in loaded.missions if mission is of_key[mission.workspace.key]]
    for mission in first:
        if mission.workspace.key is not None:
            _try(found, partial(_copy_workspace, replace(loaded, missions=(mission,)), cache=cache))


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
            program = argv_of(probe.command)[0]
            is_of_the_workspace = "/" in program and not program.startswith("/")
            if not is_of_the_workspace and shutil.which(program, path=search_path) is None:
                told = f"{program} is not on this machine, so it will verify nothing here"
                yield f"mission `{mission.id}`, probe {at + 1}: {told}"


def _script_warnings(loaded: LoadedSpec) -> Iterator[str]:
    """Of patches for lines that a copied workspace does not have; what an earlier patch has changed, nobody knows."""
    for mission in loaded.missions:
        if mission.script is None or mission.workspace.copy is None or mission.workspace.key is None:
            continue
        with suppress(ProctorError, OSError, UnicodeDecodeError):  # told as problems of their own
            workspace, seen = loaded.workspaces[mission.workspace.key], set[str]()
            for patch in _patches(load_script(loaded.scripts[mission.script])):
                if patch.file not in seen and patch.old is not None and not _fits(patch.old, workspace / patch.file):
                    told = f"{patch.file} has no such lines as its patch replaces; a patch takes whole lines"
                    yield f"mission `{mission.id}`, {mission.script}: {told}"
                seen.add(patch.file)


def _patches(script: Script) -> Iterator[Patch]:
    for step in script.steps:
        yield from (each for each in step.of_try(0).intents() if isinstance(each, Patch))


def _fits(old: str, file: Path) -> bool:
    """As agents look for it: blanks around a line do not count. A file that is not there may come."""
    if not file.is_file():
        return True
    lines, wanted = ([line.strip() for line in text.splitlines()] for text in (file.read_text(), old))
    return any(lines[at : at + len(wanted)] == wanted for at in range(len(lines) - len(wanted) + 1))


def _schedule_warnings(loaded: LoadedSpec) -> Iterator[str]:
    schedule = loaded.spec.schedule
    limits = {
        **{f"strategies.{name}": most for name, most in schedule.strategies.items()},
        **{f"providers.{name}": most for name, most in schedule.providers.items()},
        "per_credential": schedule.per_credential or 0,
    }
    for key, most in limits.items():
        if most > schedule.parallel:
            yield f"`schedule.{key}` is {most}, and never reached: `parallel` is {schedule.parallel}"
    if schedule.parallel > loaded.cell_count and schedule.parallel != type(schedule)().parallel:
        yield f"`schedule.parallel` is {schedule.parallel}, and there are {loaded.cell_count} cells in all"
