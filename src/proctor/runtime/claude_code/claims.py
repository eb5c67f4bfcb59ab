"""What driving Claude Code can do, as we claim it."""

from typing import Final

from proctor.ids import StrategyId
from proctor.runtime.capability import Claims

ID: Final = StrategyId("claude_code")
TRANSPORTS: Final = ("stdio",)
SERVES: Final = {"scripted": ("*",), "anthropic": ("*",)}

CLAIMS: Final = Claims(
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
)
