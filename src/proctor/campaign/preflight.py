"""What must be right before anything runs: programs, containment, environment, credentials."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proctor import places
from proctor.campaign.blame import blamed
from proctor.campaign.logins import Identity, find_identities
from proctor.campaign.scratch import scratch_of_runs, sweep
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.ladder import Containment, choose, survey
from proctor.contain.reap import reap_leftovers
from proctor.errors import InputError
from proctor.evidence import canary
from proctor.evidence.secrets import Secret, find_secrets
from proctor.ids import FlowId
from proctor.model.script import Script, load_script
from proctor.plan.expand import resolve_flow
from proctor.plan.model import ResolvedFlow
from proctor.runtime.base import Runtime
from proctor.runtime.credential import Credential
from proctor.runtime.environment import refuse_tmpdir_above
from proctor.runtime.registry import strategy_ids
from proctor.runtime.resolve import Resolution, resolve
from proctor.spec.load import LoadedSpec
from proctor.spec.model import Login


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What a run starts from. The canary is one of the secrets."""

    secrets: tuple[Secret, ...]
    canary: Secret
    containment: Containment
    resolutions: Mapping[FlowId, Resolution]
    identities: Mapping[FlowId, Identity]
    scripts: Mapping[str, Script]


def preflight(loaded: LoadedSpec) -> Ready:
    """Raises what is wrong; ends what an earlier Proctor left running, and removes its scratch."""
    scripts = {written: load_script(path) for written, path in loaded.scripts.items()}
    flows = [resolve_flow(flow, spec=loaded.spec) for flow in loaded.spec.flows]
    resolutions = {flow.id: _resolve(at, flow, loaded) for at, flow in enumerate(flows)}
    runtimes = {id_: resolution.runtime for id_, resolution in resolutions.items()}
    identities = find_identities(loaded, flows, runtimes)
    secrets = _secrets(loaded, runtimes.values(), [each.credential for each in identities.values()])
    planted = canary.plant()
    reap_leftovers(places.state_dir() / "spawns")
    # What cannot be looked at now is told by `doctor`: it must not keep another run from starting.
    with suppress(OSError):
        sweep(scratch_of_runs())
    return Ready(
        secrets=(*secrets, planted),
        canary=planted,
        containment=choose(survey(bundled_bwrap=bundled_bwrap())),
        resolutions=resolutions,
        identities=identities,
        scripts=scripts,
    )


def _secrets(loaded: LoadedSpec, runtimes: Iterable[Runtime], credentials: Sequence[Credential]) -> tuple[Secret, ...]:
    spec = loaded.spec
    ids = (spec.campaign, *(mission.id for mission in spec.missions), *(flow.id for flow in spec.flows))
    words = {*ids, *strategy_ids(), *(word for runtime in runtimes for word in runtime.words)}
    names = [secret for secret in spec.secrets if isinstance(secret, str)]
    names += [each.source_variable for each in credentials if each.login is Login.TOKEN and each.source_variable]
    files = [*loaded.secret_files, *(each.file for each in credentials if each.file is not None)]
    with blamed(loaded):
        return find_secrets(os.environ, declared=names, files=list(dict.fromkeys(files)), words=words)


def _resolve(at: int, flow: ResolvedFlow, loaded: LoadedSpec) -> Resolution:
    with blamed(loaded, key=f"flows[{at}].runtime"):
        resolution = resolve(flow.runtime, options=flow.options)
    runtime = resolution.runtime
    with blamed(loaded, key=f"flows[{at}].options.{runtime.id}"):
        for name in sorted(flow.options.get(runtime.id, {}).keys() - runtime.option_names):
            known = ", ".join(sorted(runtime.option_names)) or "none"
            raise InputError("spec.unknown-key", f"{runtime.id} has no option {name!r}; it has: {known}")
        runtime.check_options(flow.options.get(runtime.id, {}))
    asked = (*((f"env.{name}", name) for name in flow.env), *((f"forward[{n}]", x) for n, x in enumerate(flow.forward)))
    for key, name in asked:
        if name in runtime.reserved_variables:
            with blamed(loaded, key=f"flows[{at}].{key}"):
                raise InputError("policy.reserved-variable", f"{runtime.id} sets {name} itself")
    if "TMPDIR" in flow.env:
        with blamed(loaded, key=f"flows[{at}].env.TMPDIR"):
            refuse_tmpdir_above(scratch_of_runs() / "any-run", Path(flow.env["TMPDIR"]))
    return resolution
