"""Check whether this machine can run Proctor, and clean up what dead runs left behind."""

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from proctor import __version__, places
from proctor.campaign.kept_trials import find_kept
from proctor.campaign.scratch import scratch_of_runs, sweep
from proctor.clock import SYSTEM_CLOCK
from proctor.config.load import load_config
from proctor.config.model import Config, RolloutState
from proctor.config.plugins import offers_of
from proctor.config.probe_plugins import GROUP as PROBES
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.ladder import choose, survey
from proctor.contain.reap import ReapResult, reap_leftovers
from proctor.context.registry import GROUP as ENGINES
from proctor.errors import CODES, InputError, MachineError, install_command
from proctor.evidence.health import ProgramHealth, ProgramKey, read_health
from proctor.evidence.layout import RootPaths
from proctor.ids import RuntimeId
from proctor.model.dialects import GROUP as DIALECTS
from proctor.report.format_values import plural
from proctor.runtime.registry import GROUP as RUNTIMES
from proctor.runtime.resolve import ExamineProgram
from proctor.runtime.rollout import check_config
from proctor.surface.campaign_status import count_outcomes
from proctor.surface.check_root import check_evidence_root
from proctor.surface.finding import DoctorFinding, failed, run_check
from proctor.surface.gc_units import size_of
from proctor.surface.logins import find_logins
from proctor.surface.programs import Program, find_programs

_LOW_BYTES = 1 << 30
_FULL_BYTES = 100 << 20

_CHOICE = {"evidence": "--root", "cache": "XDG_CACHE_HOME", "state": "XDG_STATE_HOME"}
"""The option or variable that moves each folder."""


def check_health(root: Path, *, examine: ExamineProgram) -> Iterator[DoctorFinding]:
    """Run all checks and yield their findings, in the order in which a user would fix them."""
    yield DoctorFinding(
        name="proctor", status="ok", what=f"{__version__} on Python {sys.version.split()[0]}, {sys.executable}"
    )
    yield from run_check("containment", _containment)
    config, finding = _config()
    yield finding
    health: Mapping[ProgramKey, ProgramHealth] = {}
    outcomes: Mapping[RuntimeId, Mapping[str, int]] = {}
    try:
        health = read_health(RootPaths(root).health)
        outcomes = count_outcomes(RootPaths(root))
    except (MachineError, OSError) as error:
        yield msgspec.structs.replace(failed("health", error), status="warn")
    yield from run_check("runtimes", _runtimes, config, health, outcomes, examine)
    yield _model()
    yield from run_check("logins", _logins, config)
    yield from run_check("evidence", _writable, "evidence", lambda: root)
    yield from run_check("cache", _writable, "cache", places.cache_dir, todo=_advice("cache"))
    yield from run_check("state", _writable, "state", places.state_dir, todo=_advice("state"))
    yield from run_check("disk", _disk, root)
    yield from run_check("leftovers", _leftovers)
    yield from run_check("scratch", _scratch)
    yield from _trials()
    yield from check_evidence_root(RootPaths(root), config)


def _containment() -> DoctorFinding:
    findings = survey(bundled_bwrap=bundled_bwrap())
    chosen = choose(findings)
    others = [each for each in findings if each.variant is not chosen.variant]
    return DoctorFinding(
        name="containment",
        status="ok",
        what=f"level {chosen.rung} of 3 (1 is the strongest), {chosen.variant}, {chosen.program}",
        more=(
            f"probes see {'an overlay' if chosen.has_overlays else 'a copy'} of the workspace",
            *(f"contains: {each}" for each in chosen.catches),
            *(f"limitation: {each}" for each in chosen.misses),
            *(f"also available: {each.variant} (level {each.rung})" for each in others if each.is_available),
            *(
                f"not available: {each.variant} (level {each.rung}): {each.why}"
                for each in others
                if not each.is_available
            ),
        ),
        facts={
            "rung": chosen.rung,
            "variant": chosen.variant,
            "program": chosen.program,
            "overlays": chosen.has_overlays,
            "catches": chosen.catches,
            "misses": chosen.misses,
            "survey": [
                {
                    "variant": each.variant,
                    "rung": each.rung,
                    "isFound": each.is_available,
                    "overlays": each.has_overlays,
                    "why": each.why,
                }
                for each in findings
            ],
        },
    )


