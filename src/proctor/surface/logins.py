"""Find the logins available on this machine. Only names are reported, never values."""

import os

import msgspec

from proctor.config.model import Config
from proctor.ids import RuntimeId
from proctor.runtime.credential import Account, login_problem
from proctor.runtime.registry import runtime_by_id, runtime_ids
from proctor.spec.choices import Login


class FoundLogin(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One way to log in to a model provider."""

    login: Login
    """Kind of login, as a spec names it."""
    is_there: bool
    """Whether this machine has the login."""
    what: str
    """Which variable or file holds it; if it is missing, what to do."""


def find_logins(config: Config) -> tuple[FoundLogin, ...]:
    """Return API keys by their variables, then the login and the token of each agent program's account."""
    keys = sorted(name for name, value in os.environ.items() if name.endswith("_API_KEY") and value.strip())
    logins = [
        FoundLogin(
            login=Login.API_KEY,
            is_there=bool(keys),
            what=f"set: {', '.join(keys)}" if keys else "no key: set the provider's variable, such as OPENAI_API_KEY",
        )
    ]
    # Runtimes of one agent program share an account.
    accounts = dict.fromkeys(_account(runtime_id, config) for runtime_id in runtime_ids(config))
    for account in accounts:
        if account is None:
            continue
        file, token = account.file(os.environ), account.token_variable
        finding, has_token = login_problem(file), bool(os.environ.get(token, "").strip())
        logins += [
            FoundLogin(
                login=Login.INHERIT,
                is_there=finding is None,
                what=f"{account.provider}: {file}" if finding is None else f"{finding}: run `{account.command}`",
            ),
            FoundLogin(
                login=Login.TOKEN,
                is_there=has_token,
                what=f"{account.provider}: {token} is set; `token: {token}` names it"
                if has_token
                else f"{token} is not set; `token:` may name any other variable, or a file",
            ),
        ]
    return tuple(logins)


def _account(runtime_id: RuntimeId, config: Config) -> Account | None:
    try:
        return runtime_by_id(runtime_id, config).account
    except Exception:  # a plugin may raise anything; the check of the programs reports it
        return None
