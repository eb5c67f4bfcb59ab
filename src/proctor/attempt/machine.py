"""The states of an attempt, in one table."""

from enum import StrEnum

from proctor.errors import ProctorError


class State(StrEnum):
    QUEUED = "queued"
    PREPARING = "preparing"
    SESSION_STARTING = "session_starting"
    SESSION_READY = "session_ready"
    TURN_RUNNING = "turn_running"
    SETTLING = "settling"
    PROBING = "probing"
    SEALED = "sealed"
    ABANDONED = "abandoned"  # the evidence could not be kept: no seal


class Move(StrEnum):
    PREPARE = "prepare"
    START = "start"
    READY = "ready"
    ASK = "ask"
    STOP = "stop"  # the turn ended, a clock fired, somebody cancelled, the agent went away
    PROBE = "probe"
    SEAL = "seal"
    ABANDON = "abandon"


# Whatever happens, an attempt ends sealed, or abandoned where the disk would not take the seal.
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
    """Where a move leads.

    >>> after(State.TURN_RUNNING, Move.STOP)
    <State.SETTLING: 'settling'>
    """
    try:
        return TABLE[state][move]
    except KeyError:
        raise ProctorError("run.harness", f"an attempt that is {state} cannot {move}") from None
