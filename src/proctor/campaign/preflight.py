"""What must be right before anything runs: programs, containment, environment, credentials."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from proctor import places
from proctor.campaign.scratch import scratch_of_runs
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
from proctor.runtime.environment import agent_environment, refuse_tmpdir_above
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
    environments: Mapping[FlowId, Mapping[str, str]]
    key_variables: Mapping[FlowId, str | None]
    scripts: Mapping[str, Script]


def preflight(loaded: LoadedSpec) -> Ready:
    """Raises what is wrong; ends what an earlier Proctor left running."""
    scripts = {written: load_script(path) for written, path in loaded.scripts.items()}
    flows = [resolve_flow(flow, spec=loaded.spec) for flow in loaded.spec.flows]
    variables = {flow.id: _key_variable(flow, loaded) for flow in flows}
    resolutions = {flow.id: _resolve(flow, loaded) for flow in flows}
    environments = {flow.id: _environment(flow, loaded, key_variable=variables[flow.id]) for flow in flows}
    secrets = _secrets(loaded, resolutions.values())
    planted = canary.plant()
    reap_leftovers(places.state_dir() / "spawns")
    return Ready(
        secrets=(*secrets, planted),
        canary=planted,
        containment=choose(survey(bundled_bwrap=bundled_bwrap())),
        resolutions=resolutions,
        environments=environments,
        key_variables=variables,
        scripts=scripts,
    )


def _secrets(loaded: LoadedSpec, resolutions: Iterable[Resolution]) -> tuple[Secret, ...]:
    spec = loaded.spec
    ids = (spec.campaign, *(mission.id for mission in spec.missions), *(flow.id for flow in spec.flows))
    words = {*ids, *strategy_ids(), *(word for resolution in resolutions for word in resolution.runtime.words)}
    names = [secret for secret in spec.secrets if isinstance(secret, str)]
    try:
        return find_secrets(os.environ, declared=names, files=loaded.secret_files, words=words)
    except InputError as error:
        line = loaded.line_of("secrets")
        raise InputError(
            error.code, error.what, file=loaded.file, line=line, key="secrets", suggestion=error.suggestion
        ) from error


def _resolve(flow: ResolvedFlow, loaded: LoadedSpec) -> Resolution:
    with _blamed(flow, loaded, key="runtime"):
        resolution = resolve(flow.runtime)
    runtime = resolution.runtime
    with _blamed(flow, loaded, key=f"options.{runtime.id}"):
        for name in sorted(flow.options.get(runtime.id, {}).keys() - runtime.option_names):
            known = ", ".join(sorted(runtime.option_names)) or "none"
            raise InputError("spec.unknown-key", f"{runtime.id} has no option {name!r}; it has: {known}")
    with _blamed(flow, loaded, key="env"):
        for name in sorted(flow.env.keys() & runtime.reserved_variables):
            raise InputError("policy.reserved-variable", f"{runtime.id} sets {name} itself")
    return resolution


def _key_variable(flow: ResolvedFlow, loaded: LoadedSpec) -> str | None:
    """The variable that holds the flow's credential; None where it needs none."""
    model = flow.model
    if model.is_scripted:
        return None
    variable = f"{model.provider.upper().replace('-', '_')}_API_KEY"
    with _blamed(flow, loaded, key="id"):
        if model.name is None:
            raise InputError("spec.missing-key", f"{model.provider} is a real model and needs a name in `model.name`")
        if flow.login is not Login.API_KEY:
            raise InputError("policy.login", f"{model.provider} needs `login: api-key` and ${variable} set")
        if not os.environ.get(variable):
            raise InputError("policy.login", f"${variable} is not set")
    return variable


def _environment(flow: ResolvedFlow, loaded: LoadedSpec, *, key_variable: str | None) -> Mapping[str, str]:
    if "TMPDIR" in flow.env:
        with _blamed(flow, loaded, key="env"):
            refuse_tmpdir_above(scratch_of_runs() / "any-run", Path(flow.env["TMPDIR"]))
    return agent_environment(os.environ, added=flow.env, key_variable=key_variable)


@contextmanager
def _blamed(flow: ResolvedFlow, loaded: LoadedSpec, *, key: str) -> Iterator[None]:
    """Says which line of the spec an input error comes from."""
    try:
        yield
    except InputError as error:
        at = next(number for number, each in enumerate(loaded.spec.flows) if each.id == flow.id)
        path = f"flows[{at}].{key}"
        raise InputError(
            error.code, error.what, file=loaded.file, line=loaded.line_of(path), key=path, suggestion=error.suggestion
        ) from error
