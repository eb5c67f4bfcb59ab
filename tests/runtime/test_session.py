"""One thread: its turn, its interrupt, and an end that takes a few seconds at most, whatever the server does."""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import anyio
import pytest

from proctor.contain.launch import new_marker
from proctor.errors import DeadlineError, PeerError, RefusedError
from proctor.event.row import Direction, StepTaken
from proctor.runtime.codex_app_server.session import Deadlines
from tests.runtime.twin import (
    Handler,
    MemoryTap,
    Request,
    Twin,
    connected,
    ignore,
    meanwhile,
    notification,
    run,
    session_ask,
    turn_completed,
)

THREAD = "thread-1"
TURN = "turn-of-thread-1"


def asked(tap: MemoryTap) -> list[str]:
    """The methods of our requests, in order."""
    return [line.split(b'"method":"')[1].split(b'"')[0].decode() for line in tap.of(Direction.OUT)]


def in_order(*chunks: Callable[[Request], Any]) -> Handler:
    """A handler that says these, each in a chunk of its own."""

    def handle(twin: Twin, request: Request) -> None:
        for chunk in chunks:
            twin.say(chunk(request))

    return handle


def the_reply(request: Request) -> Any:
    return {"id": request.id, "result": {"turn": {"id": TURN, "status": "inProgress"}}}


def the_start(_: Request) -> Any:
    return notification("turn/started", threadId=THREAD, turn={"id": TURN})


def the_end(_: Request) -> Any:
    return turn_completed(THREAD)


@pytest.mark.parametrize(
    "order",
    [
        (the_reply, the_start, the_end),
        (the_start, the_reply, the_end),
        (the_start, the_end, the_reply),
        (the_end, the_reply, the_start),
        (the_start, the_start, the_reply, the_end, the_end),
        (the_reply, the_end),
    ],
    ids=lambda order: ", ".join(each.__name__ for each in order),
)
@pytest.mark.requirement("attempt.no-orphans")
def test_a_turn_ends_in_whatever_order_its_frames_come(order: tuple[Callable[[Request], Any], ...]) -> None:
    async def test() -> list[str]:
        tap = MemoryTap()
        async with connected(Twin({"turn/start": in_order(*order)})) as line:
            async with line.host.open_session(session_ask(), tap) as session:
                await session.turn("Go on.")
                await session.interrupt()
                await session.settle()
            return asked(tap)

    # Nothing is interrupted that has ended, and terminals are cleaned however it ended.
    assert run(test) == ["thread/start", "turn/start", "thread/backgroundTerminals/clean", "thread/unsubscribe"]


def test_frames_of_an_earlier_turn_do_not_end_the_next_one() -> None:
    async def test() -> None:
        turns = iter(["one", "two"])

        def start(twin: Twin, request: Request) -> None:
            turn = next(turns)
            if turn == "two":
                twin.say(turn_completed(THREAD, turn="one"))
            twin.reply(request, {"turn": {"id": turn}})

        async with (
            connected(Twin({"turn/start": start})) as line,
            line.host.open_session(session_ask(), MemoryTap()) as session,
        ):
            ended: list[str] = []

            async def ask(prompt: str) -> None:
                await session.turn(prompt)
                ended.append(prompt)

            async with meanwhile(lambda: ask("First.")):
                line.twin.say(turn_completed(THREAD, turn="one"))
                await anyio.wait_all_tasks_blocked()
            async with meanwhile(lambda: ask("Second.")):
                line.twin.say(turn_completed(THREAD, turn="one"))
                await anyio.wait_all_tasks_blocked()
                assert ended == ["First."]
                line.twin.say(turn_completed(THREAD, turn="two"))
                await anyio.wait_all_tasks_blocked()
                assert ended == ["First.", "Second."]

    run(test)


def test_the_end_of_a_helpers_turn_is_not_the_end_of_the_turn() -> None:
    def helper(_: Request) -> Any:
        return turn_completed("helper")

    async def test() -> list[str]:
        tap = MemoryTap()
        twin = Twin({"turn/start": in_order(helper, the_reply, helper)})
        async with connected(twin) as line, line.host.open_session(session_ask(), tap) as session:
            twin.say(notification("thread/started", thread={"id": "helper", "parentThreadId": THREAD}))
            async with meanwhile(lambda: session.turn("Go on.")):
                await session.interrupt()
        return asked(tap)

    # There was still something to interrupt, and by the reply alone it was known what.
    assert run(test) == ["thread/start", "turn/start", "turn/interrupt", "thread/unsubscribe"]


