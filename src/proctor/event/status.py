"""How the thread stands and whether its process lives: two facts, neither of which follows from the other. Pure."""

from enum import StrEnum

from proctor.event.model import (
    Event,
    ProcessExited,
    Replied,
    SessionBegan,
    StatusChanged,
    StreamEnded,
    TextSaid,
    TurnBegan,
    TurnEnded,
)
from proctor.fact import Authority, Fact


class ThreadStatus(StrEnum):
    """What an agent can say of a thread. `system-error` is that its last turn failed, not that it is dead."""

    NOT_LOADED = "not-loaded"
    IDLE = "idle"
    ACTIVE = "active"
    SYSTEM_ERROR = "system-error"
    CLOSED = "closed"
    UNKNOWN = "unknown"


class ProcessState(StrEnum):
    """Of the process that carried the session, as far as the session saw it."""

    ALIVE = "alive"
    EXITED = "exited"
    KILLED = "killed"
    UNKNOWN = "unknown"


_WORDS = frozenset(ThreadStatus)


class StatusFold:
    """Feed it events; `thread` and `process` are the facts as they are now."""

    def __init__(self) -> None:
        self._said: StatusChanged | None = None
        self._turn: TurnBegan | TurnEnded | None = None
        self._gone: StreamEnded | None = None
        self._exit: ProcessExited | None = None
        self._has_spoken = False

    def feed(self, event: Event) -> None:
        match event:
            case StatusChanged():
                self._said = event
            case TurnBegan():
                self._turn, self._has_spoken = event, True
                if self._exit is not None and self._exit.is_turns_own:
                    self._exit = None  # that was the process of the turn before
            case TurnEnded():
                self._turn = event
            case StreamEnded():
                self._gone = event
            case ProcessExited():
                self._exit = event
            case SessionBegan() | Replied() | TextSaid():
                self._has_spoken = True
            case _:
                pass

    @property
    def thread(self) -> Fact:
        said, turn = self._said, self._turn
        if said is not None and said.status in _WORDS:
            if said.status == ThreadStatus.ACTIVE and self._is_cut_off:
                return _unknown("the agent went away while the thread was active")
            return Fact(
                value=said.status, authority=Authority.REPORTED, source=said.channel or "the agent", refs=_at(said)
            )
        if isinstance(turn, TurnEnded):
            status = ThreadStatus.SYSTEM_ERROR if turn.status == "failed" else ThreadStatus.IDLE
            source = "how its last turn ended; the agent says nothing of its thread"
            return Fact(value=status.value, authority=Authority.INFERRED, source=source, refs=_at(turn))
        return _unknown("nobody said")

    @property
    def process(self) -> Fact:
        if self._exit is not None:
            state = ProcessState.EXITED if self._exit.signal is None else ProcessState.KILLED
            return _observed(state, "its exit status", self._exit)
        if self._gone is not None:
            return _unknown("its channel closed, and no exit was seen")
        if self._has_spoken:
            return Fact(
                value=ProcessState.ALIVE.value,
                authority=Authority.OBSERVED,
                source="it spoke, and no end of it was seen while the session lasted",
            )
        return _unknown("it never spoke")

    @property
    def _is_cut_off(self) -> bool:
        return self._gone is not None or (self._exit is not None and isinstance(self._turn, TurnBegan))


def _observed(state: ProcessState, source: str, event: Event) -> Fact:
    return Fact(value=state.value, authority=Authority.OBSERVED, source=source, refs=_at(event))


def _unknown(why: str) -> Fact:
    return Fact(value="unknown", authority=Authority.UNKNOWN, source=why)


def _at(event: Event) -> tuple[str, ...]:
    return (f"frames.jsonl:{event.frame}",)
