"""Ask the app-server which login it uses."""

import msgspec

from proctor import decoding
from proctor.errors import PeerError, RefusedError
from proctor.fact import UNKNOWN, Authority, Fact
from proctor.runtime.base import ModelChoice
from proctor.runtime.codex.account import key_fact, login_refused, uses_account
from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.connection import Connection

STATUS_DEADLINE_S = 30.0


async def observe_login(connection: Connection, model: ModelChoice) -> Fact:
    """Return the fact `credentialSource`. Raises PeerError if the server reports that it has no login."""
    if not uses_account(model):
        return key_fact(model)
    # Not account/read, which makes a network request. getAuthStatus only reports what is loaded.
    try:
        reply = await connection.call("getAuthStatus", {"includeToken": False}, deadline_s=STATUS_DEADLINE_S)
    except RefusedError:  # the method is in no schema, and other versions may not have it
        return UNKNOWN
    try:
        status = decoding.decode(reply, wire.AuthStatus)
    except msgspec.DecodeError as error:
        raise PeerError("peer.wire", f"getAuthStatus: {error}") from error
    if status.auth_method is None:
        raise login_refused(model)
    return Fact(value=status.auth_method, authority=Authority.REPORTED, source="getAuthStatus.authMethod")