def _config() -> tuple[Config, DoctorFinding]:
    """Load the config of the current folder. If it is invalid, use the defaults, so that the other checks can run."""
    here = Path.cwd()
    try:
        config = load_config(here)
        check_config(config)
    except InputError as error:
        what, todo = str(error), error.suggestion or error.meaning.todo
        return Config(home=here), DoctorFinding(name="config", status="fail", what=what, todo=todo)
    absent = [
        f"{name} is listed, but no installed package provides it"
        for name in config.plugins
        if not any(name in offers_of(group) for group in (RUNTIMES, DIALECTS, PROBES, ENGINES))
    ]
    return config, DoctorFinding(
        name="config",
        status="warn" if absent else "ok",
        what=", ".join(file.file for file in config.files) or "none: the defaults apply",
        more=tuple(absent),
        todo="Install them, or remove them from `plugins`." if absent else None,
        facts={"files": [file.file for file in config.files], "plugins": config.plugins},
    )


def _runtimes(
    config: Config,
    health: Mapping[ProgramKey, ProgramHealth],
    outcomes: Mapping[RuntimeId, Mapping[str, int]],
    examine: ExamineProgram,
) -> Iterator[DoctorFinding]:
    for each in find_programs(config, examine=examine):
        yield from run_check(each.id, _runtime, each, health, outcomes.get(each.id, {}))


def _runtime(found: Program, health: Mapping[ProgramKey, ProgramHealth], outcomes: Mapping[str, int]) -> DoctorFinding:
    # Only a runtime that `auto` may select is necessary.
    is_default = found.rollout.is_enabled and found.rollout.state is RolloutState.DEFAULT
    rollout = (_rollout(found),)
    bad: Literal["fail", "warn"] = "fail" if is_default else "warn"
    if (problem := found.problem) is not None:
        if problem.code == "runtime.not-allowed":
            return DoctorFinding(name=found.id, status="ok", what=problem.what, more=(*rollout, problem.todo))
        return DoctorFinding(name=found.id, status=bad, what=problem.what, more=rollout, todo=problem.todo)
    if (program := found.program) is None:
        return DoctorFinding(name=found.id, status="ok", what="runs no agent program", more=rollout)
    its = health.get(ProgramKey(found.id, program.sha256))
    facts = {**msgspec.to_builtins(program), "rollout": found.rollout, "health": its, "outcomes": outcomes}
    more = rollout if its is None else (*rollout, _counts(its))
    if outcomes:
        more = (*more, f"attempts: {', '.join(f'{number} {outcome}' for outcome, number in outcomes.items())}")
    if found.is_locked is False:
        return DoctorFinding(
            name=found.id,
            status="fail",
            what=f"{program.path} differs from the file that its package records",
            more=more,
            todo="Reinstall the package.",
            facts=facts,
        )
    if its is not None and its.is_degraded(now_ms=SYSTEM_CLOCK.wall_ms()):
        return DoctorFinding(
            name=found.id,
            status=bad,
            what=f"{program.path} failed to start several times in a row",
            more=more,
            todo=CODES[its.last_code].todo if its.last_code in CODES else None,
            facts=facts,
        )
    locked = "the pinned program" if found.is_locked else "not pinned by any package"
    what = f"{program.path} ({', '.join(filter(None, (program.version, locked)))})"
    return DoctorFinding(name=found.id, status="ok", what=what, more=more, facts=facts)


def _rollout(found: Program) -> str:
    rollout = found.rollout
    switched = "" if rollout.is_enabled else f"switched off ({rollout.enabled_by}), "
    return f"rollout: {switched}{rollout.state} ({rollout.state_by})"


def _counts(its: ProgramHealth) -> str:
    """Return the health of an agent program as text.

    >>> fields = {"runtime_id": "a", "sha256": "", "starts": 4, "failed_starts": 1, "crashes": 0, "last_at_ms": 0}
    >>> _counts(ProgramHealth(**fields, last_code="peer.hangup"))
    'health: 4 starts, 1 failed, 0 crashes, last error peer.hangup'
    """
    last_error = "" if its.last_code is None else f", last error {its.last_code}"
    return f"health: {its.starts} starts, {its.failed_starts} failed, {its.crashes} crashes{last_error}"


def _model() -> DoctorFinding:
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if not missing:
        return DoctorFinding(name="scripted model", status="ok", what="available")
    what = f"not available: {' and '.join(missing)} not installed"
    return DoctorFinding(name="scripted model", status="warn", what=what, todo=install_command("model"))


def _logins(config: Config) -> DoctorFinding:
    found = find_logins(config)
    is_any = any(each.is_there for each in found)
    return DoctorFinding(
        name="logins",
        status="ok" if is_any else "warn",
        what="found for a real model" if is_any else "none: only the scripted model can be used",
        more=tuple(f"{each.login}: {each.what}" for each in found),
        facts={"logins": [msgspec.to_builtins(each) for each in found]},
    )


