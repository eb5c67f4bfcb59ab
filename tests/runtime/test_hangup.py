"""The other end goes away, or says what nobody can read: that is on record, and nobody waits for it."""

from base64 import encodebytes

import anyio
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proctor.errors import HangupError
from proctor.event.row import ChannelClosed, ChildExited, Direction
from proctor.evidence.redact import Redactor
from proctor.evidence.secrets import Secret
from proctor.runtime.codex_app_server.connection import Connection
from proctor.testing.clock import FakeClock
from proctor.transport.process import ExitStatus
from tests.runtime.twin import Bystander, Line, MemoryTap, Twin, connected, notification, run, session_ask

CLOSED = ChannelClosed(cause="the agent closed its output")
KILLED = ChildExited(signal=9)


@pytest.mark.requirement("schedule.recovery")
def test_the_end_of_the_server_in_the_middle_of_turns_is_on_every_record() -> None:
    async def test() -> None:
        taps = [MemoryTap() for _ in range(3)]
        said: list[str] = []
        async with connected() as line:
            line.twin.exit = ExitStatus(signal=9)

            async def converse(tap: MemoryTap) -> None:
                async with line.host.open_session(session_ask(), tap) as session:
                    with pytest.raises(HangupError) as hangup:
                        await session.turn("Go on.")
                    said.append(str(hangup.value))
                    await session.interrupt()
                    await session.settle()

            async with anyio.create_task_group() as attempts:
                for tap in taps:
                    attempts.start_soon(converse, tap)
                await anyio.wait_all_tasks_blocked()
                line.twin.hang_up()
            assert not line.host.is_alive
            for tap in (line.tap, *taps):
                assert tap.of(Direction.SELF) == [CLOSED, msgspec.structs.replace(KILLED, sessions=3)]
        assert said == ["the agent closed its output; it was ended by signal 9"] * 3

    run(test)


def test_whoever_waits_for_a_reply_hears_of_the_end_after_it_is_on_record() -> None:
    async def test() -> None:
        tap = MemoryTap()
        async with (
            connected(Twin({"turn/start": None})) as line,
            line.host.open_session(session_ask(), tap) as session,
            anyio.create_task_group() as tasks,
        ):

            async def ask() -> None:
                with pytest.raises(HangupError):
                    await session.turn("Go on.")
                assert tap.of(Direction.SELF) == [CLOSED, ChildExited(code=0)]
                assert not line.connection.closed.is_set(), "nobody else waits for the last complaints"

            tasks.start_soon(ask)
            await line.twin.asked("turn/start")
            line.twin.close_output()

    run(test)


def test_a_server_that_closes_its_output_and_lives_on_leaves_no_exit_on_record() -> None:
    async def test() -> None:
        async with connected() as line:
            line.twin.exit = None
        assert line.tap.of(Direction.SELF) == [CLOSED]

    run(test)


def test_what_redaction_holds_back_is_given_out_at_the_end() -> None:
    async def test() -> list[str]:
        tap = MemoryTap()
        async with connected() as line, line.host.open_session(session_ask(), tap):
            line.twin.say(
                notification("item/completed", threadId="thread-1", item={"id": "i", "type": "agentMessage"}),
                notification("turn/completed", threadId="thread-1", turn={"id": "t"}),
            )
            line.twin.hang_up()
            await line.connection.closed.wait()
        return tap.released

    assert run(test) == ["thread-1|i|", "thread-1|", ""]


def test_a_connection_that_is_cancelled_lets_its_callers_go() -> None:
    async def test() -> str:
        twin = Twin({"any": None})
        connection = Connection(twin, MemoryTap(), clock=FakeClock())
        found: list[str] = []

        async def ask() -> None:
            with pytest.raises(HangupError) as hangup:
                await connection.call("any", {}, deadline_s=1000)
            found.append(str(hangup.value))

        async with anyio.create_task_group() as callers:
            callers.start_soon(ask)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connection.run)
                await twin.asked("any")
                tasks.cancel_scope.cancel()
        assert connection.closed.is_set()
        return found[0]

    assert run(test) == "any: the connection was abandoned"


def test_complaints_are_recorded_line_by_line_with_a_torn_one_at_the_end() -> None:
    async def test() -> list[bytes]:
        async with connected() as line:
            line.twin.complain(b"ERROR one\nERR")
            line.twin.complain(b"OR two\n\nERROR thr")
        return line.tap.of(Direction.ERR)

    assert run(test) == [b"ERROR one", b"ERROR two", b"ERROR thr"]


