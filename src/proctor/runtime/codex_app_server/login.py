"""Codex's own login: where its user's is kept, how it takes a token, and what it says it uses."""

from typing import Final

import msgspec

from proctor.errors import PeerError, RefusedError
from proctor.fact import UNKNOWN, Authority, Fact
from proctor.runtime.base import ModelAsk
from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.connection import Connection
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

STATUS_DEADLINE_S = 30.0


def uses_account(model: ModelAsk) -> bool:
    """Whether Codex logs in by itself, rather than show the provider the value of a variable."""
    return model.login is Login.INHERIT or (model.login is Login.TOKEN and model.provider == ACCOUNT.provider)


async def observe_login(connection: Connection, model: ModelAsk) -> Fact:
    """What the program says it logs in with. PeerError where it says: with nothing.

    It must be asked: without a login it sends its requests all the same, bare of any credential.
    """
    if not uses_account(model):
        if model.key_variable is None:
            return UNKNOWN
        source = "the settings it was given name the variable; it reports nothing of it"
        return Fact(value="explicit-api-key", authority=Authority.INFERRED, source=source)
    is_inherited = model.login is Login.INHERIT
    # Not account/read: that asks the network about the account first. This one only looks at what is loaded.
    try:
        reply = await connection.call("getAuthStatus", {"includeToken": False}, deadline_s=STATUS_DEADLINE_S)
    except RefusedError:  # it is in no schema, and another version may not know it
        return UNKNOWN
    try:
        status = msgspec.json.decode(reply, type=wire.AuthStatus)
    except msgspec.DecodeError as error:
        raise PeerError("peer.wire", f"getAuthStatus: {error}") from error
    if status.auth_method is None:
        took, todo = ("your login", "run `codex login`") if is_inherited else ("the token", "make a new one")
        raise PeerError("peer.login", f"Codex did not take {took}: {todo}")
    return Fact(value=status.auth_method, authority=Authority.REPORTED, source="getAuthStatus.authMethod")
