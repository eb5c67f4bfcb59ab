"""The state machine of an attempt, as one table."""

from enum import StrEnum

from proctor.errors import ProctorError


class State(StrEnum):
    """State of an attempt."""

    QUEUED = "queued"
    """Nothing was done yet."""
    PREPARING = "preparing"
    """Workspace and record are prepared; then the before-hook and the baseline probes run."""
    SESSION_STARTING = "session_starting"
    """A place in an agent process and a session are being opened."""
    SESSION_READY = "session_ready"
    """The session is open, and the prompt was not sent yet."""
    TURN_RUNNING = "turn_running"
    """The agent works."""
    SETTLING = "settling"
    """The agent has stopped, and the workspace is captured."""
    PROBING = "probing"
    """The final probes run."""
    SEALED = "sealed"
    """Final state: the evidence is complete and sealed."""
    ABANDONED = "abandoned"
    """Final state: the evidence could not be written, so there is no seal."""


class Move(StrEnum):
    """Transition between states."""

    PREPARE = "prepare"
    START = "start"
    READY = "ready"
    ASK = "ask"
    """The prompt is sent."""
    STOP = "stop"
    """The turn ended, a limit was reached, a stop was requested, or the agent or the start failed."""
    PROBE = "probe"
    SEAL = "seal"
    ABANDON = "abandon"
    """The evidence cannot be written."""


# Every attempt ends sealed, or abandoned if its evidence could not be written.
TABLE: dict[State, dict[Move, State]] = {
    State.QUEUED: {Move.PREPARE: State.PREPARING, Move.ABANDON: State.ABANDONED},
    State.PREPARING: {
        Move.START: State.SESSION_STARTING,
        Move.STOP: State.SETTLING,
        Move.ABANDON: State.ABANDONED,
    },
    State.SESSION_STARTING: {
        Move.READY: State.SESSION_READY,
        Move.STOP: State.SETTLING,
        Move.ABANDON: State.ABANDONED,
    },
    State.SESSION_READY: {Move.ASK: State.TURN_RUNNING, Move.STOP: State.SETTLING, Move.ABANDON: State.ABANDONED},
    State.TURN_RUNNING: {Move.STOP: State.SETTLING, Move.ABANDON: State.ABANDONED},
    State.SETTLING: {Move.PROBE: State.PROBING, Move.SEAL: State.SEALED, Move.ABANDON: State.ABANDONED},
    State.PROBING: {Move.SEAL: State.SEALED, Move.ABANDON: State.ABANDONED},
    State.SEALED: {},
    State.ABANDONED: {},
}


def after(state: State, move: Move) -> State:
    """Return the state after a move. Raises ProctorError if the move is not allowed in this state.

    >>> after(State.TURN_RUNNING, Move.STOP)
    <State.SETTLING: 'settling'>
    """
    try:
        return TABLE[state][move]
    except KeyError:
        raise ProctorError("run.harness", f"the move `{move}` is not allowed in the state `{state}`") from None
