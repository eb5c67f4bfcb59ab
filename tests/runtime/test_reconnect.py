"""A connection that drops while the server lives, and what becomes of the threads on it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from proctor.contain.launch import new_marker
from proctor.errors import DeadlineError, HangupError
from proctor.event.row import ChannelClosed, Direction, StepTaken
from proctor.ids import ThreadId
from proctor.runtime.codex_app_server.connection import Connection
from proctor.runtime.codex_app_server.host import CodexHost, greet
from proctor.runtime.codex_app_server.reconnect import TRIES, Reconnection
from proctor.runtime.codex_app_server.session import LOST, LOST_END, LOST_START, CodexSession
from proctor.testing.clock import FakeClock
from tests.runtime.twin import (
    TINY,
    Handler,
    MemoryTap,
    Pipe,
    Request,
    Twin,
    run,
    session_ask,
    turn_completed,
)

THREAD = "thread-1"
TURN = "turn-of-thread-1"
DROPPED = StepTaken(step="the connection was lost")
RESTORED = StepTaken(step="connection restored", detail={"lostMs": 0})


def hello(twin: Twin, request: Request) -> None:
    twin.reply(request, {"userAgent": "proctor/0.163.0 (x)"})


def resumed(status: str) -> Handler:
    def reply(twin: Twin, request: Request) -> None:
        twin.reply(request, {"thread": {"id": request.params["threadId"], "status": {"type": status}}})

    return reply


class Dropping(Twin):
    """A twin whose channel can be cut and opened again."""

    def __init__(self, handlers: dict[str, Handler | None]) -> None:
        super().__init__({"initialize": hello, **handlers})
        self.exit = None
        self.reopened = 0
        self.stuck: anyio.Event | None = None

    async def send(self, data: bytes) -> None:
        if self.stuck is not None:
            await self.stuck.wait()
            raise HangupError("peer.hangup", "cut in the middle")
        await super().send(data)

    def drop(self) -> None:
        self._said.close()

    async def reopen(self) -> bool:
        self.reopened += 1
        await anyio.wait_all_tasks_blocked()
        self._said = Pipe[bytes]()
        if self.stuck is not None:
            self.stuck.set()
            self.stuck = None
        return True


@asynccontextmanager
async def dropping(**handlers: Handler | None) -> AsyncIterator[tuple[Dropping, CodexHost, MemoryTap]]:
    twin = Dropping({name.replace("_", "/"): handler for name, handler in handlers.items()})
    tap, clock = MemoryTap(), FakeClock()
    connection = Connection(twin, tap, clock=clock, link=Reconnection(twin, greet, clock=clock))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.run)
        yield twin, CodexHost(connection, {}, clock=clock, marker=new_marker(), deadlines=TINY), tap
        connection.is_closing = True
        twin.hang_up()
        await connection.closed.wait()


def asked(tap: MemoryTap) -> list[Any]:
    return [line.split(b'"method":"')[1].split(b'"')[0].decode() for line in tap.of(Direction.OUT)]


@pytest.mark.parametrize("status", ["active", "idle"])
def test_a_turn_goes_on_exactly_where_the_server_says_that_it_does(status: str) -> None:
    async def test() -> None:
        async with dropping(thread_resume=resumed(status)) as (twin, host, _):
            tap = MemoryTap()
            async with host.open_session(session_ask(is_persistent=True), tap) as session:

                async def turn() -> None:
                    if status == "active":
                        await session.turn("Go on.")
                        return
                    with pytest.raises(HangupError, match=LOST_END):
                        await session.turn("Go on.")

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(turn)
                    await anyio.wait_all_tasks_blocked()
                    twin.drop()
                    await anyio.wait_all_tasks_blocked()
                    twin.say(turn_completed(THREAD))
            last = RESTORED if status == "active" else ChannelClosed(cause=LOST_END)
            assert tap.of(Direction.SELF) == [DROPPED, last]
            assert host.is_alive

    run(test)


@pytest.mark.parametrize("is_persistent", [True, False])
def test_a_turn_whose_beginning_was_lost_is_ended_and_not_left_to_run_unheard(is_persistent: bool) -> None:
    async def test() -> tuple[Any, list[Any]]:
        halted: list[Any] = []

        def interrupt(twin: Twin, request: Request) -> None:
            halted.append(request.params)
            twin.reply(request, {})

        async with dropping(turn_start=None, turn_interrupt=interrupt) as (twin, host, _):
            tap = MemoryTap()
            async with host.open_session(session_ask(is_persistent=is_persistent), tap) as session:

                async def turn() -> None:
                    with pytest.raises(HangupError, match="turn/start: the connection was lost"):
                        await session.turn("Go on.")

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(turn)
                    await twin.asked("turn/start")
                    twin.drop()
                with pytest.raises(HangupError, match=LOST_START):
                    await is_over(session)
        assert tap.of(Direction.SELF) == [DROPPED, ChannelClosed(cause=LOST_START)]
        return halted, asked(tap)[2:4]

    async def is_over(session: Any) -> None:
        await session._turns.over.wait()
        await session.turn("Once more.")

    clean = "thread/backgroundTerminals/clean"
    assert run(test) == ([{"threadId": THREAD, "turnId": ""}], ["turn/interrupt", clean])


def test_an_ephemeral_thread_at_rest_is_lost_too_and_a_new_one_can_be_had() -> None:
    async def test() -> None:
        greetings: list[Request] = []

        def late(_: Twin, request: Request) -> None:
            greetings.append(request)

        async with dropping(initialize=late) as (twin, host, process):
            tap, next_tap = MemoryTap(), MemoryTap()
            async with host.open_session(session_ask(), tap) as session:

                async def turn() -> None:
                    with pytest.raises(HangupError, match="the thread was lost with the connection"):
                        await session.turn("Not said to a thread that nobody hears.")

                async def new_session() -> None:
                    async with host.open_session(session_ask("next"), next_tap) as new:
                        assert new.thread == "thread-2"

                twin.drop()
                await anyio.wait_all_tasks_blocked()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(turn)
                    tasks.start_soon(new_session)
                    await anyio.wait_all_tasks_blocked()
                    hello(twin, greetings[0])
            assert tap.of(Direction.SELF) == [DROPPED, ChannelClosed(cause=LOST)]
            assert asked(tap) == ["thread/start", "thread/unsubscribe"]
            assert next_tap.of(Direction.SELF) == []
            assert process.of(Direction.SELF) == [DROPPED]
            assert asked(process) == ["initialize", "initialized"]

    run(test)


def test_a_server_that_does_not_know_us_any_more_is_given_up_after_a_few_tries() -> None:
    def refuse(twin: Twin, request: Request) -> None:
        twin.refuse(request, -32600, "go away")

    async def test() -> None:
        async with dropping(initialize=refuse) as (twin, host, process):
            async with host.open_session(session_ask(is_persistent=True), MemoryTap()) as session:
                twin.drop()
                await anyio.wait_all_tasks_blocked()
                with pytest.raises(HangupError):
                    await session.turn("Go on.")
            assert not host.is_alive
            assert twin.reopened == TRIES
            failed = [seen.step for seen in process.of(Direction.SELF) if isinstance(seen, StepTaken)]
            assert failed.count("connection not restored") == TRIES

    run(test)


def test_what_is_asked_while_it_is_down_is_asked_when_it_is_up_and_old_debts_are_forgotten() -> None:
    async def test() -> None:
        greetings: list[Request] = []

        def late(_: Twin, request: Request) -> None:
            greetings.append(request)

        async def take_up() -> None:
            async with host.open_session(session_ask("other", resume=ThreadId("kept")), MemoryTap()) as other:
                assert other.thread == "kept"

        async with dropping(initialize=late, thread_resume=resumed("idle"), thread_read=None) as (twin, host, process):
            tap = MemoryTap()
            async with host.open_session(session_ask(is_persistent=True), tap) as session:
                with pytest.raises(DeadlineError):
                    await session._connection.call("thread/read", {}, deadline_s=0.01)
                assert not host.is_alive, "it owes an answer"
                async with anyio.create_task_group() as tasks:
                    twin.drop()
                    while not greetings:
                        await anyio.wait_all_tasks_blocked()
                    tasks.start_soon(session.turn, "Go on.")
                    tasks.start_soon(take_up)
                    await anyio.wait_all_tasks_blocked()
                    assert [b"turn/start" in line for line in tap.of(Direction.OUT)].count(True) == 0
                    hello(twin, greetings[0])
                    await anyio.wait_all_tasks_blocked()
                    twin.say(turn_completed(THREAD))
                assert host.is_alive
            assert asked(tap)[1:3] == ["thread/resume", "turn/start"]
            assert process.of(Direction.SELF) == [DROPPED]

    run(test)


def test_what_could_not_be_sent_to_a_dead_channel_does_not_silence_the_next() -> None:
    tap = MemoryTap()

    async def test() -> None:
        async with (
            dropping(thread_resume=resumed("idle")) as (twin, host, _),
            host.open_session(session_ask(is_persistent=True), tap) as session,
        ):
            twin.drop()
            session._connection.notify("said/too/late")
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.turn, "Go on.")
                await anyio.wait_all_tasks_blocked()
                twin.say(turn_completed(THREAD))

    run(test)
    assert asked(tap)[1:3] == ["thread/resume", "turn/start"]


def test_nothing_of_the_old_channel_goes_out_on_the_new_one_and_that_is_on_record() -> None:
    async def test() -> None:
        async with dropping(thread_resume=resumed("idle")) as (twin, host, process):
            tap = MemoryTap()
            async with host.open_session(session_ask(is_persistent=True), tap) as session:
                twin.stuck = anyio.Event()
                session._connection.notify("being/sent")
                await anyio.wait_all_tasks_blocked()
                session._connection.notify("still/waiting")
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(lost, session)
                    await anyio.wait_all_tasks_blocked()
                    twin.drop()
                while RESTORED not in tap.of(Direction.SELF):
                    await anyio.wait_all_tasks_blocked()
                sent = [msgspec.json.decode(line)["method"] for _, line in twin.journal]
                assert sent == ["thread/start", "initialize", "initialized", "thread/resume"]
                assert process.of(Direction.SELF) == [
                    DROPPED,
                    unsent("being/sent", why="cut in the middle"),
                    unsent("still/waiting"),
                ]
                assert tap.of(Direction.SELF) == [DROPPED, unsent("turn/steer", request=2), RESTORED]

    async def lost(session: CodexSession) -> None:
        with pytest.raises(HangupError, match="turn/steer: the connection was lost"):
            await session._connection.call("turn/steer", {}, deadline_s=5, listener=session)

    def unsent(method: str, *, request: int | None = None, why: str = "the connection was lost") -> StepTaken:
        return StepTaken(step="not sent", detail={"method": method, "request": request, "why": why})

    run(test)


def test_a_thread_that_was_being_taken_up_when_it_dropped_is_refused_and_hinders_nobody() -> None:
    async def test() -> None:
        async with dropping(thread_resume=None) as (twin, host, process):

            async def resume() -> None:
                with pytest.raises(HangupError, match="thread/resume: the connection was lost"):
                    async with host.open_session(session_ask(resume=ThreadId("kept")), MemoryTap()):
                        pass

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(resume)
                await twin.asked("thread/resume")
                twin.drop()
            async with host.open_session(session_ask("next"), MemoryTap()) as session:
                assert session.thread == THREAD
            assert process.of(Direction.SELF) == [DROPPED]

    run(test)
