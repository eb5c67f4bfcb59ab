"""Our requests: each finds its own reply, or ends typed and in time, whatever the server does."""

import anyio
import msgspec
import pytest

from proctor.errors import DeadlineError, HangupError, PeerError, RefusedError
from proctor.event.row import Direction
from proctor.runtime.codex_app_server.calls import IN_FLIGHT, OVERLOADED
from tests.runtime.twin import Bystander, Line, Request, Twin, agree, connected, ignore, meanwhile, run

SOON_S = 0.02


async def call(line: Line, method: str = "any", *, number: int = 0, deadline_s: float = 5.0) -> object:
    return msgspec.json.decode(await line.connection.call(method, {"number": number}, deadline_s=deadline_s))


def test_replies_in_any_order_find_their_own_callers() -> None:
    async def test() -> dict[int, object]:
        got: dict[int, object] = {}

        async def ask(line: Line, number: int) -> None:
            got[number] = await call(line, number=number)

        async with connected(Twin({"any": None})) as line, anyio.create_task_group() as callers:
            for number in range(5):
                callers.start_soon(ask, line, number)
            requests = [await line.twin.asked("any") for _ in range(5)]
            for request in reversed(requests):
                line.twin.reply(request, request.params["number"])
        return got

    assert run(test) == {number: number for number in range(5)}


def test_a_refusal_is_an_error_of_its_own_and_is_not_tried_again() -> None:
    async def test() -> int:
        def refuse(twin: Twin, request: Request) -> None:
            twin.refuse(request, -32600, "thread not found: x")

        async with connected(Twin({"any": refuse})) as line:
            with pytest.raises(RefusedError, match="any: thread not found: x") as refused:
                await call(line)
            assert refused.value.code == "peer.refused"
            assert line.connection.is_usable
            return len(line.tap.of(Direction.OUT))

    assert run(test) == 1


def test_overload_is_backed_off_until_the_server_has_room() -> None:
    async def test() -> tuple[object, int]:
        refusals = iter(range(2))

        def overloaded_twice(twin: Twin, request: Request) -> None:
            if next(refusals, None) is None:
                twin.reply(request, "done")
            else:
                twin.refuse(request, OVERLOADED, "Server overloaded; retry later.")

        async with connected(Twin({"any": overloaded_twice})) as line:
            return await call(line), len(line.tap.of(Direction.OUT))

    assert run(test) == ("done", 3)


@pytest.mark.parametrize(
    ("pauses_s", "deadline_s"),
    [((0.001, 0.001), 5.0), ((1000.0,), 0.5)],
    ids=["until the tries are over", "until the deadline"],
)
def test_a_server_that_stays_overloaded_is_said_to_be_so(pauses_s: tuple[float, ...], deadline_s: float) -> None:
    async def test() -> None:
        def overloaded(twin: Twin, request: Request) -> None:
            twin.refuse(request, OVERLOADED, "Server overloaded; retry later.")

        async with connected(Twin({"any": overloaded}), pauses_s=pauses_s) as line:
            with pytest.raises(PeerError) as refused:
                await call(line, deadline_s=deadline_s)
            assert (type(refused.value), refused.value.code) == (PeerError, "peer.overloaded")
            assert len(line.tap.of(Direction.OUT)) == len(line.tap.of(Direction.IN)) <= 1 + len(pauses_s)
            assert line.connection.is_usable, "it did answer"

    run(test)


def test_no_reply_ends_at_the_deadline() -> None:
    async def test() -> None:
        async with connected(Twin({"any": ignore})) as line:
            with pytest.raises(DeadlineError, match=r"any: no reply within 0\.02 s") as late:
                await call(line, deadline_s=SOON_S)
            assert late.value.code == "peer.deadline"

    run(test)


