"""Convert the supervisor's `self` rows to events."""

import shlex
from typing import Final

import msgspec

from proctor import decoding
from proctor.event.model import (
    ApprovalResolved,
    Cancelled,
    ClockFired,
    ContextAssembled,
    ContextDegraded,
    Event,
    FactsStated,
    FailureObserved,
    FrameNoted,
    HistoryGiven,
    HistoryOffered,
    HistoryRead,
    HookRan,
    LimitReached,
    NoteMade,
    ProcessExited,
    ResultFound,
    ScriptUnfit,
    SessionRefused,
    StreamEnded,
    ThreadLeft,
    TurnAsked,
    TurnCommitted,
    TurnSettled,
    TurnSteered,
    Unrecognized,
    WarningRaised,
)
from proctor.event.row import (
    CALLBACK_FAILED,
    CALLBACK_GIVEN_UP,
    MESSAGE_REFUSED,
    AnySupervisorRow,
    CancelRequested,
    ChannelClosed,
    ChildExited,
    ClockRanOut,
    CommitMade,
    ContextChosen,
    ContextProblem,
    Direction,
    FactsLearned,
    FailureFound,
    HistoryKept,
    HistoryOffer,
    HistoryReceipt,
    HookEnded,
    LimitHit,
    NoteHeard,
    QuestionAnswered,
    ResultRead,
    Row,
    ScriptMisfit,
    SessionRefusal,
    SteerTaken,
    StepTaken,
    TailReleased,
    ThreadDropped,
    TurnClosed,
    TurnWanted,
)

HOOK: Final = "hook"
"""The source of transcript rows about hooks."""

_LISTENER_CODES: Final = {CALLBACK_FAILED: "listener.failed", CALLBACK_GIVEN_UP: "listener.stuck"}

_THREAD_DROPPED: Final = f'"{ThreadDropped.__struct_config__.tag}"'.encode()

_decode = decoding.json_decoder(AnySupervisorRow)


def decode_supervisor_row(row: Row) -> AnySupervisorRow | None:
    """Decode the frame of a `self` row. Returns None if this version of Proctor does not know it."""
    try:
        return _decode(row.frame) if isinstance(row.frame, msgspec.Raw) else None
    except msgspec.DecodeError:
        return None


def dropped_thread(row: Row) -> ThreadDropped | None:
    """Return the row with which the session leaves its native thread; None for any other row."""
    # Decoded only if it can be.
    if row.dir is Direction.SELF and isinstance(row.frame, msgspec.Raw) and _THREAD_DROPPED in bytes(row.frame):
        left = decode_supervisor_row(row)
        return left if isinstance(left, ThreadDropped) else None
    return None


def supervisor_event(row: Row) -> Event:
    """Return the event of a `self` row."""
    seq, at_ms = row.seq, row.at_ms
    match decode_supervisor_row(row):
        case TurnWanted(text=text):
            return TurnAsked(text=text, frame=seq, at_ms=at_ms)
        case TurnClosed():
            return TurnSettled(frame=seq, at_ms=at_ms)
        case SteerTaken(text=text):
            return TurnSteered(text=text, frame=seq, at_ms=at_ms)
        case ClockRanOut(clock=clock, limit_ms=limit_ms):
            return ClockFired(clock=clock, limit_ms=limit_ms, frame=seq, at_ms=at_ms)
        case LimitHit(limit=limit, most=most, used=used):
            return LimitReached(limit=limit, most=most, used=used, frame=seq, at_ms=at_ms)
        case CancelRequested(why=why, by=by):
            return Cancelled(why=why, by=by, frame=seq, at_ms=at_ms)
        case SessionRefusal(code=code, detail=detail):
            return SessionRefused(code=code, detail=detail, frame=seq, at_ms=at_ms)
        case FailureFound(code=code, detail=detail):
            return FailureObserved(code=code, detail=detail, frame=seq, at_ms=at_ms)
        case ScriptMisfit(detail=detail):
            return ScriptUnfit(detail=detail, frame=seq, at_ms=at_ms)
        case ChannelClosed(cause=cause):
            return StreamEnded(cause=cause, frame=seq, at_ms=at_ms)
        case ChildExited() as exited:
            return ProcessExited(**msgspec.structs.asdict(exited), frame=seq, at_ms=at_ms)
        case QuestionAnswered(request=request, decision=decision, by=by):
            return ApprovalResolved(request=request, decision=decision, by=by, frame=seq, at_ms=at_ms)
        case TailReleased(stream=stream):
            return FrameNoted(native=f"tail of {stream}", frame=seq, at_ms=at_ms)
        case StepTaken(step=step, detail={"what": str(what)}) if step in _LISTENER_CODES:
            text, code = f"{step}: {what}", _LISTENER_CODES[step]
            return WarningRaised(source="callback", text=text, channel="self", code=code, frame=seq, at_ms=at_ms)
        case FactsLearned(facts=facts):
            return FactsStated(facts=facts, frame=seq, at_ms=at_ms)
        case HistoryKept(source=source, items=items):
            return HistoryRead(source=source, items=items, frame=seq, at_ms=at_ms)
        case HistoryOffer() as offer:
            return HistoryOffered(**msgspec.structs.asdict(offer), frame=seq, at_ms=at_ms)
        case HistoryReceipt() as receipt:
            return HistoryGiven(**msgspec.structs.asdict(receipt), frame=seq, at_ms=at_ms)
        case ContextChosen() as chosen:
            return ContextAssembled(**msgspec.structs.asdict(chosen), frame=seq, at_ms=at_ms)
        case ContextProblem() as problem:
            return ContextDegraded(**msgspec.structs.asdict(problem), frame=seq, at_ms=at_ms)
        case CommitMade() as commit:
            return TurnCommitted(**msgspec.structs.asdict(commit), frame=seq, at_ms=at_ms)
        case ThreadDropped(why=why):
            return ThreadLeft(why=why, frame=seq, at_ms=at_ms)
        case StepTaken(step=step, detail={"what": str(what)}) if step == MESSAGE_REFUSED:
            return WarningRaised(source="process", text=f"{step}: {what}", channel="self", frame=seq, at_ms=at_ms)
        case ResultRead() as read:
            return ResultFound(**msgspec.structs.asdict(read), frame=seq, at_ms=at_ms)
        case NoteHeard(text=text):
            return NoteMade(text=text, frame=seq, at_ms=at_ms)
        case HookEnded(phase=phase, problem=None) as hook:
            text = f"the `{phase}` hook succeeded: {shlex.join(hook.argv)}, in {hook.duration_ms} ms"
            return HookRan(phase=phase, text=text, frame=seq, at_ms=at_ms)
        case HookEnded(phase=phase, problem=problem) as hook:
            output = (hook.stderr_tail or hook.stdout_tail).strip()
            text = f"the `{phase}` hook failed: {shlex.join(hook.argv)}: {problem}" + (output and f": {output}")
            return WarningRaised(source=HOOK, text=text, channel="self", code="hook.failed", frame=seq, at_ms=at_ms)
        case StepTaken(step=step):
            return FrameNoted(native=step, frame=seq, at_ms=at_ms)
        case None:
            return Unrecognized(native="self", frame=seq, at_ms=at_ms)
