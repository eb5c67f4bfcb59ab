"""What driving the Codex app-server can do, as we claim it."""

from proctor.ids import StrategyId
from proctor.runtime.capability import Claims

ID = StrategyId("codex_app_server")
TRANSPORTS = ("stdio", "websocket")

CLAIMS = Claims(
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
