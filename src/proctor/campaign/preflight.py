"""Checks before anything runs: programs, containment, environment, credentials."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import anyio.to_thread

from proctor import places
from proctor.campaign.examine_programs import ProgramExaminer
from proctor.campaign.flow_engines import FlowEngine, find_flow_engines
from proctor.campaign.hiding import AgentSight, find_judging_paths, find_sight, why_not_enforced
from proctor.campaign.locate_error import locate_errors
from proctor.campaign.logins import FlowIdentity, FlowLogin, Place, find_identities, find_login
from proctor.campaign.scratch import scratch_of_runs, sweep
from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.config.load import load_config
from proctor.config.model import Config
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.ladder import Containment, choose, survey
from proctor.contain.reap import reap_leftovers
from proctor.errors import InputError, MachineError
from proctor.evidence import tripwire
from proctor.evidence.health import ProgramHealth, ProgramKey, read_health
from proctor.evidence.layout import RootPaths
from proctor.evidence.proofs import read_proofs
from proctor.evidence.secrets import Secret, find_secrets
from proctor.ids import FlowId
from proctor.model.dialects import Dialects, load_dialects
from proctor.model.script import Script, load_script
from proctor.plan.expand import resolve_flow
from proctor.plan.model import ResolvedFlow
from proctor.runtime.base import Runtime
from proctor.runtime.credential import Credential
from proctor.runtime.environment import refuse_tmpdir_above
from proctor.runtime.registry import offers
from proctor.runtime.resolve import Candidate, ExamineProgram, Link, RefusedRuntime, links, none_left, prefer_healthy
from proctor.runtime.rollout import check_config
from proctor.spec.choices import Login
from proctor.spec.load import LoadedSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightResult:
    """What a run starts from. The tripwire is one of the secrets; `warnings` are for the user."""

    secrets: tuple[Secret, ...]
    tripwire: Secret
    containment: Containment
    chains: Mapping[FlowId, tuple[Link, ...]]
    identities: Mapping[Place, FlowIdentity]
    sights: Mapping[Place, AgentSight]
    scripts: Mapping[str, Script]
    dialects: Dialects
    """What scripts may use. Empty if no flow has a scripted model."""
    engines: Mapping[FlowId, FlowEngine]
    """The context engines of the flows that have one."""
    warnings: tuple[str, ...] = ()


async def preflight(
    loaded: LoadedSpec,
    *,
    root: Path | None = None,
    clock: Clock = SYSTEM_CLOCK,
    secrets: Mapping[str, str] | None = None,
    is_conversation: bool = False,
) -> PreflightResult:
    """Check that the spec can run on this machine. Raises ProctorError if it cannot.

    `secrets` are values to mask by name, besides those of the spec and of the environment. `is_conversation` means that
    nothing judges the agents, and that they may work in the spec's folder.

    Runs the agent programs for their version and protocol. Also ends processes that an earlier Proctor left running,
    and removes its scratch. The agents' health so far is read from the evidence root.
    """
    examine = ProgramExaminer().examine_from_thread
    # In a thread: hashing programs, testing containment and ending leftover processes may take a while.
    return await anyio.to_thread.run_sync(
        lambda: _check(
            loaded, root=root, clock=clock, examine=examine, given=secrets or {}, is_conversation=is_conversation
        )
    )


def _check(
    loaded: LoadedSpec,
    *,
    root: Path | None,
    clock: Clock,
    examine: ExamineProgram,
    given: Mapping[str, str],
    is_conversation: bool,
) -> PreflightResult:
    scripts = {written: load_script(path) for written, path in loaded.scripts.items()}
    flows = [resolve_flow(flow, spec=loaded.spec) for flow in loaded.spec.flows]
    config = load_config(loaded.folder)
    check_config(config)
    joining = ChainBuilder(loaded, config=config, health=_health(root), now_ms=clock.wall_ms(), examine=examine)
    chains = {flow.id: joining.chain(at, flow) for at, flow in enumerate(flows)}
    candidates = {id_: [link for link in chain if isinstance(link, Candidate)] for id_, chain in chains.items()}
    identities = find_identities(loaded, flows, chains=candidates, logins=joining.logins)
    runtimes = [candidate.runtime for chain in candidates.values() for candidate in chain]
    engines = find_flow_engines(loaded, flows, config=config, chains=candidates)
    secrets = secrets_of(loaded, runtimes, [each.credential for each in identities.values()], given=given)
    planted = tripwire.plant()
    reap_leftovers(places.spawns_dir())
    # Scratch that cannot be read is reported by `doctor`; it must not keep a run from starting.
    with suppress(OSError):
        sweep(scratch_of_runs())
    containment = choose(survey(bundled_bwrap=bundled_bwrap()))
    judging = find_judging_paths(loaded, root=root, hidden=loaded.overlays.values(), is_conversation=is_conversation)
    sights = {}
    for at, flow in enumerate(flows):
        with locate_errors(loaded, key=f"flows[{at}]"):
            for candidate in candidates[flow.id]:
                _refuse_seen_overlay(loaded, candidate.runtime, flow, containment)
                place = flow.id, candidate.runtime_id
                sights[place] = find_sight(
                    judging,
                    flow=flow,
                    containment=containment,
                    program=candidate.executable,
                    options=flow.options.get(candidate.runtime_id, {}),
                    env=identities[place].environment.values,
                    user_home=identities[place].user_home,
                )
    return PreflightResult(
        secrets=(*secrets, planted),
        tripwire=planted,
        containment=containment,
        chains=chains,
        identities=identities,
        sights=sights,
        scripts=scripts,
        dialects=load_dialects(config) if any(flow.model.is_scripted for flow in flows) else {},
        engines=engines,
        warnings=tuple(dict.fromkeys(joining.warnings)),
    )


def _refuse_seen_overlay(loaded: LoadedSpec, runtime: Runtime, flow: ResolvedFlow, containment: Containment) -> None:
    """Raise InputError if a mission has hidden files that the agent of a flow could see."""
    why = why_not_enforced(runtime, flow, containment)
    for mission in loaded.missions if why is not None else ():
        if mission.overlay is not None:
            what = f"mission `{mission.id}` has hidden files, and flow `{flow.id}` cannot hide them: {why}"
            raise InputError("policy.hidden-files", what)


def _health(root: Path | None) -> Mapping[ProgramKey, ProgramHealth]:
    # An unreadable health file is reported by `doctor` as well.
    with suppress(MachineError):
        return {} if root is None else read_health(RootPaths(root).health)
    return {}


def secrets_of(
    loaded: LoadedSpec,
    runtimes: Iterable[Runtime],
    credentials: Sequence[Credential],
    *,
    given: Mapping[str, str] | None = None,
) -> tuple[Secret, ...]:
    """Return the secrets to mask; `given` are more values by name.

    Raises InputError, with its place, if a declared one does not exist.
    """
    spec = loaded.spec
    ids = (spec.campaign, *(mission.id for mission in loaded.missions), *(flow.id for flow in spec.flows))
    words = {*ids, *offers(), *(word for runtime in runtimes for word in runtime.protocol_words)}
    given = given or {}
    names = [secret for secret in spec.secrets if isinstance(secret, str) and secret not in given]
    names += [each.source_variable for each in credentials if each.login is Login.TOKEN and each.source_variable]
    files = [*loaded.secret_files, *(each.file for each in credentials if each.file is not None)]
    with locate_errors(loaded):
        found = find_secrets(os.environ, declared=names, files=list(dict.fromkeys(files)), words=words)
        # Not merged into the environment: a variable of the same name may have another value, which is secret too.
        more = find_secrets(given, declared=list(given), words=words)
    known = {secret.value for secret in found}
    return (*found, *(secret for secret in more if secret.value not in known))


class ChainBuilder:
    """Builds the runtime chain of each flow, and finds the logins of the runtimes that may be used."""

    def __init__(
        self,
        loaded: LoadedSpec,
        *,
        config: Config,
        health: Mapping[ProgramKey, ProgramHealth],
        now_ms: int,
        examine: ExamineProgram,
    ) -> None:
        self._loaded = loaded
        self._config = config
        self._health = health
        self._now_ms = now_ms
        self._examine = examine
        self._read_proofs = cache(lambda: read_proofs(places.state_dir()))
        self.logins: dict[Place, FlowLogin] = {}
        self.warnings: list[str] = []

    def chain(self, at: int, flow: ResolvedFlow) -> tuple[Link, ...]:
        """Return the runtime chain of a flow. Raises if no runtime of it may be used, or if the spec is wrong."""
        known = links(
            flow,
            config=self._config,
            check=lambda runtime: _check_flow(at, flow, runtime, self._loaded),
            examine=self._examine,
            proofs=self._read_proofs,
        )
        judged = [self._with_login(at, flow, link) for link in known]
        if (error := none_left(flow, judged)) is not None:
            if error.file is not None:
                raise error
            with locate_errors(self._loaded, key=f"flows[{at}].runtime"):
                raise error
        chain, warnings = prefer_healthy(judged, health=self._health, now_ms=self._now_ms)
        self.warnings += warnings
        return chain

    def _with_login(self, at: int, flow: ResolvedFlow, link: Link) -> Link:
        if isinstance(link, RefusedRuntime):
            return link
        try:
            self.logins[flow.id, link.runtime_id] = find_login(self._loaded, at, flow, link.runtime)
        except InputError as error:
            return RefusedRuntime(runtime_id=link.runtime_id, error=error)
        return link


def _check_flow(at: int, flow: ResolvedFlow, runtime: Runtime, loaded: LoadedSpec) -> None:
    """Raise InputError if the flow uses options or variables that the runtime does not accept."""
    with locate_errors(loaded, key=f"flows[{at}].options.{runtime.id}"):
        for name in sorted(flow.options.get(runtime.id, {}).keys() - runtime.option_names):
            known = ", ".join(sorted(runtime.option_names)) or "none"
            raise InputError("spec.unknown-key", f"{runtime.id} has no option {name!r}; it has: {known}")
        runtime.check_options(flow.options.get(runtime.id, {}))
    asked = (*((f"env.{name}", name) for name in flow.env), *((f"forward[{n}]", x) for n, x in enumerate(flow.forward)))
    for key, name in asked:
        if name in runtime.reserved_variables:
            with locate_errors(loaded, key=f"flows[{at}].{key}"):
                raise InputError("policy.reserved-variable", f"{runtime.id} sets {name} itself")
    if "TMPDIR" in flow.env:
        with locate_errors(loaded, key=f"flows[{at}].env.TMPDIR"):
            refuse_tmpdir_above(scratch_of_runs() / "any-run", Path(flow.env["TMPDIR"]))
