"""The logins of a campaign's flows: each found before anything runs, one process for all that share the user's own."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.campaign.locate_error import blamed
from proctor.errors import InputError
from proctor.ids import FlowId, RuntimeId
from proctor.plan.model import ResolvedFlow
from proctor.runtime.base import Runtime
from proctor.runtime.credential import NO_CREDENTIAL, Account, Credential, find_credential
from proctor.runtime.environment import Environment, agent_environment
from proctor.runtime.resolve import Candidate
from proctor.spec.check_login import inherited_key
from proctor.spec.load import LoadedSpec
from proctor.spec.model import Login, Profile, SecretFile

Place = tuple[FlowId, RuntimeId]
"""A flow as far as it runs on one of the runtimes of its chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLogin:
    """A login that is to be had, and the user's own home of the agent's program where the flow needs that."""

    credential: Credential
    user_home: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowIdentity:
    """Who a flow's agent is to others: its login, its environment, the user's own home where it needs that.

    `process` is the place in whose process it runs: its own, unless several flows share the user's login.
    """

    credential: Credential
    environment: Environment
    user_home: Path | None
    process: Place

    def keys(self, flow: ResolvedFlow, runtime_id: RuntimeId) -> tuple[str, ...]:
        """What an attempt of its flow's counts against on that runtime."""
        shared = credential_key(self.credential)
        keys = (f"runtime:{runtime_id}", f"provider:{flow.model.provider}")
        return keys if shared is None else (*keys, shared)


def credential_key(credential: Credential) -> str | None:
    """Where it comes from, which is one for all who share it; never what it is. None where there is none."""
    source = credential.source_variable or credential.source
    return None if source is None else f"credential:{source}"


def find_login(loaded: LoadedSpec, at: int, flow: ResolvedFlow, runtime: Runtime) -> FlowLogin:
    """InputError, with its line, where it is not to be had."""
    credential = _credential(loaded, at, flow, runtime)
    with blamed(loaded, key=f"flows[{at}]"):
        return FlowLogin(credential=credential, user_home=_user_home(flow, runtime, credential))


def find_identities(
    loaded: LoadedSpec,
    flows: Sequence[ResolvedFlow],
    *,
    chains: Mapping[FlowId, Sequence[Candidate]],
    logins: Mapping[Place, FlowLogin],
) -> dict[Place, FlowIdentity]:
    """InputError, with its line, for the first variable that is refused, and for flows that cannot share a login."""
    variables = {name for found in logins.values() if (name := found.credential.source_variable) is not None}
    identities: dict[Place, FlowIdentity] = {}
    sharer: dict[Account | None, ResolvedFlow] = {}
    for at, flow in enumerate(flows):
        for candidate in chains[flow.id]:
            found = logins[flow.id, candidate.runtime_id]
            account = candidate.runtime.account
            first = sharer.setdefault(account, flow) if found.credential.login is Login.INHERIT else flow
            with blamed(loaded, key=f"flows[{at}]"):
                _refuse_different(flow, first)
                if _with_account(account, chains[flow.id]) != _with_account(account, chains[first.id]):
                    raise _unlike("runtime", first)
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
