"""What a runtime does not claim is asked of it all the same: it must be refused, typed, before anything is sent."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from proctor.attempt.converse import LiveSession
from proctor.campaign.sessions import SessionWish
from proctor.errors import RefusedError
from proctor.ids import ThreadId
from proctor.runtime.base import Decision, Question, Tool
from proctor.testing.conformance.case import UnprovenError, must
from proctor.testing.conformance.subject import Subject

_WAIT: Final = {"do": [{"say": "I begin."}, {"delay": "10m"}]}


async def _decide(_: Question) -> Decision:
    return Decision.DENY


async def _answer(_: Any) -> str:
    return ""


_TOOL: Final = Tool(name="proctor_case", description="Answers.", schema={"type": "object"}, call=_answer)

_TO_OPEN: Final[dict[str, dict[str, Any]]] = {
    "thread_start": {},
    "thread_resume": {"resume": ThreadId("no-such-thread")},
    "approvals": {"decide": _decide},
    "dynamic_tools": {"tools": (_TOOL,)},
}
"""What is asked for when a session is opened."""


async def _steer(live: LiveSession) -> None:
    await live.steer("Another way.")


async def _compact(live: LiveSession) -> None:
    await live.compact()


async def _by_schema(live: LiveSession) -> None:
    live.say("Go on.", output_schema={"type": "object"})


_TO_TALK: Final[dict[str, Callable[[LiveSession], Awaitable[None]]]] = {
    "turn_steer": _steer,
    "compaction": _compact,
    "structured_output": _by_schema,
}
"""What is asked for in a session."""


async def refused(subject: Subject, claim: str) -> str:
    """How it was refused, in words. Raises where it was not."""
    if claim in _TO_OPEN:
        await _refused_to_open(subject, claim)
    elif claim in _TO_TALK and subject.runtime.claims.thread_start:
        await _refused_to_talk(subject, claim)
    else:
        return f"{claim} is not claimed, and cannot be asked for"
    return f"{claim} is not claimed, and asking for it is refused before anything is sent"


async def _refused_to_open(subject: Subject, claim: str) -> None:
    wish = SessionWish(
        loaded=await subject.loaded(_WAIT, approvals="ask" if claim == "approvals" else "deny"), **_TO_OPEN[claim]
    )
    async with subject.conversations(_WAIT) as sessions:
        try:
            async with sessions.session(wish):
                raise UnprovenError(f"{claim} is not claimed, and a session was opened all the same")
        except RefusedError as error:
            _must_be_typed(error, claim)


async def _refused_to_talk(subject: Subject, claim: str) -> None:
    wish = SessionWish(loaded=await subject.loaded(_WAIT))
    async with subject.conversations(_WAIT) as sessions, sessions.session(wish) as live:
        if claim == "turn_steer":
            live.say("Go on.")
        before = live.offset
        try:
            await _TO_TALK[claim](live)
        except RefusedError as error:
            _must_be_typed(error, claim)
        else:
            raise UnprovenError(f"{claim} is not claimed, and was not refused")
        # A refusal that takes no time: nothing else could have come to pass.
        must(live.offset == before, f"{claim} was refused, and something was sent all the same")
        await live.interrupt()


def _must_be_typed(error: RefusedError, claim: str) -> None:
    must(error.code == "runtime.capability", f"{claim} was refused as {error.code}: {error.what}")
