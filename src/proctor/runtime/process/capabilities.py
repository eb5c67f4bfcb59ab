"""The capabilities and failures of the `process` runtime."""

from proctor.ids import RuntimeId
from proctor.runtime.capability import Capabilities
from proctor.runtime.failures import Failure

ID = RuntimeId("process")
TRANSPORTS = ("stdio",)

CAPABILITIES = Capabilities(thread_start=True, interrupt=True, event_stream=True, parallel_sessions=True)

FAILURES = (
    Failure(
        id="exit-status",
        cause="The command exits with a status that `exit` does not list.",
        code="agent.exit-status",
    ),
)