def _writable(name: str, place: Callable[[], Path]) -> DoctorFinding:
    """Check that a folder can be written, by writing: permission bits do not show a read-only or full disk."""
    folder = place()
    full = folder.absolute()
    there = _nearest(full)
    if not there.is_dir():
        what = f"{there} is a file, not a folder"
        return DoctorFinding(name=name, status="fail", what=what, todo=f"Choose another folder with {_CHOICE[name]}.")
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"trial")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        what = f"{there} cannot be written to: {error.strerror}"
        return DoctorFinding(name=name, status="fail", what=what, todo=_advice(name))
    note = "" if there == full else " (will be created)"
    return DoctorFinding(
        name=name, status="ok", what=f"{folder}{note}", facts={"dir": str(folder), "isThere": not note}
    )


def _advice(name: str) -> str:
    return f"Change its permissions, or choose another folder with {_CHOICE[name]}."


def _nearest(full: Path) -> Path:
    """Return the path, or the nearest folder above it that exists and can be seen."""
    return next(each for each in (full, *full.parents) if os.path.exists(each))  # noqa: PTH110  Path.exists raises if access is denied


def _disk(root: Path) -> DoctorFinding:
    free = shutil.disk_usage(_nearest(root.absolute())).free
    status: Literal["ok", "warn", "fail"] = "fail" if free < _FULL_BYTES else "warn" if free < _LOW_BYTES else "ok"
    todo = None if status == "ok" else CODES["machine.disk-full"].todo
    return DoctorFinding(
        name="disk", status=status, what=f"{free / (1 << 30):.1f} GiB free", todo=todo, facts={"freeBytes": free}
    )


def _leftovers() -> DoctorFinding:
    reaped = reap_leftovers(places.spawns_dir())
    killed = [each for each in reaped if each.killed]
    alive = [each for each in reaped if not each.is_gone]
    facts = {"reaped": [msgspec.to_builtins(each) for each in reaped]}
    if alive:
        todo = "Kill them yourself; they may belong to another user."
        return DoctorFinding(
            name="leftovers",
            status="fail",
            what="processes of dead runs could not be killed",
            more=_describe_spawns(alive),
            todo=todo,
            facts=facts,
        )
    if not killed:
        return DoctorFinding(name="leftovers", status="ok", what="no process of a dead run is left", facts=facts)
    pids = sum(len(each.killed) for each in killed)
    return DoctorFinding(
        name="leftovers",
        status="ok",
        what=f"killed processes of dead runs: {pids}",
        more=_describe_spawns(killed),
        facts=facts,
    )


def _describe_spawns(spawns: list[ReapResult]) -> tuple[str, ...]:
    return tuple(f"{', '.join(map(str, each.killed))}: {' '.join(each.argv)[:120]}" for each in spawns)


def _scratch() -> DoctorFinding:
    runs = scratch_of_runs()
    sizes = {folder.name: size_of(folder) for folder in runs.iterdir()} if runs.is_dir() else {}
    swept = sweep(runs)
    parts = [
        f"{len(names)} {word} ({sum(sizes.get(name, 0) for name in names) / 1e6:.1f} MB)"
        for names, word in (
            (swept.removed, "of dead runs deleted"),
            (swept.busy, "in use"),
            (swept.kept, "kept with --keep-scratch or `keep`"),
            (swept.refused, "could not be deleted"),
        )
        if names
    ]
    facts = {
        "removed": swept.removed,
        "busy": swept.busy,
        "kept": swept.kept,
        "refused": swept.refused,
        "sizeBytes": sizes,
    }
    todo = CODES["machine.unwritable"].todo if swept.refused else None
    status: Literal["ok", "warn"] = "warn" if swept.refused else "ok"
    return DoctorFinding(name="scratch", status=status, what=", ".join(parts) or "none", todo=todo, facts=facts)


def _trials() -> Iterator[DoctorFinding]:
    """List what campaigns keep of trials that wait to be continued, if any do."""
    try:
        found = list(find_kept())
    except MachineError:
        return  # the check of the state folder reports it
    kept = {
        str(folder): None if owner is None else str(RootPaths(Path(owner.root)).campaign(owner.campaign_id).folder)
        for folder, owner in found
    }
    if not kept:
        return
    lost = [folder for folder, campaign in kept.items() if campaign is None or not Path(campaign).is_dir()]
    size_mb = size_of(*map(Path, kept)) / 1e6
    what = f"{plural(len(kept), 'campaign')} with trials that wait to be continued ({size_mb:.1f} MB)"
    yield DoctorFinding(
        name="trials",
        status="warn" if lost else "ok",
        what=what,
        more=tuple(f"{folder}: its campaign does not exist" for folder in lost),
        todo="Delete these folders, unless their evidence root is on a disk that is not mounted." if lost else None,
        facts={"campaigns": kept},
    )
