"""Many sessions on one channel: each hears its own frames, and every line becomes exactly one row."""

from typing import Any

import anyio
import msgspec
import pytest

from proctor.errors import PeerError
from proctor.event.row import Direction, QuestionAnswered, StepTaken
from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.connection import OUTBOX
from proctor.spec.choices import Approvals
from tests.runtime.twin import (
    MemoryTap,
    Request,
    Twin,
    connected,
    meanwhile,
    notification,
    run,
    session_ask,
    turn_completed,
)

TURNS = 20


def saying(thread: str, number: int) -> dict[str, Any]:
    return notification(
        "item/agentMessage/delta", threadId=thread, turnId=f"turn-of-{thread}", itemId="m", delta=str(number)
    )


# ── whose frame is it ──


@pytest.mark.requirement("schedule.isolation")
@pytest.mark.requirement("runtime.events.lossless")
def test_twenty_sessions_on_one_channel_hear_only_their_own_frames() -> None:
    async def test() -> None:
        taps = {f"thread-{number}": MemoryTap() for number in range(1, TURNS + 1)}
        async with connected() as line:

            async def converse(number: int) -> None:
                tap = MemoryTap()
                async with line.host.open_session(session_ask(f"m{number}"), tap) as session:
                    taps[session.thread] = tap
                    await session.turn("Go on.")

            async with anyio.create_task_group() as attempts:
                for number in range(TURNS):
                    attempts.start_soon(converse, number)
                await anyio.wait_all_tasks_blocked()
                frames = [saying(thread, number) for number in range(10) for thread in taps]
                # Three chunks that cut frames in two.
                data = b"".join(msgspec.json.encode(frame) + b"\n" for frame in frames)
                for at in range(0, len(data), len(data) // 3):
                    line.twin.write(data[at : at + len(data) // 3])
                line.twin.say(*(turn_completed(thread) for thread in reversed(taps)))
            in_attempts = sum(len(tap.of(Direction.IN)) for tap in taps.values())
            assert line.connection.frames_in == in_attempts + len(line.tap.of(Direction.IN))
        for thread, tap in taps.items():
            said = [frame["params"]["delta"] for frame in tap.heard if frame.get("method") == "item/agentMessage/delta"]
            assert said == [str(number) for number in range(10)]
            assert {thread_of(frame) for frame in tap.heard} <= {thread, None}

    run(test)


def thread_of(frame: dict[str, Any]) -> str | None:
    params = frame.get("params", {})
    named: str | None = params.get("threadId") or params.get("thread", {}).get("id")
    return named


@pytest.mark.parametrize("is_first", [True, False], ids=["before its reply", "after its reply"])
def test_the_first_frames_of_a_thread_find_its_session(is_first: bool) -> None:
    async def test() -> list[str]:
        tap = MemoryTap()
        async with connected(Twin({"thread/start": None})) as line, anyio.create_task_group() as tasks:

            async def attempt() -> None:
                async with line.host.open_session(session_ask(), tap):
                    pass

            tasks.start_soon(attempt)
            request = await line.twin.asked("thread/start")
            frames = [
                notification("thread/started", thread={"id": "t"}),
                notification("warning", threadId="t", message="Careful."),
            ]
            reply = {"id": request.id, "result": {"thread": {"id": "t"}}}
            for frame in [*frames, reply] if is_first else [reply, *frames]:
                line.twin.say(frame)
        assert line.tap.of(Direction.IN) == []
        return [frame.get("method", "reply") for frame in tap.heard]

    heard = run(test)
    assert sorted(heard[:3]) == ["reply", "thread/started", "warning"]
    assert heard[3:] == ["reply"], "to thread/unsubscribe"


def test_frames_of_unknown_threads_and_of_no_thread_go_to_the_process() -> None:
    async def test() -> None:
        tap = MemoryTap()
        strangers = [
            notification("thread/started", thread={"id": "unknown"}),
            saying("unknown", 1),
            notification("account/rateLimits/updated", rateLimits={}),
            {"id": 99, "result": "a reply to nothing"},
        ]
        async with connected() as line, line.host.open_session(session_ask(), tap):
            line.twin.say(*strangers)
            await line.twin.taken_in()
            assert line.tap.heard == strangers
            assert len(tap.heard) == 2, "its own reply and thread/started"

    run(test)


def test_late_frames_of_a_closed_session_are_not_taken_for_those_of_the_next() -> None:
    async def test() -> None:
        first, second = MemoryTap(), MemoryTap()
        twin = Twin()
        async with connected(twin) as line:
            async with line.host.open_session(session_ask("first"), first):
                pass
            rows = len(first.rows)
            start = twin.handlers["thread/start"]
            assert start is not None

            def late_frame_first(twin: Twin, request: Request) -> None:
                twin.say(saying("thread-1", 7))
                start(twin, request)

            twin.handlers["thread/start"] = late_frame_first
            async with line.host.open_session(session_ask("second"), second):
                pass
            assert len(first.rows) == rows, "its record may be sealed by now"
            assert {thread_of(frame) for frame in second.heard} == {"thread-2", None}
            assert line.tap.heard == [saying("thread-1", 7)]

    run(test)


def test_a_thread_whose_start_was_given_up_is_nobodys_when_it_comes_at_last() -> None:
    async def test() -> None:
        second = MemoryTap()
        async with connected(Twin({"thread/start": None})) as line:

            async def give_up() -> None:
                async with line.host.open_session(session_ask("first"), MemoryTap()):
                    pass

            async with meanwhile(give_up):
                lost = await line.twin.asked("thread/start")
            async with anyio.create_task_group() as tasks:

                async def attempt() -> None:
                    async with line.host.open_session(session_ask("second"), second):
                        pass

                tasks.start_soon(attempt)
                asked = await line.twin.asked("thread/start")
                frames = [
                    notification("warning", threadId="found", message="Early."),
                    notification("warning", threadId="lost", message="Early."),
                    {"id": lost.id, "result": {"thread": {"id": "lost"}}},
                    notification("thread/started", thread={"id": "lost"}),
                    {"id": asked.id, "result": {"thread": {"id": "found"}}},
                    notification("thread/started", thread={"id": "found"}),
                ]
                for frame in frames:
                    line.twin.say(frame)
            # While two starts are unanswered an early frame can be of either, so it is nobody's.
            assert line.tap.heard == frames[:4]
            assert second.heard[:2] == frames[4:]

    run(test)


def test_a_thread_that_the_agent_starts_itself_belongs_to_the_attempt_that_it_works_for() -> None:
    async def test() -> None:
        tap, other = MemoryTap(), MemoryTap()
        twin = Twin()
        helper = notification("thread/started", thread={"id": "helper", "parentThreadId": "thread-1"})
        asking = {"id": "q", **notification("item/commandExecution/requestApproval", threadId="helper", itemId="i")}
        async with connected(twin) as line, line.host.open_session(session_ask(approvals=Approvals.ACCEPT), tap):
            twin.handlers["thread/start"] = None
            async with anyio.create_task_group() as tasks:

                async def attempt() -> None:
                    async with line.host.open_session(session_ask("other"), other):
                        pass

                tasks.start_soon(attempt)
                request = await twin.asked("thread/start")
                twin.say(helper, asking)
                assert await twin.answer() == {"id": "q", "result": {"decision": "accept"}}
                twin.reply(request, {"thread": {"id": "thread-2"}})
            assert tap.heard[2:] == [helper, asking]
            assert {thread_of(frame) for frame in other.heard} == {None}

    run(test)


def test_a_thread_that_is_given_twice_is_refused_the_second_time() -> None:
    async def test() -> None:
        def always_the_same(twin: Twin, request: Request) -> None:
            twin.reply(request, {"thread": {"id": "t"}})

        async with (
            connected(Twin({"thread/start": always_the_same})) as line,
            line.host.open_session(session_ask("first"), MemoryTap()),
        ):
            with pytest.raises(PeerError, match="a thread that belongs to another session"):
                async with line.host.open_session(session_ask("second"), MemoryTap()):
                    pass

    run(test)


# ── the agent's questions ──

RIGHT_SHAPES: dict[str, tuple[Any, Any]] = {
    "item/commandExecution/requestApproval": ({"decision": "decline"}, {"decision": "accept"}),
    "item/fileChange/requestApproval": ({"decision": "decline"}, {"decision": "accept"}),
    "applyPatchApproval": ({"decision": {"denied": {"rejection": "declined by policy"}}}, {"decision": "approved"}),
    "execCommandApproval": ({"decision": {"denied": {"rejection": "declined by policy"}}}, {"decision": "approved"}),
    "item/permissions/requestApproval": ({"permissions": {}, "scope": "turn"},) * 2,
    "item/tool/requestUserInput": ({"answers": {}},) * 2,
    "mcpServer/elicitation/request": ({"action": "decline", "content": None},) * 2,
    "item/tool/call": (
        {"contentItems": [{"type": "inputText", "text": "No tool of that name is offered."}], "success": False},
    )
    * 2,
    "currentTime/read": ({"currentTimeAt": 1_700_000_000},) * 2,
    "account/chatgptAuthTokens/refresh": (None, None),
    "attestation/generate": (None, None),
    "a/newer/question": (None, None),
}


@pytest.mark.requirement("runtime.approvals.answered")
@pytest.mark.parametrize("approvals", list(Approvals))
@pytest.mark.parametrize("method", RIGHT_SHAPES)
def test_every_question_is_answered_in_its_shape_and_recorded_before_the_answer_is_sent(
    method: str, approvals: Approvals
) -> None:
    async def test() -> None:
        twin = Twin()
        tap = MemoryTap(twin.journal)
        named = "conversationId" if method in {"applyPatchApproval", "execCommandApproval"} else "threadId"
        async with connected(twin) as line, line.host.open_session(session_ask(approvals=approvals), tap):
            twin.say({"id": "q-7", "method": method, "params": {named: "thread-1"}})
            answer = await twin.answer()
        expected = RIGHT_SHAPES[method][approvals is Approvals.ACCEPT]
        if expected is None:
            assert (answer["id"], answer["error"]["code"]) == ("q-7", -32601)
        else:
            assert answer == {"id": "q-7", "result": expected}
        [seen] = [said for said in tap.of(Direction.SELF) if isinstance(said, QuestionAnswered)]
        assert (seen.request, seen.method, seen.by) == ("q-7", method, "policy")
        sent = msgspec.json.encode(answer)
        order = [twin.journal.index(step) for step in [("recorded", seen), ("recorded", sent), ("sent", sent)]]
        assert order == sorted(order)

    run(test)


def test_the_shapes_above_are_of_all_questions_there_are() -> None:
    assert set(RIGHT_SHAPES) - {"a/newer/question"} == set(wire.APPROVALS)


@pytest.mark.parametrize("params", [[1, 2], "text", None, {"threadId": 5}, {"threadId": "thread-1", "itemId": []}])
def test_a_question_of_an_odd_shape_is_answered_too(params: Any) -> None:
    async def test() -> None:
        async with connected() as line, line.host.open_session(session_ask(), MemoryTap()):
            line.twin.say({"id": 0, "method": "item/fileChange/requestApproval", "params": params})
            assert await line.twin.answer() == {"id": 0, "result": {"decision": "decline"}}

    run(test)


def test_hundreds_of_questions_in_one_chunk_are_all_answered() -> None:
    async def test() -> None:
        async with connected() as line:
            line.twin.say(*({"id": number, "method": "currentTime/read", "params": {}} for number in range(500)))
            assert [(await line.twin.answer())["id"] for _ in range(500)] == list(range(500))

    run(test)


def test_an_answer_that_a_deaf_server_has_no_room_for_is_on_record_as_not_sent() -> None:
    async def test() -> list[Any]:
        twin = Twin()
        twin.reads = anyio.Event()
        async with connected(twin) as line:
            await anyio.wait_all_tasks_blocked()
            questions = range(OUTBOX + 3)
            twin.say(*({"id": number, "method": "currentTime/read", "params": {}} for number in questions))
            await twin.taken_in()
            return [said for said in line.tap.of(Direction.SELF) if isinstance(said, StepTaken)]

    why = "the agent does not read its input"
    assert run(test) == [
        # One is on its way, and the queue is full.
        StepTaken(step="answer not sent", detail={"request": str(number), "why": why})
        for number in (OUTBOX + 1, OUTBOX + 2)
    ]
