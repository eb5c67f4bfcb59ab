"""The declared capabilities of the replay runtime."""

from proctor.ids import RuntimeId
from proctor.runtime.capability import Capabilities

ID = RuntimeId("replay")
TRANSPORTS = ("memory",)

CAPABILITIES = Capabilities(thread_start=True, event_stream=True)
