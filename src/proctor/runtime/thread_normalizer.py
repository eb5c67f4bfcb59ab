"""Normalize a record in which a session leaves its native thread for another one. Pure."""

from collections.abc import Callable, Iterable

from proctor.event.model import Event
from proctor.event.row import Direction, Row
from proctor.event.supervisor_events import dropped_thread
from proctor.runtime.base import Normalizer, Runtime, sees_tool_calls


def normalizer_of(runtime: Runtime) -> Normalizer:
    """Return a new normalizer for one record. It begins anew with each native thread."""
    return _ThreadNormalizer(runtime.normalizer)


class _ThreadNormalizer:
    """Replaces the normalizer of a thread when the session has left it: another thread has other ids and totals."""

    def __init__(self, create: Callable[[], Normalizer]) -> None:
        self._create = create
        self._current = create()

    @property
    def sees_tool_calls(self) -> bool:
        """Whether the agent shows its tool calls. A replay knows it only after its first row."""
        return sees_tool_calls(self._current)

    def feed(self, row: Row) -> Iterable[Event]:
        events = self._current.feed(row)
        # Most rows are of the agent.
        if row.dir is not Direction.SELF or dropped_thread(row) is None:
            return events
        events = list(events)
        self._current = self._create()
        return events
