"""The logins of a campaign's flows, found before anything runs. Flows with the user's own login share a process."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.campaign.locate_error import locate_errors
from proctor.errors import InputError
from proctor.ids import FlowId, RuntimeId
from proctor.plan.model import ResolvedFlow
from proctor.runtime.base import Runtime
from proctor.runtime.credential import NO_CREDENTIAL, Account, Credential, find_credential
from proctor.runtime.environment import Environment, agent_environment
from proctor.runtime.resolve import Candidate
from proctor.spec.campaign_options import SecretFile
from proctor.spec.check_login import inherited_key
from proctor.spec.choices import Login, Profile
from proctor.spec.load import LoadedSpec

Place = tuple[FlowId, RuntimeId]
"""A flow on one of the runtimes of its chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLogin:
    """An available login, and the user's own home folder of the agent program if the flow needs it."""

    credential: Credential
    user_home: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowIdentity:
    """A flow's login and environment, and the user's own home folder of the agent program if the flow needs it.

    `process` identifies the process it runs in: its own, or the first flow's if several share the user's login.
    """

    credential: Credential
    environment: Environment
    user_home: Path | None
    process: Place

    def keys(self, flow: ResolvedFlow, runtime_id: RuntimeId) -> tuple[str, ...]:
        """Return the keys of the limits that an attempt of the flow counts against on that runtime."""
        shared = credential_key(self.credential)
        keys = (f"runtime:{runtime_id}", f"provider:{flow.model.provider}")
        return keys if shared is None else (*keys, shared)


def credential_key(credential: Credential) -> str | None:
    """Return the key of the limit for a credential: its source, never its value. None without a credential."""
    source = credential.source_variable or credential.source
    return None if source is None else f"credential:{source}"


def find_login(loaded: LoadedSpec, at: int, flow: ResolvedFlow, runtime: Runtime) -> FlowLogin:
    """Find the login of a flow on a runtime. Raises InputError, with its line, if it is not available."""
    credential = _credential(loaded, at, flow, runtime)
    with locate_errors(loaded, key=f"flows[{at}]"):
        return FlowLogin(credential=credential, user_home=_user_home(flow, runtime, credential))


def find_identities(
    loaded: LoadedSpec,
    flows: Sequence[ResolvedFlow],
    *,
    chains: Mapping[FlowId, Sequence[Candidate]],
    logins: Mapping[Place, FlowLogin],
) -> dict[Place, FlowIdentity]:
    """Return the identity of each flow on each runtime of its chain.

    Raises InputError, with its line, for the first refused variable and for flows that cannot share a login.
    """
    variables = {name for found in logins.values() if (name := found.credential.source_variable) is not None}
    identities: dict[Place, FlowIdentity] = {}
    sharer: dict[Account | None, ResolvedFlow] = {}
    for at, flow in enumerate(flows):
        for candidate in chains[flow.id]:
            found = logins[flow.id, candidate.runtime_id]
            account = candidate.runtime.account
            first = sharer.setdefault(account, flow) if found.credential.login is Login.INHERIT else flow
            with locate_errors(loaded, key=f"flows[{at}]"):
                _refuse_different(flow, first)
                if _with_account(account, chains[flow.id]) != _with_account(account, chains[first.id]):
                    raise _difference_error("runtime", first)
                environment = agent_environment(
                    os.environ,
                    env=flow.env,
                    forward=flow.forward,
                    credential=found.credential.variables,
                    profile={"HOME": str(Path.home())} if flow.profile is Profile.MINE else {},
                    logins=variables,
                )
            identities[flow.id, candidate.runtime_id] = FlowIdentity(
                credential=found.credential,
                environment=environment,
                user_home=found.user_home,
                process=(first.id, candidate.runtime_id),
            )
    return identities


def _with_account(account: Account | None, chain: Sequence[Candidate]) -> list[RuntimeId]:
    return [candidate.runtime_id for candidate in chain if candidate.runtime.account == account]


def _credential(loaded: LoadedSpec, at: int, flow: ResolvedFlow, runtime: Runtime) -> Credential:
    if flow.model.is_scripted:
        return NO_CREDENTIAL
    token = flow.token
    key = "token" if flow.login is Login.TOKEN else "login"
    with locate_errors(loaded, key=inherited_key(loaded.spec, at, key)):
        return find_credential(
            flow.login,
            provider=flow.model.provider,
            token=loaded.folder / Path(token.file).expanduser() if isinstance(token, SecretFile) else token,
            account=runtime.account,
            profile=flow.profile,
            environ=os.environ,
        )


def _user_home(flow: ResolvedFlow, runtime: Runtime, credential: Credential) -> Path | None:
    """Return the user's own home folder of the agent program, for a flow that needs it."""
    if flow.profile is not Profile.MINE and credential.login is not Login.INHERIT:
        return None
    if runtime.account is None:
        raise InputError("policy.login", f"{runtime.id} cannot use your own profile", key="profile")
    home = runtime.account.home(os.environ)
    if not home.is_dir():
        suggestion = f"Run `{runtime.account.command}`, or leave `profile` out."
        raise InputError("policy.login", f"there is no {home}", key="profile", suggestion=suggestion)
    return home.absolute()


def _refuse_different(flow: ResolvedFlow, first: ResolvedFlow) -> None:
    """Raise InputError if two flows that share a process differ in something a process is started with."""
    for key in ("env", "forward", "profile", "contain"):
        if getattr(flow, key) != getattr(first, key):
            raise _difference_error(key, first)
    if flow.model.base_url != first.model.base_url:
        raise _difference_error("model", first)


def _difference_error(key: str, first: ResolvedFlow) -> InputError:
    return InputError(
        "policy.login",
        f"this flow and `{first.id}` share your own login, and so one process, but differ in `{key}`",
        key=key,
        suggestion="Use the same value in both, use another login in one of them, or run them in two campaigns.",
    )