@pytest.mark.requirement("schedule.recovery")
@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "at its deadline"])
def test_a_server_that_owes_an_answer_somebody_gave_up_on_is_not_used_until_it_answers(is_cancelled: bool) -> None:
    async def test() -> list[bool]:
        usable = []
        async with connected(Twin({"any": None})) as line:
            if is_cancelled:
                async with meanwhile(lambda: call(line)):
                    usable.append(line.host.is_alive)
            else:
                with pytest.raises(DeadlineError):
                    await call(line, deadline_s=0.2)
                usable.append(True)
            usable.append(line.host.is_alive)
            line.twin.reply(await line.twin.asked("any"), "late")
            await line.twin.taken_in()
            usable.append(line.host.is_alive)
        return usable

    assert run(test) == [True, False, True]


def test_a_reply_that_comes_too_late_goes_to_the_record_of_whoever_asked() -> None:
    async def test() -> tuple[list[object], list[object]]:
        asker = Bystander()
        async with connected(Twin({"any": None})) as line:
            async with meanwhile(lambda: line.connection.call("any", {}, deadline_s=5, listener=asker)):
                request = await line.twin.asked("any")
            line.twin.reply(request, "late")
            await line.twin.taken_in()
            return asker.tap.heard, line.tap.heard

    assert run(test) == ([{"id": 1, "result": "late"}], [])


@pytest.mark.parametrize("count", [1, IN_FLIGHT + 8])
def test_a_server_that_does_not_read_cannot_hang_a_caller(count: int) -> None:
    async def test() -> list[str]:
        twin = Twin()
        twin.reads = anyio.Event()
        codes: list[str] = []

        async def ask(line: Line) -> None:
            try:
                await call(line, deadline_s=SOON_S)
            except PeerError as error:
                codes.append(error.code)

        async with connected(twin) as line:
            async with anyio.create_task_group() as callers:
                for _ in range(count):
                    callers.start_soon(ask, line)
            assert not line.connection.is_usable
        return codes

    assert run(test) == ["peer.deadline"] * count


def test_no_more_than_the_cap_is_asked_at_a_time() -> None:
    async def test() -> None:
        twin = Twin({"any": None})
        async with connected(twin) as line, anyio.create_task_group() as callers:
            for _ in range(2 * IN_FLIGHT):
                callers.start_soon(call, line)
            asked = [await twin.asked("any") for _ in range(IN_FLIGHT)]
            await anyio.wait_all_tasks_blocked()
            assert len(line.tap.of(Direction.OUT)) == IN_FLIGHT
            for done, request in enumerate(asked, start=1):
                twin.reply(request, None)
                asked.append(await twin.asked("any"))
                await anyio.wait_all_tasks_blocked()
                assert len(line.tap.of(Direction.OUT)) == IN_FLIGHT + done
                if done == IN_FLIGHT:
                    break
            for request in asked[IN_FLIGHT:]:
                twin.reply(request, None)

    run(test)


def test_a_caller_cancelled_in_the_middle_gives_its_place_to_the_next() -> None:
    async def test() -> object:
        async with connected(Twin({"any": ignore, "other": agree})) as line:
            for _ in range(IN_FLIGHT):
                with anyio.move_on_after(0):
                    await call(line)
            async with anyio.create_task_group() as callers:
                for _ in range(IN_FLIGHT):
                    callers.start_soon(call, line)
                await anyio.wait_all_tasks_blocked()
                callers.cancel_scope.cancel()
            return await call(line, "other")

    assert run(test) == {}


def test_the_end_of_the_server_ends_every_call_at_once() -> None:
    async def test() -> list[str]:
        found: list[str] = []

        async def ask(line: Line) -> None:
            try:
                await call(line, deadline_s=1000)
            except HangupError as error:
                found.append(str(error))

        async with connected(Twin({"any": ignore})) as line:
            async with anyio.create_task_group() as callers:
                for _ in range(3):
                    callers.start_soon(ask, line)
                await anyio.wait_all_tasks_blocked()
                line.twin.hang_up()
            await ask(line)
        return found

    assert run(test) == ["any: the agent closed its output; it exited with status 0"] * 4
