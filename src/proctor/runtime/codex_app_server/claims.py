"""What driving the Codex app-server can do, as we claim it, and the versions we know."""

from proctor.ids import StrategyId
from proctor.runtime.base import Claims

ID = StrategyId("codex_app_server")
TRANSPORT = "stdio"
TRANSPORTS = (TRANSPORT, "websocket")
MINIMUM_VERSION = "0.163.0"
INSTALL = "openai-codex-cli-bin==0.163.0 from PyPI (pip install 'proctor[codex]')"

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
