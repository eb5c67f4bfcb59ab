"""Code of the caller's that the agent's questions and calls lead to: whatever it does, it is alone in that."""

import asyncio
from typing import Any

import anyio
import pytest

from proctor.event.row import Direction, QuestionAnswered, StepTaken, SupervisorRow
from proctor.runtime import callbacks
from proctor.runtime.base import Decision, Question, Tool
from proctor.spec.choices import Approvals
from tests.runtime.twin import MemoryTap, connected, run, session_ask

COMMAND = "item/commandExecution/requestApproval"
CALL = "item/tool/call"


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def ask(request: int, method: str, **params: Any) -> dict[str, Any]:
    where = {"threadId": "thread-1", "turnId": "turn-of-thread-1", "itemId": "i"}
    return {"id": request, "method": method, "params": {**where, **params}}


def offered(call: Any) -> tuple[Tool, ...]:
    return (Tool(name="it", description="", schema={}, call=call),)


def trouble(step: str, what: str, *, request: int = 7) -> StepTaken:
    return StepTaken(step=step, detail={"request": str(request), "what": what})


def about(tap: MemoryTap) -> list[SupervisorRow]:
    return [seen for seen in tap.of(Direction.SELF) if isinstance(seen, QuestionAnswered | StepTaken)]


def beside_another(question: dict[str, Any], **more: Any) -> tuple[Any, list[SupervisorRow]]:
    """The answer and the record, where another session of the same process then still has its turn."""

    async def whole() -> tuple[Any, list[SupervisorRow]]:
        tap = MemoryTap()
        async with (
            connected() as line,
            line.host.open_session(session_ask(**more), tap),
            line.host.open_session(session_ask("b.codex.r1.1"), MemoryTap()) as other,
        ):
            line.twin.say(question)
            answer = await line.twin.answer()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(other.turn, "Are you there?")
                await anyio.wait_all_tasks_blocked()
                line.twin.notify("turn/completed", threadId="thread-2", turn={"id": "turn-of-thread-2", "items": []})
            assert line.host.is_alive
            return answer["result"], about(tap)

    return run(whole)


SURROGATE = "UnicodeEncodeError: 'utf-8' codec can't encode character '\\udc80' in position 0: surrogates not allowed"
CANCELLED = "CancelledError: the callback raised it without being cancelled"


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("\udc80 bad", SURROGATE),
        (5, "TypeError: a tool must return a str, not int"),
        (None, "TypeError: a tool must return a str, not NoneType"),
        (UnspeakableError(), "UnspeakableError (its message cannot be formatted)"),
        (ValueError("\udc80"), "ValueError: \\udc80"),
        (asyncio.CancelledError(), CANCELLED),
        (ExceptionGroup("both", [KeyError("a")]), "ExceptionGroup: both (1 sub-exception)"),
        (BaseExceptionGroup("both", [GeneratorExit()]), "BaseExceptionGroup: both (1 sub-exception)"),
    ],
    ids=["surrogate", "number", "nothing", "no words", "bad words", "cancelled", "group", "base group"],
)
def test_a_tool_that_fails_in_any_way_fails_alone(given: Any, what: str) -> None:
    async def call(_: Any) -> Any:
        if isinstance(given, BaseException):
            raise given
        return given

    result, seen = beside_another(ask(7, CALL, tool="it"), tools=offered(call))
    assert result == {"contentItems": [{"type": "inputText", "text": what}], "success": False}
    assert seen == [
        trouble("callback failed", what),
        QuestionAnswered(request="7", method=CALL, decision="failed", by="error"),
    ]


async def _cancels(_: Question) -> Any:
    raise asyncio.CancelledError


async def _breaks_in_pieces(_: Question) -> Any:
    raise BaseExceptionGroup("both", [GeneratorExit()])


def _is_not_async(_: Question) -> Any:
    return Decision.ACCEPT


@pytest.mark.parametrize(
    ("decide", "what"),
    [
        (_cancels, CANCELLED),
        (_breaks_in_pieces, "BaseExceptionGroup: both (1 sub-exception)"),
        (_is_not_async, "TypeError: object Decision can't be used in 'await' expression"),
    ],
)
@pytest.mark.requirement("runtime.approvals.answered")
def test_a_callback_that_fails_in_any_way_denies_and_fails_alone(decide: Any, what: str) -> None:
    result, seen = beside_another(ask(7, COMMAND), approvals=Approvals.ASK, decide=decide)
    assert result == {"decision": "decline"}
    assert seen == [
        trouble("callback failed", what),
        QuestionAnswered(request="7", method=COMMAND, decision="decline", by="error"),
    ]


def test_one_that_will_not_be_cancelled_is_given_up_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "GRACE_S", 0.01)
    it_may_end = anyio.Event()

    async def stubborn(_: Any) -> str:
        while not it_may_end.is_set():
            try:
                await it_may_end.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    async def whole() -> tuple[list[SupervisorRow], list[SupervisorRow]]:
        tap = MemoryTap()
        async with connected() as line:
            tools = offered(stubborn)
            async with line.host.open_session(session_ask(tools=tools, tool_deadline_s=0.01), tap):
                line.twin.say(ask(7, CALL, tool="it"))
                assert (await line.twin.answer())["result"]["success"] is False
            # One whose session is over, and its record sealed.
            async with line.host.open_session(session_ask(tools=tools), MemoryTap()) as closed:
                line.twin.say(ask(8, CALL, tool="it", threadId=closed.thread))
                await line.twin.taken_in()
                await anyio.wait_all_tasks_blocked()
        try:
            return about(tap), about(line.tap)
        finally:
            it_may_end.set()

    why = "the callback did not end when it was cancelled"
    late = QuestionAnswered(request="7", method=CALL, decision="failed", by="deadline")
    assert run(whole) == ([trouble("callback given up", why), late], [trouble("callback given up", why, request=8)])
