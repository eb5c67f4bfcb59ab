"""Check that requests for undeclared capabilities are refused with a typed error before anything is sent."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from proctor.attempt.converse import LiveSession
from proctor.campaign.sessions import ConversationRequest, KeptRequest
from proctor.context.model import SessionSettings
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
    "thread_resume": {
        "kept": KeptRequest(
            key="conformance", settings=SessionSettings(runtime="conformance"), adopted=ThreadId("no-such-thread")
        )
    },
    "approvals": {"decide": _decide},
    "dynamic_tools": {"tools": (_TOOL,)},
}
"""Options of a session request that need a capability."""


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
"""Calls in an open session that need a capability."""


async def refused(subject: Subject, capability: str) -> str:
    """Check the refusal of a capability and return its description. Raises UnprovenError if it is not refused."""
    if capability in _TO_OPEN:
        await _refused_to_open(subject, capability)
    elif capability in _TO_TALK and subject.runtime.capabilities.thread_start:
        await _refused_to_talk(subject, capability)
    else:
        return f"{capability} is not declared; there is no request that needs it"
    return f"{capability} is not declared; a request for it is refused before anything is sent"


async def _refused_to_open(subject: Subject, capability: str) -> None:
    wish = ConversationRequest(
        loaded=await subject.loaded(_WAIT, approvals="ask" if capability == "approvals" else "deny"),
        **_TO_OPEN[capability],
    )
    async with subject.conversations(_WAIT) as sessions:
        try:
            async with sessions.session(wish):
                raise UnprovenError(f"{capability} is not declared, but a session that needs it was opened")
        except RefusedError as error:
            _must_be_typed(error, capability)


async def _refused_to_talk(subject: Subject, capability: str) -> None:
    wish = ConversationRequest(loaded=await subject.loaded(_WAIT))
    async with subject.conversations(_WAIT) as sessions, sessions.session(wish) as live:
        if capability == "turn_steer":
            live.say("Go on.")
        before = live.offset
        try:
            await _TO_TALK[capability](live)
        except RefusedError as error:
            _must_be_typed(error, capability)
        else:
            raise UnprovenError(f"{capability} is not declared, but a request for it was not refused")
        # The refusal does not await, so no other frame can have been recorded in between.
        must(live.offset == before, f"{capability} was refused, but something was sent")
        await live.interrupt()


def _must_be_typed(error: RefusedError, capability: str) -> None:
    must(error.code == "runtime.capability", f"{capability} was refused as {error.code}: {error.what}")
