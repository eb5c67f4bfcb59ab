"""Fold events into the status of the thread and the state of its process, two independent facts. Pure."""

from enum import StrEnum

from proctor.event.model import (
    Event,
    ProcessExited,
    ReplyReceived,
    SessionBegan,
    StatusChanged,
    StreamEnded,
    TextSaid,
    TurnBegan,
    TurnEnded,
)
from proctor.fact import Authority, Fact


class ThreadStatus(StrEnum):
    """The status of a thread."""

    NOT_LOADED = "not-loaded"
    """The agent stores the thread, but has not loaded it."""

    IDLE = "idle"
    """No turn is running."""

    ACTIVE = "active"
    """A turn is running."""

    SYSTEM_ERROR = "system-error"
    """The last turn failed. The thread may still be usable."""

    CLOSED = "closed"
    """The agent closed the thread."""

    UNKNOWN = "unknown"
    """The status is not known."""


class ProcessState(StrEnum):
    """The state of the agent's process, as far as the session observed it."""

    ALIVE = "alive"
    """It sent something, and its end was not observed."""

    EXITED = "exited"
    """It exited by itself."""

    KILLED = "killed"
    """A signal ended it."""

    UNKNOWN = "unknown"
    """It never sent anything, or its channel closed without an observed exit."""


_STATUSES = frozenset(ThreadStatus)


class StatusFold:
    """Fold events into the facts `thread` and `process`."""

    def __init__(self) -> None:
        self._reported: StatusChanged | None = None
        self._turn: TurnBegan | TurnEnded | None = None
        self._closed: StreamEnded | None = None
        self._exit: ProcessExited | None = None
        self._has_sent = False

    def feed(self, event: Event) -> None:
        match event:
            case StatusChanged():
                self._reported = event
            case TurnBegan():
                self._turn, self._has_sent = event, True
                if self._exit is not None and self._exit.is_turns_own:
                    self._exit = None  # it was the process of the turn before
            case TurnEnded():
                self._turn = event
            case StreamEnded():
                self._closed = event
            case ProcessExited():
                self._exit = event
            case SessionBegan() | ReplyReceived() | TextSaid():
                self._has_sent = True
            case _:
                pass

    @property
    def thread(self) -> Fact:
        """The fact `threadStatus`."""
        reported, turn = self._reported, self._turn
        if reported is not None and reported.status in _STATUSES:
            if reported.status == ThreadStatus.ACTIVE and self._is_cut_off:
                return _unknown("the agent went away while the thread was active")
            source = reported.channel or "the agent"
            return Fact(value=reported.status, authority=Authority.REPORTED, source=source, refs=_refs(reported))
        if isinstance(turn, TurnEnded):
            status = ThreadStatus.SYSTEM_ERROR if turn.status == "failed" else ThreadStatus.IDLE
            source = "the end of the last turn; the agent did not report a status"
            return Fact(value=status.value, authority=Authority.INFERRED, source=source, refs=_refs(turn))
        return _unknown("not reported")

    @property
    def process(self) -> Fact:
        """The fact `processState`."""
        if self._exit is not None:
            state = ProcessState.EXITED if self._exit.signal is None else ProcessState.KILLED
            return _observed(state, "the exit status", self._exit)
        if self._closed is not None:
            return _unknown("the channel closed, and no exit was observed")
        if self._has_sent:
            return Fact(
                value=ProcessState.ALIVE.value,
                authority=Authority.OBSERVED,
                source="it sent something, and its end was not observed during the session",
            )
        return _unknown("it never sent anything")

    @property
    def _is_cut_off(self) -> bool:
        return self._closed is not None or (self._exit is not None and isinstance(self._turn, TurnBegan))


def _observed(state: ProcessState, source: str, event: Event) -> Fact:
    return Fact(value=state.value, authority=Authority.OBSERVED, source=source, refs=_refs(event))


def _unknown(why: str) -> Fact:
    return Fact(value="unknown", authority=Authority.UNKNOWN, source=why)


def _refs(event: Event) -> tuple[str, ...]:
    return (f"frames.jsonl:{event.frame}",)
