"""Codex's login: where it is stored, how Codex takes a token, and whether it is used."""

from typing import Final

from proctor.errors import PeerError
from proctor.fact import UNKNOWN, Authority, Fact
from proctor.runtime.base import ModelChoice
from proctor.runtime.credential import Account
from proctor.spec.choices import Login

ACCOUNT: Final = Account(
    provider="openai",
    home_variable="CODEX_HOME",
    home_name=".codex",
    file_name="auth.json",
    command="codex login",
    token_variable="CODEX_ACCESS_TOKEN",  # noqa: S106 - a name
)


def uses_account(model: ModelChoice) -> bool:
    """Return whether Codex uses its own login instead of the key in a variable."""
    return model.login is Login.INHERIT or (model.login is Login.TOKEN and model.provider == ACCOUNT.provider)


def key_fact(model: ModelChoice) -> Fact:
    """Return the fact `credentialSource` for a model whose key is in a variable. Unknown if there is no key."""
    if model.key_variable is None:
        return UNKNOWN
    source = "the settings name the variable; Codex does not report whether it uses it"
    return Fact(value="explicit-api-key", authority=Authority.INFERRED, source=source)


def login_refused(model: ModelChoice) -> PeerError:
    """Return the error for a login that Codex does not accept. Codex would send requests without a credential."""
    is_inherited = model.login is Login.INHERIT
    what, todo = ("the user's login", "run `codex login`") if is_inherited else ("the token", "create a new token")
    return PeerError("peer.login", f"Codex did not accept {what}: {todo}")
