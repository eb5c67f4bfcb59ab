"""One row of frames.jsonl: what was said on a connection, or what the supervisor saw, as it stands on disk."""

from enum import StrEnum
from typing import Any, Literal

import msgspec

from proctor.event.kept import KeptItem
from proctor.fact import Fact

GENESIS = "0" * 32


class Dir(StrEnum):
    """Who spoke."""

    IN = "in"  # the agent
    OUT = "out"  # we, to the agent
    ERR = "err"  # the agent's stderr
    SELF = "self"  # the supervisor: what it saw or decided

    # An enum's own is a call in Python, and each row is counted.
    __hash__ = str.__hash__


class Row(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """`frame` is the JSON value that was said; `text` is said instead where it was no JSON."""

    seq: int
    at_ms: int
    dir: Dir
    prev: str
    frame: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    text: str | None = None
    redacted: tuple[str, ...] = ()
    carried: bool = False


# ── what `self` rows say ──


class Seen(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="saw", omit_defaults=True):
    """Root of what the supervisor puts on record about itself."""


class TurnWanted(Seen, tag="turn.wanted", frozen=True, kw_only=True):
    """In a conversation: a turn is asked for, before anything is said to the agent. No text where it is no prompt."""

    text: str | None = None


class ClockRanOut(Seen, tag="clock.fired", frozen=True, kw_only=True):
    """Those of the mission and the campaign stand at what was left of them when the attempt began."""

    clock: Literal["stall", "turn", "attempt", "mission", "campaign"]
    limit_ms: int


class UsedUp(Seen, tag="limit.reached", frozen=True, kw_only=True):
    """It has used more than it may."""

    limit: Literal["tokens"]
    most: int
    used: int


class WasCancelled(Seen, tag="cancelled", frozen=True, kw_only=True):
    why: str


class WasRefused(Seen, tag="session.refused", frozen=True, kw_only=True):
    code: str
    detail: str


class ChannelClosed(Seen, tag="stream.ended", frozen=True, kw_only=True):
    cause: str


class ChildExited(Seen, tag="process.exited", frozen=True, kw_only=True):
    """`is_turns_own` where the process was that of one turn, and the session goes on without it."""

    code: int | None = None
    signal: int | None = None
    is_turns_own: bool = False


class Answered(Seen, tag="approval.resolved", frozen=True, kw_only=True):
    """A question of the agent's was answered, or went away.

    `by` says who it was: `policy`, `sandbox` (what the fences allow needs no more), `callback`, `tool` (one of ours
    that it called), `deadline` (nobody said anything in time), `error` (whoever was asked failed), `cancelled` (it went
    away, and no answer was given).
    """

    request: str
    method: str
    decision: str
    by: str


class TailReleased(Seen, tag="text.released", frozen=True, kw_only=True):
    """What redaction held back of a text stream, given out at the stream's end."""

    stream: str
    text: str


class StepTaken(Seen, tag="step", frozen=True, kw_only=True):
    """Something the supervisor did that explains later rows, such as a signal or a state it entered."""

    step: str
    detail: dict[str, Any] = {}


class FactsLearned(Seen, tag="facts", frozen=True, kw_only=True):
    """What we know of the agent and its session, and on whose word."""

    facts: dict[str, Fact]


class HistoryKept(Seen, tag="history", frozen=True, kw_only=True):
    """What an agent has written of its thread into a file of its own, as we read it there."""

    source: str
    items: tuple[KeptItem, ...]


class ResultRead(Seen, tag="result", frozen=True, kw_only=True):
    """What an agent gave as its result, by a file or by `proctor feedback`; a code and a problem where it is none."""

    source: str
    done: bool | None = None
    answer: str | None = None
    result: Any = None
    code: str | None = None
    problem: str | None = None


class NoteHeard(Seen, tag="note", frozen=True, kw_only=True):
    """What an agent said by `proctor note`."""

    text: str


class HookEnded(Seen, tag="hook", frozen=True, kw_only=True):
    """A command of the operator's own ran around the attempt. `problem` is why it counts as failed, where it does."""

    phase: Literal["before", "after"]
    argv: tuple[str, ...]
    duration_ms: int
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    stdout_tail: str = ""
    stderr_tail: str = ""
    problem: str | None = None


# Steps that are told as warnings: code of the caller's that raised, gave what it may not, or would not end.
CALLBACK_FAILED = "callback failed"
CALLBACK_GIVEN_UP = "callback given up"

HISTORY_UNREAD = "history not read"

# A step that is told as a warning: what arrived beside the agent's words was no message, or one too many.
MESSAGE_REFUSED = "message refused"


AnySeen = (
    TurnWanted
    | ClockRanOut
    | UsedUp
    | WasCancelled
    | WasRefused
    | ChannelClosed
    | ChildExited
    | Answered
    | TailReleased
    | StepTaken
    | FactsLearned
    | HistoryKept
    | ResultRead
    | NoteHeard
    | HookEnded
)
