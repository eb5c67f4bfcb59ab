"""What driving `codex exec` can do, as we claim it."""

from proctor.ids import StrategyId
from proctor.runtime.capability import Claims

ID = StrategyId("codex_exec")
TRANSPORTS = ("stdio",)

CLAIMS = Claims(
    thread_start=True,
    thread_resume=True,
    interrupt=True,
    event_stream=True,
    parallel_sessions=True,
    structured_output=True,
)
