"""Which logins there are on this machine, by name and never by value."""

import os

import msgspec

from proctor.config.model import Config
from proctor.ids import StrategyId
from proctor.runtime.credential import Account, login_fault
from proctor.runtime.registry import runtime_by_id, strategy_ids
from proctor.spec.model import Login


class FoundLogin(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One way to log in: what is there, or what is missing and what to do about it."""

    login: Login
    is_there: bool
    what: str


def find_logins(config: Config) -> tuple[FoundLogin, ...]:
    """Keys by their variables; each agent program's own login, and the token that it takes."""
    keys = sorted(name for name, value in os.environ.items() if name.endswith("_API_KEY") and value.strip())
    found = [
        FoundLogin(
            login=Login.API_KEY,
            is_there=bool(keys),
            what=f"set: {', '.join(keys)}" if keys else "no key: set the provider's variable, such as OPENAI_API_KEY",
        )
    ]
    # Runtimes of one program have one account.
    each = (_account(strategy, config) for strategy in strategy_ids(config))
    accounts = dict.fromkeys(account for account in each if account is not None)
    for account in accounts:
        file, token = account.file(os.environ), account.token_variable
        fault, has_token = login_fault(file), bool(os.environ.get(token, "").strip())
        found += [
            FoundLogin(
                login=Login.INHERIT,
                is_there=fault is None,
                what=f"{account.provider}: {file}" if fault is None else f"{fault}: run `{account.command}`",
            ),
            FoundLogin(
                login=Login.TOKEN,
                is_there=has_token,
                what=f"{account.provider}: {token} is set; `token: {token}` names it"
                if has_token
                else f"{token} is not set; `token:` may name any other variable, or a file",
            ),
        ]
    return tuple(found)


def _account(strategy: StrategyId, config: Config) -> Account | None:
    try:
        return runtime_by_id(strategy, config).account
    except Exception:  # a plugin may do anything; what is wrong with it is told where programs are
        return None
