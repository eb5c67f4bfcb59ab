"""The greeting, and what is read of a frame before it is recorded."""

from typing import Any

import pytest

from proctor.errors import HangupError, MachineError, PeerError
from proctor.event.row import Direction
from proctor.runtime.codex_app_server import host as host_module
from proctor.runtime.codex_app_server.host import greet
from proctor.runtime.codex_app_server.route import NOT_A_MESSAGE, open_envelope
from tests.runtime.twin import Handler, Request, Twin, connected, run


def greeting(result: Any) -> Handler:
    def reply(twin: Twin, request: Request) -> None:
        twin.reply(request, result)

    return reply


@pytest.mark.parametrize(
    ("user_agent", "version"),
    [
        ("proctor/0.163.0 (Debian 12.0.0; x86_64) xterm (proctor; 0.1.0)", "0.163.0"),
        ("proctor/0.170.2-alpha.1 (x)", "0.170.2-alpha.1"),
        ("proctor/1.0.0", "1.0.0"),
    ],
)
def test_the_server_is_greeted_and_says_its_version(user_agent: str, version: str) -> None:
    async def test() -> tuple[str, list[bytes]]:
        async with connected(Twin({"initialize": greeting({"userAgent": user_agent, "codexHome": "/h"})})) as line:
            return await greet(line.connection), line.tap.of(Direction.OUT)

    told, said = run(test)
    assert told == version
    assert [b'"initialize"' in said[0], said[1]] == [True, b'{"method":"initialized"}']


@pytest.mark.requirement("runtime.compat")
@pytest.mark.parametrize("user_agent", ["proctor/0.162.9 (x)", "proctor/0.99.0", "proctor/unknown", ""])
def test_a_server_too_old_or_of_no_known_version_is_refused_with_what_to_install(user_agent: str) -> None:
    async def test() -> None:
        async with connected(Twin({"initialize": greeting({"userAgent": user_agent})})) as line:
            with pytest.raises(MachineError, match=r"older than 0\.163\.0; install openai-codex-cli-bin") as refused:
                await greet(line.connection)
            assert refused.value.code == "machine.binary-too-old"

    run(test)


@pytest.mark.parametrize("result", [None, {}, [], {"userAgent": 5}])
def test_a_greeting_of_an_unknown_shape_is_no_protocol_of_ours(result: Any) -> None:
    async def test() -> None:
        async with connected(Twin({"initialize": greeting(result)})) as line:
            with pytest.raises(PeerError, match="initialize: ") as refused:
                await greet(line.connection)
            assert refused.value.code == "peer.wire"

    run(test)


def test_a_program_that_only_prints_and_exits_is_a_hangup() -> None:
    async def test() -> None:
        def leave(twin: Twin, _: Request) -> None:
            twin.write(b"usage: codex\n")
            twin.complain(b"error: unrecognized subcommand\n")
            twin.hang_up()

        async with connected(Twin({"initialize": leave})) as line:
            with pytest.raises(HangupError, match="initialize: the agent closed its output"):
                await greet(line.connection)
        assert line.tap.of(Direction.IN) == [b"usage: codex"]
        assert line.tap.of(Direction.ERR) == [b"error: unrecognized subcommand"]

    run(test)


def test_a_program_that_says_nothing_ends_by_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "INITIALIZE_DEADLINE_S", 0.02)

    async def test() -> str:
        async with connected(Twin({"initialize": None})) as line:
            with pytest.raises(PeerError) as late:
                await greet(line.connection)
            return late.value.code

    assert run(test) == "peer.deadline"


# ── envelopes ──


@pytest.mark.parametrize(
    ("line", "thread", "turn", "item"),
    [
        (b'{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}', "t", "u", None),
        (b'{"method":"thread/started","params":{"thread":{"id":"t"}}}', "t", None, None),
        (b'{"method":"x","params":{"threadId":"t","turnId":"u","itemId":"i"}}', "t", "u", "i"),
        (b'{"method":"x","params":{"threadId":"t","item":{"id":"i"}}}', "t", None, "i"),
        (b'{"method":"execCommandApproval","id":1,"params":{"conversationId":"t","command":["a"]}}', "t", None, None),
        (b'{"method":"x","params":{"threadId":"t","turnId":5,"item":[]}}', "t", None, None),
        (b'{"method":"x","params":{"threadId":{},"turnId":"u"}}', None, "u", None),
        (b'{"method":"x","params":[]}', None, None, None),
        (b'{"method":"x","params":null}', None, None, None),
        (b'{"method":"x"}', None, None, None),
    ],
)
def test_the_ids_of_a_frame_are_read_as_far_as_they_can_be(
    line: bytes, thread: str | None, turn: str | None, item: str | None
) -> None:
    envelope = open_envelope(line)
    assert envelope.method is not None
    assert (envelope.thread, envelope.turn, envelope.item) == (thread, turn, item)


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b'{"method":5}', b'{"method":"x","a":"\xff"}', b"[" * 100_000])
def test_what_is_no_message_has_an_empty_envelope(line: bytes) -> None:
    assert open_envelope(line) is NOT_A_MESSAGE


def test_only_streamed_text_has_a_stream_and_only_ends_end_it() -> None:
    delta = open_envelope(b'{"method":"item/agentMessage/delta","params":{"threadId":"t","itemId":"i","delta":"x"}}')
    ended = open_envelope(b'{"method":"item/completed","params":{"threadId":"t","item":{"id":"i","type":"x"}}}')
    over = open_envelope(b'{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u"}}}')
    assert delta.text_stream is not None
    assert (delta.text_stream.key, delta.text_stream.path) == ("t|i|item/agentMessage/delta", ("params", "delta"))
    assert (delta.ended_streams, ended.ended_streams, over.ended_streams) == (None, "t|i|", "t|")
    assert (ended.text_stream, over.text_stream) == (None, None)
