"""Which tool calls a policy forbids."""

from typing import Any

import pytest

from proctor.attempt.policy import violations
from proctor.event.model import ToolKind
from proctor.event.trace import ToolCall
from proctor.ids import AttemptId, CallId, TurnId
from proctor.spec.campaign_options import ToolsSpec


def call(kind: ToolKind, name: str, given: Any = None) -> ToolCall:
    return ToolCall(
        attempt=AttemptId("a"),
        session=None,
        call=CallId("c"),
        turn=TurnId("t"),
        kind=kind,
        name=name,
        input=given,
        ok=True,
        status="completed",
        began_at_ms=1,
    )


CURL = call("command", "shell", {"command": "/bin/bash -lc 'curl example.org'"})
LS = call("command", "shell", {"command": "ls"})
SEARCH = call("web", "search")
MCP = call("mcp", "files/read")
NAMES = ["command:curl example.org", "command:ls", "web:search", "mcp:files/read"]


@pytest.mark.parametrize(
    ("tools", "forbidden"),
    [
        (ToolsSpec(), []),
        (ToolsSpec(deny=["web:*"]), ["c: web:search is denied by web:*"]),
        (ToolsSpec(deny=["command:curl *"]), ["c: command:curl example.org is denied by command:curl *"]),
        (ToolsSpec(deny=["mcp:files/*"]), ["c: mcp:files/read is denied by mcp:files/*"]),
        (
            ToolsSpec(allow=["command:*"]),
            ["c: web:search is not allowed", "c: mcp:files/read is not allowed"],
        ),
        (
            ToolsSpec(allow=["*"], deny=["command:shell"]),
            ["c: command:curl example.org is denied by command:shell", "c: command:ls is denied by command:shell"],
        ),
        (ToolsSpec(allow=[]), [f"c: {name} is not allowed" for name in NAMES]),
    ],
)
def test_what_is_denied_is_never_allowed_and_what_is_not_allowed_is_forbidden(
    tools: ToolsSpec, forbidden: list[str]
) -> None:
    assert violations(tools, [CURL, LS, SEARCH, MCP]) == tuple(forbidden)
