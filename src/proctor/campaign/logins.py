"""The logins of a campaign's flows: each found before anything runs, one process for all that share the user's own."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.campaign.blame import blamed
from proctor.errors import InputError
from proctor.ids import FlowId
from proctor.plan.model import ResolvedFlow
from proctor.runtime.base import Runtime
from proctor.runtime.credential import NO_CREDENTIAL, Account, Credential, find_credential
from proctor.runtime.environment import Environment, agent_environment
from proctor.spec.check_login import inherited_key
from proctor.spec.load import LoadedSpec
from proctor.spec.model import Login, Profile, SecretFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a flow's agent is to others: its login, its environment, the user's own home where it needs that.

    `process` is the flow in whose process it runs: its own, unless several share the user's login.
    """

    credential: Credential
    environment: Environment
    user_home: Path | None
    process: FlowId


def find_identities(
    loaded: LoadedSpec, flows: Sequence[ResolvedFlow], runtimes: Mapping[FlowId, Runtime]
) -> dict[FlowId, Identity]:
    """InputError, with its line, for the first login that is not to be had and the first variable that is refused."""
    credentials = [_credential(loaded, at, flow, runtimes[flow.id]) for at, flow in enumerate(flows)]
    variables = {name for credential in credentials if (name := credential.source_variable) is not None}
    found: dict[FlowId, Identity] = {}
    sharer: dict[Account | None, ResolvedFlow] = {}
    for at, (flow, credential) in enumerate(zip(flows, credentials, strict=True)):
        runtime = runtimes[flow.id]
        first = sharer.setdefault(runtime.account, flow) if credential.login is Login.INHERIT else flow
        with blamed(loaded, key=f"flows[{at}]"):
            _refuse_different(flow, first)
            if runtimes[first.id].id != runtime.id:
                raise _unlike("runtime", first)
            found[flow.id] = Identity(
                credential=credential,
                environment=agent_environment(
                    os.environ,
                    env=flow.env,
                    forward=flow.forward,
                    credential=credential.given,
                    profile={"HOME": str(Path.home())} if flow.profile is Profile.MINE else {},
                    logins=variables,
                ),
                user_home=_user_home(flow, runtime, credential),
                process=first.id,
            )
    return found


def _credential(loaded: LoadedSpec, at: int, flow: ResolvedFlow, runtime: Runtime) -> Credential:
    if flow.model.is_scripted:
        return NO_CREDENTIAL
    token = flow.token
    key = "token" if flow.login is Login.TOKEN else "login"
    with blamed(loaded, key=inherited_key(loaded.spec, at, key)):
        return find_credential(
            flow.login,
            provider=flow.model.provider,
            token=loaded.folder / Path(token.file).expanduser() if isinstance(token, SecretFile) else token,
            account=runtime.account,
            profile=flow.profile,
            environ=os.environ,
        )


def _user_home(flow: ResolvedFlow, runtime: Runtime, credential: Credential) -> Path | None:
    """The user's own home of the agent's program, for a flow that needs it."""
    if flow.profile is not Profile.MINE and credential.login is not Login.INHERIT:
        return None
    if runtime.account is None:
        raise InputError("policy.login", f"{runtime.id} has no profile of yours", key="profile")
    home = runtime.account.home(os.environ)
    if not home.is_dir():
        suggestion = f"Run `{runtime.account.command}`, or leave `profile` out."
        raise InputError("policy.login", f"there is no {home}", key="profile", suggestion=suggestion)
    return home.absolute()


def _refuse_different(flow: ResolvedFlow, first: ResolvedFlow) -> None:
    """Flows that share the user's login share one process, and so all that a process is started with."""
    for key in ("env", "forward", "profile"):
        if getattr(flow, key) != getattr(first, key):
            raise _unlike(key, first)
    if flow.model.base_url != first.model.base_url:
        raise _unlike("model", first)


def _unlike(key: str, first: ResolvedFlow) -> InputError:
    return InputError(
        "policy.login",
        f"this flow and `{first.id}` share your own login, and so one process, but differ in `{key}`",
        key=key,
        suggestion="Make them alike, use another login in one of them, or run them in two campaigns.",
    )
