"""Where a turn stands. pi says that it stopped, and only what follows says whether it goes on by itself. Pure."""

from enum import Enum, auto

from proctor_pi.wire import Frame, read_state

CHECK = "rest-"
"""How the ids of our questions begin whether it is at rest."""


class Move(Enum):
    """What a frame does to the turn."""

    NONE = auto()
    STOPPED = auto()  # it may be over: ask
    OVER = auto()


class Course:
    """Shared by control and record, so that both see a turn end at the same frame.

    A retry or a compaction is announced in the same breath as the stop that it follows. So when a question that was
    asked after the stop is answered, and nothing was announced before the answer, nothing will be.
    """

    def __init__(self) -> None:
        self._stops = 0
        self.is_stopped = False

    @property
    def check(self) -> str:
        """The id for the question about the latest stop."""
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
