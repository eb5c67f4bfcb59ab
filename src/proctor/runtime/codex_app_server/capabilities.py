"""The capabilities of the Codex app-server runtime."""

from proctor.ids import RuntimeId
from proctor.runtime.capability import Capabilities

ID = RuntimeId("codex_app_server")
TRANSPORTS = ("stdio", "websocket")

CAPABILITIES = Capabilities(
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
