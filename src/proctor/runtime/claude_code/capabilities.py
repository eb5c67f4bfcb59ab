"""The declared capabilities of the Claude Code runtime."""

from typing import Final

from proctor.ids import RuntimeId
from proctor.runtime.capability import Capabilities

ID: Final = RuntimeId("claude_code")
TRANSPORTS: Final = ("stdio",)
SERVES: Final = {"scripted": ("*",), "anthropic": ("*",)}

CAPABILITIES: Final = Capabilities(
    thread_start=True,
    thread_resume=True,
    turn_steer=True,
    interrupt=True,
    event_stream=True,
    parallel_sessions=True,
    approvals=True,
    dynamic_tools=True,
    compaction=True,
    structured_output=True,
    takes_history=True,
    takes_instructions=True,
    takes_turn_instructions=True,
)
