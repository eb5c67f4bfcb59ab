"""What the lifecycle of a turn needs of the agent, which it does not know."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from proctor.context.binding import ThreadDecision
from proctor.event.message import Message
from proctor.event.outcome import Ending
from proctor.event.row import SupervisorRow
from proctor.event.usage import Usage
from proctor.ids import RuntimeId
from proctor.runtime.base import Session
from proctor.runtime.capability import Capabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadOpening:
    """How a native thread is opened, and what a new one is given before its first turn."""

    decision: ThreadDecision
    instructions: str | None = None
    """Instructions for the developer or system role. Without effect on a thread that exists, until it is compacted."""
    history: tuple[Message, ...] = ()
    """Messages that a new thread is given."""


class AgentPort(Protocol):
    """The agent of one sitting, and its record."""

    @property
    def runtime_id(self) -> RuntimeId: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def session(self) -> Session | None:
        """The session with the native thread. None before the first turn."""

    @property
    def ending(self) -> Ending:
        """How the last turn ended, as far as it is recorded."""

    @property
    def has_turn_begun(self) -> bool:
        """Whether the agent has begun the turn that was asked last."""

    @property
    def usage(self) -> Usage | None:
        """Tokens of the last turn. None if they are unknown."""

    def record(self, row: SupervisorRow) -> None:
        """Write a row of the supervisor."""

    async def open_thread(self, opening: ThreadOpening) -> Session:
        """Leave the thread that is open, if any, and open one. Raises RefusedError if the agent does not have it."""

    def start_soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run work beside the turns. It is cancelled if it still runs when the sitting ends."""
