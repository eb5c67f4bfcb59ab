"""What a recorded attempt can do again, as we claim it."""

from proctor.ids import StrategyId
from proctor.runtime.capability import Claims

ID = StrategyId("replay")
TRANSPORTS = ("memory",)

CLAIMS = Claims(thread_start=True, event_stream=True)