def test_a_secret_that_is_wrapped_over_complaints_is_masked_however_they_arrive() -> None:
    value = "Zq81-value-xx77-kk/" * 7
    pem = b"-----BEGIN PRIVATE KEY-----\n" + encodebytes(bytes(range(120))) + b"-----END PRIVATE KEY-----\n"
    said = b"ERROR one\n" + encodebytes(value.encode()) + b"ERROR two\n" + pem + b"ERROR three\n"

    def recorded(size: int) -> list[bytes]:
        async def test() -> list[bytes]:
            async with connected() as line:
                for at in range(0, len(said), size):
                    line.twin.complain(said[at : at + size])
            return line.tap.of(Direction.ERR)

        redactor = Redactor([Secret(name="MINE", value=value)])
        return [redactor.line(each).raw for each in run(test)]

    for size in (7, 77, 1000):
        assert recorded(size) == [
            b"ERROR one",
            b"[redacted:MINE]",
            b"ERROR two",
            b"-----BEGIN PRIVATE KEY-----[redacted:scan:private-key]",
            b"-----END PRIVATE KEY-----",
            b"ERROR three",
        ]


def test_a_complaint_that_may_go_on_is_recorded_when_the_connection_is_given_up() -> None:
    async def test() -> list[bytes]:
        twin, tap = Twin(), MemoryTap()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Connection(twin, tap, clock=FakeClock()).run)
            twin.complain(b"a" * 76 + b"\n")
            await anyio.wait_all_tasks_blocked()
            assert tap.of(Direction.ERR) == []
            tasks.cancel_scope.cancel()
        return tap.of(Direction.ERR)

    assert run(test) == [b"a" * 76]


# ── bytes of any kind ──


def test_a_line_torn_by_the_end_is_recorded() -> None:
    async def test() -> list[bytes]:
        async with connected() as line:
            line.twin.write(b'{"method":"warning"}\n{"method":"tur')
        assert line.connection.frames_in == 2
        return line.tap.of(Direction.IN)

    assert run(test) == [b'{"method":"warning"}', b'{"method":"tur']


def test_a_line_of_twenty_megabytes_is_one_row_of_its_own_session() -> None:
    long = notification("item/completed", threadId="thread-1", item={"id": "i", "type": "x", "text": "é" * 10_000_000})

    async def test() -> None:
        tap = MemoryTap()
        async with connected() as line, line.host.open_session(session_ask(), tap):
            data = msgspec.json.encode(long) + b"\n"
            for at in range(0, len(data), 65536):
                line.twin.write(data[at : at + 65536])
            await line.twin.taken_in()
            assert tap.heard[-1] == long
            assert line.tap.of(Direction.IN) == []

    run(test)


ODD_LINES = [
    b"not json",
    b"\xff\xfe",
    b"[]",
    b'[{"method":"turn/completed"}]',
    b"null",
    b'"text"',
    b"{}",
    b'{"id":1}',
    b'{"id":1,"result":null}',
    b'{"id":1,"error":"no object"}',
    b'{"id":true,"result":{}}',
    b'{"id":[],"method":"item/tool/call"}',
    b'{"id":"1","method":"item/tool/call","params":[]}',
    b'{"method":5}',
    b'{"method":"turn/completed"}',
    b'{"method":"turn/completed","params":{"threadId":"t","turn":[]}}',
    b'{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u"}}}',
    b'{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}',
    b'{"method":"item/completed","params":{"threadId":"t","item":{"id":7,"type":{}}}}',
    b'{"method":"item/agentMessage/delta","params":{"threadId":"t","itemId":null,"delta":{}}}',
    b'{"method":"thread/started","params":{"thread":"t"}}',
    b'{"method":"thread/started","params":{"thread":{"id":"t","parentThreadId":"t"}}}',
    b'{"method":"thread/started","params":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    b'{"method":"warning","params":{"threadId":"t","message":"\xff"}}',
    b'{"id":18446744073709551616,"result":1e999}',
    b"[" * 100_000,
]


@pytest.mark.long
@pytest.mark.requirement("runtime.events.lossless")
@settings(max_examples=30)
@example([line for line in ODD_LINES for _ in range(2)], [1, 2, 3])
@given(
    st.lists(st.sampled_from(ODD_LINES) | st.binary(max_size=40), max_size=12),
    st.lists(st.integers(1, 4_000), min_size=1, max_size=9),
)
def test_whatever_is_said_in_whatever_chunks_every_line_is_one_row(lines: list[bytes], sizes: list[int]) -> None:
    data = b"\n".join(lines)
    expected = [line.removesuffix(b"\r") for line in data.split(b"\n")[:-1] if line.strip()]
    torn = data.split(b"\n")[-1]
    expected += [torn] if torn.strip() else []

    async def test() -> None:
        owner = Bystander()
        async with connected() as line:
            await bind(line, "t", owner)
            before = line.connection.frames_in
            at = turn = 0
            while at < len(data):
                size = sizes[turn % len(sizes)]
                line.twin.write(data[at : at + size])
                at, turn = at + size, turn + 1
        assert line.connection.frames_in - before == len(expected)
        rows = owner.tap.of(Direction.IN)[1:] + line.tap.of(Direction.IN)
        assert sorted(rows) == sorted(expected)
        assert owner.is_hung_up

    run(test)


async def bind(line: Line, thread: str, owner: Bystander) -> None:
    def start(twin: Twin, request: object) -> None:
        twin.say({"id": 1, "result": {"thread": {"id": thread}}})

    line.twin.handlers["thread/start"] = start
    await line.connection.start_thread("thread/start", {}, listener=owner, deadline_s=5)