@pytest.mark.requirement("attempt.interrupt-one")
def test_a_turn_cut_off_before_its_id_is_known_is_interrupted_all_the_same() -> None:
    async def test() -> tuple[list[str], Any]:
        tap = MemoryTap()
        interrupts: list[Any] = []

        def interrupt(twin: Twin, request: Request) -> None:
            interrupts.append(request.params)
            twin.say({"id": request.id, "result": {}}, turn_completed(THREAD, status="interrupted"))

        twin = Twin({"turn/start": None, "turn/interrupt": interrupt})
        async with (
            connected(twin, deadlines=Deadlines()) as line,
            line.host.open_session(session_ask(), tap) as session,
        ):
            async with meanwhile(lambda: session.turn("Go on.")):
                request = await twin.asked("turn/start")
            async with meanwhile(session.interrupt):
                twin.say(the_reply(request), the_start(request))
                await anyio.wait_all_tasks_blocked()
        return asked(tap), interrupts

    assert run(test) == (
        ["thread/start", "turn/start", "turn/interrupt", "thread/unsubscribe"],
        [{"threadId": THREAD, "turnId": TURN}],
    )


def test_a_turn_that_was_refused_needs_no_interrupt() -> None:
    async def test() -> list[str]:
        tap = MemoryTap()

        def refuse(twin: Twin, request: Request) -> None:
            twin.refuse(request, -32600, "no")

        async with (
            connected(Twin({"turn/start": refuse}), deadlines=Deadlines(teardown_s=1000)) as line,
            line.host.open_session(session_ask(), tap) as session,
        ):
            with pytest.raises(RefusedError):
                await session.turn("Go on.")
            await session.interrupt()
        return asked(tap)

    assert run(test) == ["thread/start", "turn/start", "thread/unsubscribe"]


def test_settling_waits_for_the_late_end_of_a_command() -> None:
    def clean(twin: Twin, request: Request) -> None:
        twin.reply(request, {})
        twin.say(command("item/completed"))

    async def test() -> list[str]:
        tap = MemoryTap()
        twin = Twin({"thread/backgroundTerminals/clean": clean})
        async with (
            connected(twin, deadlines=Deadlines()) as line,
            line.host.open_session(session_ask(), tap) as session,
        ):
            twin.say(command("item/started"))
            await twin.taken_in()
            await session.settle()
            return [frame["method"] for frame in tap.heard if "method" in frame]

    assert run(test) == ["thread/started", "item/started", "item/completed"]


@pytest.mark.requirement("attempt.no-orphans")
def test_the_terminals_of_a_helper_are_cleaned_as_well() -> None:
    async def test() -> list[Any]:
        cleaned: list[Any] = []

        def clean(twin: Twin, request: Request) -> None:
            cleaned.append(request.params)
            twin.reply(request, {})

        twin = Twin({"thread/backgroundTerminals/clean": clean})
        async with connected(twin) as line, line.host.open_session(session_ask(), MemoryTap()) as session:
            twin.say(notification("thread/started", thread={"id": "helper", "parentThreadId": THREAD}))
            await twin.taken_in()
            await session.settle()
        return cleaned

    assert run(test) == [{"threadId": THREAD}, {"threadId": "helper"}]


@pytest.mark.requirement("attempt.interrupt-one")
@pytest.mark.requirement("attempt.no-orphans")
def test_settling_kills_a_process_that_codex_left_and_none_of_a_sibling_or_of_the_server() -> None:
    async def test() -> tuple[int | None, list[int | None]]:
        tap, twin = MemoryTap(), Twin()
        async with connected(twin) as line:
            marked = {"PROCTOR_SPAWN": line.marker}
            left = waiting_process({**marked, "PROCTOR_ATTEMPT": "a.codex.r1.1"})
            others = [
                waiting_process({**marked, "PROCTOR_ATTEMPT": "b.codex.r1.1"}),
                waiting_process(marked),
                waiting_process({"PROCTOR_SPAWN": new_marker(), "PROCTOR_ATTEMPT": "a.codex.r1.1"}),
            ]
            with left, ExitStack() as ends:
                for each in others:
                    ends.enter_context(each)
                    ends.callback(each.kill)
                async with line.host.open_session(session_ask("a.codex.r1.1"), tap) as session:
                    twin.say(command("item/started"), command("item/completed"))
                    await twin.taken_in()
                    await session.settle()
                assert tap.of(Direction.SELF) == [
                    StepTaken(step="processes killed after the turn", detail={"pids": [left.pid], "survived": False})
                ]
                return left.poll(), [each.poll() for each in others]

    assert run(test) == (-signal.SIGKILL, [None, None, None])


def command(method: str) -> dict[str, Any]:
    """A notification about the one command of the thread."""
    return notification(method, threadId=THREAD, item={"id": "c", "type": "commandExecution"})


