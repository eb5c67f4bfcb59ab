"""The answer to each kind of request from the agent, so that none waits forever."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor.runtime.base import Decision
from proctor.runtime.codex_app_server import wire

METHOD_NOT_FOUND = -32601


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer to a request: its `result`, or the text of an `error` reply."""

    decision: str
    result: Any = None
    error: str | None = None


_COMMAND_OR_PATCH = frozenset({"item/commandExecution/requestApproval", "item/fileChange/requestApproval"})
_LEGACY = frozenset({"applyPatchApproval", "execCommandApproval"})
PERMISSIONS = "item/permissions/requestApproval"
TOOL_CALL = "item/tool/call"
DECIDABLE = _COMMAND_OR_PATCH | _LEGACY | {PERMISSIONS}
"""The requests that can be accepted or declined."""


def answer(
    method: str, decision: Decision, *, params: Mapping[str, Any], now_s: int, is_mcp_call: bool = False
) -> Answer:
    """Return the answer to a request. The decision is used if the request can be accepted or declined.

    What an MCP server asks the user is always declined; `is_mcp_call` says that Codex itself asks whether it may call a
    tool of the server.

    >>> answer("item/commandExecution/requestApproval", Decision.DENY, params={}, now_s=0).result
    {'decision': 'decline'}
    >>> answer("no/such", Decision.ACCEPT, params={}, now_s=0).decision
    'unknown request'
    """
    is_accepted = decision is Decision.ACCEPT
    word = "accept" if is_accepted else "decline"
    if method in _COMMAND_OR_PATCH:
        return Answer(decision=word, result={"decision": word})
    if method in _LEGACY:
        spelled: Any = "approved" if is_accepted else {"denied": {"rejection": "declined by policy"}}
        return Answer(decision=word, result={"decision": spelled})
    match method:
        case "item/permissions/requestApproval":
            # Permissions that are not in the grant are denied.
            granted = params.get("permissions", {}) if is_accepted else {}
            return Answer(decision=word, result={"permissions": granted, "scope": "turn"})
        case "item/tool/requestUserInput":
            return Answer(decision="no answer", result={"answers": {}})
        case wire.ELICITATION if is_mcp_call and is_accepted:
            return Answer(decision=word, result={"action": "accept", "content": {}})
        case wire.ELICITATION:
            return Answer(decision="decline", result={"action": "decline", "content": None})
        case "item/tool/call":
            return tool_answer("No tool of that name is offered.", decision="no such tool", is_success=False)
        case "currentTime/read":
            return Answer(decision="answered", result={"currentTimeAt": now_s})
        case "account/chatgptAuthTokens/refresh" | "attestation/generate":
            return Answer(decision="refused", error="Proctor holds no such credential")
        case _:
            return Answer(decision="unknown request", error=f"Proctor does not know {method}")


def tool_answer(text: str, *, decision: str, is_success: bool) -> Answer:
    """Return the answer to a call of a caller's tool."""
    content = [{"type": "inputText", "text": text}]
    return Answer(decision=decision, result={"contentItems": content, "success": is_success})
