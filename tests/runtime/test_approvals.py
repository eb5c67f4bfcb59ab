"""The agent's questions: who answers them, when, and what is on record of it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from proctor.event.row import Direction, QuestionAnswered, StepTaken
from proctor.ids import CallId
from proctor.runtime.base import Decision, Question, Tool
from proctor.runtime.codex_app_server.session import Deadlines
from proctor.spec.choices import Approvals
from tests.runtime.twin import (
    Line,
    MemoryTap,
    Twin,
    connected,
    meanwhile,
    notification,
    run,
    session_ask,
    turn_completed,
)

THREAD = "thread-1"
TURN = "turn-of-thread-1"
COMMAND = "item/commandExecution/requestApproval"
PATCH = "item/fileChange/requestApproval"

Test = Callable[[Line, MemoryTap, Any], Awaitable[Any]]


def ask(request: int, method: str = COMMAND, **params: Any) -> dict[str, Any]:
    return {"id": request, "method": method, "params": {"threadId": THREAD, "turnId": TURN, "itemId": "i", **params}}


def answered(tap: MemoryTap) -> list[Any]:
    return [seen for seen in tap.of(Direction.SELF) if isinstance(seen, QuestionAnswered | StepTaken)]


def row(decision: str, by: str, *, request: int = 7, method: str = COMMAND) -> QuestionAnswered:
    return QuestionAnswered(request=str(request), method=method, decision=decision, by=by)


def in_session(test: Test, **more: Any) -> Any:
    async def whole() -> Any:
        tap = MemoryTap()
        async with connected() as line, line.host.open_session(session_ask(**more), tap) as session:
            return await test(line, tap, session)

    return run(whole)


async def forever(_: Question) -> Decision:
    await anyio.sleep_forever()
    return Decision.ACCEPT


@pytest.mark.requirement("runtime.approvals.answered")
def test_whoever_is_asked_is_told_what_the_agent_wants_in_our_words() -> None:
    heard: list[Question] = []

    async def decide(question: Question) -> Decision:
        heard.append(question)
        return Decision.ACCEPT

    async def test(line: Line, tap: MemoryTap, _: Any) -> list[Any]:
        change = {"path": "/w/a", "kind": {"type": "update", "move_path": "/w/b"}, "diff": ""}
        line.twin.notify("item/started", threadId=THREAD, item={"id": "i", "type": "fileChange", "changes": [change]})
        line.twin.say(ask(7, itemId="c", command="ls -l", cwd="/w", reason="to see"), ask(8, PATCH))
        answers = [await line.twin.answer(), await line.twin.answer()]
        assert answered(tap) == [row("accept", "callback"), row("accept", "callback", request=8, method=PATCH)]
        return answers

    answers = in_session(test, approvals=Approvals.ASK, decide=decide)
    assert answers == [{"id": 7, "result": {"decision": "accept"}}, {"id": 8, "result": {"decision": "accept"}}]
    native = {"threadId": THREAD, "turnId": TURN, "itemId": "i"}
    assert heard == [
        Question(
            request="7",
            about="command",
            command="ls -l",
            cwd="/w",
            reason="to see",
            call=CallId("c"),
            native={**native, "itemId": "c", "command": "ls -l", "cwd": "/w", "reason": "to see"},
        ),
        Question(request="8", about="patch", paths=("/w/a", "/w/b"), call=CallId("i"), native=native),
    ]


@pytest.mark.requirement("runtime.approvals.answered")
def test_silence_denies_at_the_deadline() -> None:
    async def test(line: Line, tap: MemoryTap, _: Any) -> Any:
        line.twin.say(ask(7))
        return await line.twin.answer(), answered(tap)

    assert in_session(test, approvals=Approvals.ASK, decide=forever, decide_deadline_s=0.01) == (
        {"id": 7, "result": {"decision": "decline"}},
        [row("decline", "deadline")],
    )


def test_one_who_raises_or_says_neither_yes_nor_no_denies_and_that_is_on_record() -> None:
    async def raises(_: Question) -> Decision:
        raise KeyError("lost")

    async def mumbles(_: Question) -> Any:
        return "perhaps"

    async def test(line: Line, tap: MemoryTap, _: Any) -> Any:
        line.twin.say(ask(7))
        assert await line.twin.answer() == {"id": 7, "result": {"decision": "decline"}}
        return answered(tap)

    def failure(what: str) -> StepTaken:
        return StepTaken(step="callback failed", detail={"request": "7", "what": what})

    assert in_session(test, approvals=Approvals.ASK, decide=raises) == [
        failure("KeyError: 'lost'"),
        row("decline", "error"),
    ]
    assert in_session(test, approvals=Approvals.ASK, decide=mumbles) == [
        failure("ValueError: 'perhaps' is not a valid Decision"),
        row("decline", "error"),
    ]


@pytest.mark.parametrize(
    "over",
    [
        lambda twin: twin.notify("serverRequest/resolved", threadId=THREAD, requestId=7),
        lambda twin: twin.say(turn_completed(THREAD, status="interrupted")),
        lambda twin: twin.hang_up(),
    ],
    ids=["resolved", "turn over", "hangup"],
)
def test_a_question_that_goes_away_is_not_thought_about_any_longer(over: Callable[[Twin], None]) -> None:
    async def test(line: Line, tap: MemoryTap, _: Any) -> Any:
        line.twin.say(ask(7))
        await asked.wait()
        over(line.twin)
        await cancelled.wait()
        return answered(tap), [frame for frame in tap.of(Direction.OUT) if b'"id":7' in frame]

    asked, cancelled = anyio.Event(), anyio.Event()

    async def decide(question: Question) -> Decision:
        asked.set()
        try:
            return await forever(question)
        finally:
            cancelled.set()

    assert in_session(test, approvals=Approvals.ASK, decide=decide) == ([row("none", "cancelled")], [])


def test_a_session_that_closes_takes_its_questions_with_it() -> None:
    async def whole() -> list[Any]:
        tap = MemoryTap()
        async with connected() as line:
            async with line.host.open_session(session_ask(approvals=Approvals.ASK, decide=forever), tap):
                line.twin.say(ask(7))
                await line.twin.taken_in()
            assert line.host.is_alive
        return answered(tap)

    assert run(whole) == [row("none", "cancelled")]


def test_a_question_withdrawn_in_the_chunk_that_asks_it_is_never_put() -> None:
    async def never(_: Question) -> Decision:
        raise AssertionError("nobody should be asked")

    async def test(line: Line, tap: MemoryTap, _: Any) -> list[Any]:
        line.twin.say(ask(7), notification("serverRequest/resolved", threadId=THREAD, requestId=7))
        await line.twin.taken_in()
        await anyio.wait_all_tasks_blocked()
        return answered(tap)

    assert in_session(test, approvals=Approvals.ASK, decide=never) == [row("none", "cancelled")]


@pytest.mark.requirement("attempt.clocks")
def test_the_agent_is_not_silent_while_it_waits_for_us() -> None:
    permits = anyio.Event()

    async def decide(_: Question) -> Decision:
        await permits.wait()
        return Decision.DENY

    async def test(line: Line, _: MemoryTap, session: Any) -> list[float]:
        line.clock.advance(100)
        before = session.last_heard_s
        line.twin.say(ask(7))
        await line.twin.taken_in()
        line.clock.advance(50)
        waiting = session.last_heard_s
        permits.set()
        await line.twin.answer()
        line.clock.advance(5)
        return [before, waiting, session.last_heard_s]

    assert in_session(test, approvals=Approvals.ASK, decide=decide) == [0, 150, 150]


def test_to_ask_with_nobody_to_be_asked_is_to_deny() -> None:
    async def test(line: Line, tap: MemoryTap, _: Any) -> Any:
        line.twin.say(ask(7))
        assert await line.twin.answer() == {"id": 7, "result": {"decision": "decline"}}
        return answered(tap)

    assert in_session(test, approvals=Approvals.ASK) == [row("decline", "policy")]


def test_wider_permissions_are_granted_by_a_person_and_by_no_policy() -> None:
    async def agree(_: Question) -> Decision:
        return Decision.ACCEPT

    wanted = {"network": {"enabled": True}}

    async def test(line: Line, _: MemoryTap, __: Any) -> Any:
        line.twin.say(ask(7, "item/permissions/requestApproval", permissions=wanted))
        return (await line.twin.answer())["result"]

    assert in_session(test, approvals=Approvals.ASK, decide=agree) == {"permissions": wanted, "scope": "turn"}
    assert in_session(test, approvals=Approvals.ACCEPT, decide=agree) == {"permissions": {}, "scope": "turn"}


@pytest.mark.parametrize(
    ("question", "decision"),
    [
        (ask(7, PATCH), "accept"),
        (ask(7, PATCH, itemId="outside"), "decline"),
        (ask(7, PATCH, itemId="never heard of"), "decline"),
        (ask(7, PATCH, grantRoot="/"), "decline"),
        (ask(7, COMMAND, command="ls"), "decline"),
    ],
    ids=["inside", "outside", "unknown", "wider root", "command"],
)
def test_the_workspace_policy_accepts_patches_that_surely_stay_inside(
    tmp_path: Path, question: Any, decision: str
) -> None:
    async def test(line: Line, tap: MemoryTap, _: Any) -> Any:
        for item, path in (("i", tmp_path / "a"), ("outside", tmp_path / "../b")):
            changes = [{"path": str(tmp_path / "c"), "kind": {"type": "add"}}, {"path": str(path)}]
            line.twin.notify(
                "item/started", threadId=THREAD, item={"id": item, "type": "fileChange", "changes": changes}
            )
        line.twin.say(question)
        assert await line.twin.answer() == {"id": 7, "result": {"decision": decision}}
        return answered(tap)

    said = in_session(test, approvals=Approvals.WORKSPACE, workspace=tmp_path)
    assert said == [row(decision, "policy", method=question["method"])]


def test_a_request_id_that_is_used_again_is_another_question() -> None:
    heard: list[str | None] = []

    async def decide(question: Question) -> Decision:
        heard.append(question.command)
        return Decision.ACCEPT

    async def test(line: Line, tap: MemoryTap, _: Any) -> list[Any]:
        line.twin.say(ask(7, command="first"), ask(7, command="second"))
        await line.twin.answer()
        await anyio.wait_all_tasks_blocked()
        return answered(tap)

    rows = in_session(test, approvals=Approvals.ASK, decide=decide)
    assert (rows, heard) == ([row("none", "cancelled"), row("accept", "callback")], ["second"])


def test_a_command_that_was_never_allowed_is_not_waited_for() -> None:
    tap = MemoryTap()

    async def whole() -> list[str]:
        item = {"id": "i", "type": "commandExecution"}
        deadlines = Deadlines(teardown_s=1000, late_items_s=1000)
        async with (
            connected(deadlines=deadlines) as line,
            line.host.open_session(session_ask(approvals=Approvals.ASK, decide=forever), tap) as session,
        ):
            async with meanwhile(lambda: session.turn("Go on.")):
                line.twin.say(notification("item/started", threadId=THREAD, item=item), ask(7))
                await line.twin.taken_in()
                await session.interrupt()
            await session.settle()
            return [msgspec.json.decode(line).get("method") for line in tap.of(Direction.OUT)]

    assert run(whole)[-2:] == ["turn/interrupt", "thread/backgroundTerminals/clean"]


# ── tools of ours ──


def test_a_tool_of_ours_is_called_and_its_failure_is_told_to_the_agent() -> None:
    async def halve(arguments: Any) -> str:
        if arguments["n"] == 13:
            await anyio.sleep_forever()
        return str(12 // arguments["n"])

    tool = Tool(name="halve", description="", schema={}, call=halve)
    method = "item/tool/call"

    async def test(line: Line, tap: MemoryTap, _: Any) -> Any:
        answers = []
        for request, arguments in enumerate([{"n": 4}, {"n": 0}, {"n": 13}, 5]):
            line.twin.say(ask(request, method, tool="halve", arguments=arguments))
            answers.append((await line.twin.answer())["result"])
        seen = [each for each in answered(tap) if isinstance(each, QuestionAnswered)]
        return [(each["contentItems"][0]["text"], each["success"]) for each in answers], seen

    assert in_session(test, tools=(tool,), tool_deadline_s=0.02) == (
        [
            ("3", True),
            ("ZeroDivisionError: integer division or modulo by zero", False),
            ("no answer within 0.02 s", False),
            ("TypeError: 'int' object is not subscriptable", False),
        ],
        [
            row("answered", "tool", request=0, method=method),
            row("failed", "error", request=1, method=method),
            row("failed", "deadline", request=2, method=method),
            row("failed", "error", request=3, method=method),
        ],
    )
