"""The logins that a provider refused in a run, each with the line of the spec that asks for it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from proctor.campaign.run import CampaignResult
from proctor.errors import InputError
from proctor.event.credential import CredentialState
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import RunnerRef
from proctor.evidence.layout import RootPaths
from proctor.evidence.reader import read_bytes
from proctor.runtime.registry import runtime_by_id
from proctor.spec.check_login import inherited_key
from proctor.spec.load import LoadedSpec
from proctor.spec.model import Login


def refused_logins(loaded: LoadedSpec, result: CampaignResult, *, root: RootPaths) -> tuple[InputError, ...]:
    """One for each flow."""
    failed = {each.attempt_id for each in result.attempts if each.report and each.report.outcome is Outcome.FAILED}
    told: dict[int, InputError] = {}
    for paths in root.run(result.run_id).attempts():
        if paths.folder.name not in failed:
            continue
        facts = msgspec.json.decode(read_bytes(paths.runner_ref), type=RunnerRef).facts
        if facts["credentialState"].value == CredentialState.REJECTED:
            flow = paths.folder.name.split(".")[1]
            at = next(number for number, each in enumerate(loaded.spec.flows) if each.id == flow)
            told.setdefault(at, _refusal(loaded, at, used=facts["credentialInput"].value))
    return tuple(told.values())


def _refusal(loaded: LoadedSpec, at: int, *, used: Mapping[str, Any]) -> InputError:
    source = used["from"]
    provider = (loaded.spec.flows[at].model or loaded.spec.model).provider
    key = inherited_key(loaded.spec, at, "login")
    todo = f"See that {source} holds a credential of {provider}'s, whole and not expired."
    if used["login"] == Login.INHERIT:
        accounts = (runtime_by_id(strategy).account for strategy in loaded.spec.flows[at].runtime)
        command = next((account.command for account in accounts if account is not None), None)
        todo = f"Run `{command}`, then try again." if command else todo
    return InputError(
        "policy.login-refused",
        f"{provider} refused the credential from {source}",
        file=loaded.file,
        line=loaded.line_of(key),
        key=key,
        suggestion=todo,
    )
