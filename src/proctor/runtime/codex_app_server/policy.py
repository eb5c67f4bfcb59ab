"""How the agent's own requests are answered: by declared policy, in the right shape, so that nothing waits for ever."""

from dataclasses import dataclass
from typing import Any

from proctor.spec.model import Approvals

METHOD_NOT_FOUND = -32601


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`result` to send, or `error` text where the request is refused as such."""

    decision: str
    result: Any = None
    error: str | None = None


_COMMAND_OR_PATCH = {"item/commandExecution/requestApproval", "item/fileChange/requestApproval"}
_LEGACY = {"applyPatchApproval", "execCommandApproval"}


def answer(method: str, approvals: Approvals, *, now_s: int) -> Answer:
    """What is said to a request of the agent.

    >>> answer("item/commandExecution/requestApproval", Approvals.DENY, now_s=0).result
    {'decision': 'decline'}
    >>> answer("no/such", Approvals.ACCEPT, now_s=0).decision
    'unknown request'
    """
    is_accepted = approvals is Approvals.ACCEPT
    if method in _COMMAND_OR_PATCH:
        decision = "accept" if is_accepted else "decline"
        return Answer(decision=decision, result={"decision": decision})
    if method in _LEGACY:
        spelled: Any = "approved" if is_accepted else {"denied": {"rejection": "declined by policy"}}
        return Answer(decision="accept" if is_accepted else "decline", result={"decision": spelled})
    match method:
        case "item/permissions/requestApproval":
            # What is left out of the grant is denied; wider permissions are never granted by a policy.
            return Answer(decision="decline", result={"permissions": {}, "scope": "turn"})
        case "item/tool/requestUserInput":
            return Answer(decision="no answer", result={"answers": {}})
        case "mcpServer/elicitation/request":
            return Answer(decision="decline", result={"action": "decline", "content": None})
        case "item/tool/call":
            text = "No tool of that name is offered."
            return Answer(
                decision="no such tool",
                result={"contentItems": [{"type": "inputText", "text": text}], "success": False},
            )
        case "currentTime/read":
            return Answer(decision="answered", result={"currentTimeAt": now_s})
        case "account/chatgptAuthTokens/refresh" | "attestation/generate":
            return Answer(decision="refused", error="Proctor holds no such credential")
        case _:
            return Answer(decision="unknown request", error=f"Proctor does not know {method}")
