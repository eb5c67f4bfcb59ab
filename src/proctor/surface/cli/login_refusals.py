"""Find the logins that a provider refused in a run, and the line of the spec that configures each."""

from collections.abc import Mapping
from typing import Any

from proctor import decoding
from proctor.campaign.run import CampaignResult
from proctor.config.load import load_config
from proctor.errors import InputError
from proctor.event.credential import CredentialState
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import RunnerRef
from proctor.evidence.layout import RootPaths
from proctor.evidence.reader import read_bytes
from proctor.ids import RuntimeId
from proctor.runtime.registry import runtime_by_id
from proctor.spec.check_login import inherited_key
from proctor.spec.choices import Login
from proctor.spec.load import LoadedSpec


def refused_logins(loaded: LoadedSpec, result: CampaignResult, *, root: RootPaths) -> tuple[InputError, ...]:
    """Return one error per flow whose login was refused."""
    failed = {each.attempt_id for each in result.attempts if each.summary and each.summary.outcome is Outcome.FAILED}
    errors: dict[int, InputError] = {}
    for paths in root.run(result.run_id).attempts():
        if paths.folder.name not in failed:
            continue
        ref = decoding.decode(read_bytes(paths.runner_ref), RunnerRef)
        facts = ref.facts
        if facts["credentialState"].value == CredentialState.REJECTED:
            flow = paths.folder.name.split(".")[1]
            at = next(number for number, each in enumerate(loaded.spec.flows) if each.id == flow)
            errors.setdefault(at, _refusal(loaded, at, runtime_id=ref.runtime_id, used=facts["credentialInput"].value))
    return tuple(errors.values())


def _refusal(loaded: LoadedSpec, at: int, *, runtime_id: RuntimeId, used: Mapping[str, Any]) -> InputError:
    source = used["from"]
    provider = (loaded.spec.flows[at].model or loaded.spec.model).provider
    key = inherited_key(loaded.spec, at, "login")
    todo = f"Check that {source} holds a complete credential for {provider} that has not expired."
    if used["login"] == Login.INHERIT:
        account = runtime_by_id(runtime_id, load_config(loaded.folder)).account
        todo = todo if account is None else f"Run `{account.command}`, then try again."
    return InputError(
        "policy.login-refused",
        f"{provider} refused the credential from {source}",
        file=loaded.file,
        line=loaded.line_of(key),
        key=key,
        suggestion=todo,
    )
