"""What the app-server says it logs in with."""

import msgspec

from proctor.errors import PeerError, RefusedError
from proctor.fact import UNKNOWN, Authority, Fact
from proctor.runtime.base import ModelAsk
from proctor.runtime.codex.account import keyed, not_taken, uses_account
from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.connection import Connection

STATUS_DEADLINE_S = 30.0


async def observe_login(connection: Connection, model: ModelAsk) -> Fact:
    """PeerError where it says: with nothing."""
    if not uses_account(model):
        return keyed(model)
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
        raise not_taken(model)
    return Fact(value=status.auth_method, authority=Authority.REPORTED, source="getAuthStatus.authMethod")
