"""What driving any command can do, as we claim it, and what its ends mean."""

from proctor.ids import StrategyId
from proctor.runtime.capability import Claims
from proctor.runtime.failures import Failure

ID = StrategyId("process")
TRANSPORTS = ("stdio",)

CLAIMS = Claims(thread_start=True, interrupt=True, event_stream=True, parallel_sessions=True)

FAILURES = (
    Failure(
        id="exit-status",
        fault="the command exits with a status that `exit` does not name",
        code="agent.exit-status",
    ),
)
