"""Determine when a turn is over. After pi reports a stop, it may still continue by itself. Pure."""

from enum import Enum, auto

from proctor_pi.wire import Frame, read_state

CHECK = "rest-"
"""The prefix of the ids of the requests that check whether pi is idle."""


class Move(Enum):
    """The effect of a frame on the turn."""

    NONE = auto()
    STOPPED = auto()  # it may be over: send a check
    OVER = auto()


class Course:
    """The state of the current turn. The session and the normalizer use it, so both see a turn end at the same frame.

    pi announces a retry or a compaction immediately after the stop that it follows. So if a check that was sent after
    the stop is answered and nothing was announced before the answer, the turn is over.
    """

    def __init__(self) -> None:
        self._stops = 0
        self.is_stopped = False

    @property
    def check(self) -> str:
        """The id of the check for the latest stop."""
        return f"{CHECK}{self._stops}"

    def feed(self, frame: Frame) -> Move:
        match frame.type:
            case "agent_start" | "auto_retry_start" | "compaction_start":
                self.is_stopped = False
            case "agent_end":
                return self._stop()
            case "auto_retry_end" if not frame.success:
                return self._stop()
            case "compaction_end" if not frame.will_retry:
                return self._stop()
            case "response" if self.is_stopped and frame.id == self.check:
                state = read_state(frame)
                if state is None or not (state.is_streaming or state.is_compacting):
                    self.is_stopped = False
                    return Move.OVER
        return Move.NONE

    def _stop(self) -> Move:
        self.is_stopped = True
        self._stops += 1
        return Move.STOPPED
