"""The capabilities of the `codex exec` runtime."""

from proctor.ids import RuntimeId
from proctor.runtime.capability import Capabilities

ID = RuntimeId("codex_exec")
TRANSPORTS = ("stdio",)

CAPABILITIES = Capabilities(
    thread_start=True,
    thread_resume=True,
    interrupt=True,
    event_stream=True,
    parallel_sessions=True,
    structured_output=True,
    takes_instructions=True,
)
