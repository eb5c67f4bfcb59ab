"""Codex's own login: where its user's is kept, how it takes a token, and whether it is used."""

from typing import Final

from proctor.errors import PeerError
from proctor.fact import UNKNOWN, Authority, Fact
from proctor.runtime.base import ModelAsk
from proctor.runtime.credential import Account
from proctor.spec.model import Login

ACCOUNT: Final = Account(
    provider="openai",
    home_variable="CODEX_HOME",
    home_name=".codex",
    file_name="auth.json",
    command="codex login",
    token_variable="CODEX_ACCESS_TOKEN",  # noqa: S106 - a name
)


def uses_account(model: ModelAsk) -> bool:
    """Whether Codex logs in by itself, rather than show the provider the value of a variable."""
    return model.login is Login.INHERIT or (model.login is Login.TOKEN and model.provider == ACCOUNT.provider)


def keyed(model: ModelAsk) -> Fact:
    """What is known of the credential of a model that is shown the value of a variable, or nothing."""
    if model.key_variable is None:
        return UNKNOWN
    source = "the settings it was given name the variable; it reports nothing of it"
    return Fact(value="explicit-api-key", authority=Authority.INFERRED, source=source)


def not_taken(model: ModelAsk) -> PeerError:
    """It must be found out: without a login Codex sends its requests all the same, bare of any credential."""
    is_inherited = model.login is Login.INHERIT
    took, todo = ("your login", "run `codex login`") if is_inherited else ("the token", "make a new one")
    return PeerError("peer.login", f"Codex did not take {took}: {todo}")