def waiting_process(env: dict[str, str]) -> "subprocess.Popen[bytes]":
    """A shell that runs until it is killed. It has begun, so its environment can be read."""
    popen = subprocess.Popen(
        ["sh", "-c", "echo up; read -r _"], env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert popen.stdout is not None
    assert popen.stdout.readline() == b"up\n"
    return popen


# ── a server that does not answer ──


@pytest.mark.requirement("attempt.clocks")
@pytest.mark.parametrize("is_reading", [True, False], ids=["silent", "deaf"])
def test_a_server_that_falls_silent_costs_one_deadline_and_not_one_for_each_call(is_reading: bool) -> None:
    silent: dict[str, Handler | None] = {
        "turn/interrupt": ignore,
        "thread/backgroundTerminals/clean": ignore,
        "thread/unsubscribe": ignore,
    }
    deadlines = Deadlines(start_s=5, teardown_s=0.5, late_items_s=0.5, farewell_s=0.01)

    async def test() -> list[str]:
        tap = MemoryTap()
        async with connected(Twin(silent), deadlines=deadlines) as line:
            host = line.host
            # Five waits of up to half a second each, were they not all out of one purse.
            with anyio.CancelScope() as teardown:
                async with host.open_session(session_ask(), tap) as session:
                    async with meanwhile(lambda: session.turn("Go on.")):
                        item = {"id": "c", "type": "commandExecution"}
                        line.twin.say(notification("item/started", threadId=THREAD, item=item))
                        await line.twin.taken_in()
                    if not is_reading:
                        line.twin.reads = anyio.Event()
                    assert host.is_alive
                    teardown.deadline = anyio.current_time() + 2.0
                    await session.interrupt()
                    await session.settle()
            assert not teardown.cancelled_caught
            assert not host.is_alive, "it must not be handed to the next attempt"
        return asked(tap)

    assert run(test)[2:] == ["turn/interrupt", "thread/backgroundTerminals/clean", "thread/unsubscribe"]


def test_a_thread_that_does_not_start_ends_by_its_deadline_also_for_those_in_line() -> None:
    async def test() -> list[str]:
        found: list[str] = []
        deadlines = Deadlines(start_s=0.05)
        async with connected(Twin({"thread/start": ignore}), deadlines=deadlines) as line:

            async def attempt() -> None:
                try:
                    async with line.host.open_session(session_ask(), MemoryTap()):
                        pass
                except DeadlineError as error:
                    found.append(error.code)

            async with anyio.create_task_group() as attempts:
                for _ in range(20):
                    attempts.start_soon(attempt)
            assert not line.host.is_alive
        return found

    assert run(test) == ["peer.deadline"] * 20


@pytest.mark.parametrize("reply", [None, {}, {"thread": {}}, {"thread": {"id": 5}}, []])
def test_a_start_of_an_unknown_shape_is_no_session(reply: Any) -> None:
    async def test() -> None:
        def start(twin: Twin, request: Request) -> None:
            twin.reply(request, reply)

        async with connected(Twin({"thread/start": start})) as line:
            with pytest.raises(PeerError, match="thread/start: ") as refused:
                async with line.host.open_session(session_ask(), MemoryTap()):
                    pass
            assert refused.value.code == "peer.wire"

    run(test)


def test_a_cancelled_attempt_ends_its_turn_and_gives_its_thread_back() -> None:
    async def test() -> list[str]:
        tap = MemoryTap()
        async with connected() as line:

            async def attempt() -> None:
                async with line.host.open_session(session_ask(), tap) as session:
                    await session.turn("Go on.")

            async with meanwhile(attempt):
                pass
            assert line.host.is_alive
        return asked(tap)

    teardown = ["turn/interrupt", "thread/backgroundTerminals/clean", "thread/unsubscribe"]
    assert run(test) == ["thread/start", "turn/start", *teardown]


@pytest.mark.requirement("attempt.interrupt-one")
def test_a_turn_of_which_nothing_was_heard_is_interrupted_whatever_its_id() -> None:
    async def test() -> list[Any]:
        interrupts: list[Any] = []

        def interrupt(twin: Twin, request: Request) -> None:
            interrupts.append(request.params)
            twin.reply(request, {})

        twin = Twin({"turn/start": ignore, "turn/interrupt": interrupt})
        deadlines = Deadlines(start_s=0.05, teardown_s=0.05)
        async with (
            connected(twin, deadlines=deadlines) as line,
            line.host.open_session(session_ask(), MemoryTap()) as session,
        ):
            with pytest.raises(DeadlineError):
                await session.turn("Go on.")
            await session.interrupt()
        return interrupts

    assert run(test) == [{"threadId": THREAD, "turnId": ""}]
