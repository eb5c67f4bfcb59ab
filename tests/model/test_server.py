"""The scripted model over loopback: streams, faults, aborts and an end that nothing can hold up."""

import asyncio
import json
import re
import signal
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio
import httpx
import msgspec
import pytest
from anyio.abc import SocketStream
from anyio.lowlevel import checkpoint

from proctor.errors import MachineError
from proctor.model.connection import ModelLimits, RefusalReason, RefusedClient
from proctor.model.journal import Rows
from proctor.model.player import RequestKind
from proctor.model.script import Script
from proctor.model.server import ScriptedModel, open_model
from tests.acceptance.model_attacker import GARBAGE

DEADLINE_S = 30
TOOLS = [{"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {"type": "string"}}}}]


class FixedClock:
    def wall_ms(self) -> int:
        return 1234

    def steady_s(self) -> float:
        return 0


def script(*steps: dict[str, Any]) -> Script:
    return msgspec.convert({"version": 1, "steps": steps}, Script)


def question(*texts: str, tools: list[dict[str, Any]] = TOOLS) -> dict[str, Any]:
    items = [{"type": "message", "role": "user", "content": text} for text in texts]
    return {"model": "m", "stream": True, "input": items, "tools": tools}


def deltas(stream: bytes) -> list[str]:
    events = (part.split(b"data: ", 1)[1] for part in stream.split(b"\n\n") if part)
    decoded = [json.loads(event) for event in events]
    return [event["delta"] for event in decoded if event["type"] == "response.output_text.delta"]


@asynccontextmanager
async def serving(**how: Any) -> AsyncIterator[tuple[ScriptedModel, httpx.AsyncClient]]:
    with anyio.fail_after(DEADLINE_S):
        async with open_model(clock=FixedClock(), **how) as model, httpx.AsyncClient(timeout=DEADLINE_S) as client:
            yield model, client


def outline(rows: Rows) -> list[tuple[RequestKind, int | None, int | None, bool, bool]]:
    return [(row.kind, row.status, row.step, row.is_complete, row.client_aborted) for row in rows]


@pytest.mark.requirement("model.scripted")
def test_a_script_is_played_and_every_request_is_in_the_journal() -> None:
    async def main() -> None:
        async with serving() as (model, client):
            url = model.play("key", script({"say": {"text": "Hello", "chunk_chars": 2}}))
            assert re.fullmatch(rf"{model.url}/a/key/proctor_model_[A-Za-z0-9_-]{{43}}/v1", url)
            reply = await client.post(f"{url}/responses", json=question("Go"))
            assert (reply.status_code, reply.headers["content-type"]) == (200, "text/event-stream")
            assert deltas(reply.content) == ["He", "ll", "o"]
            side = await client.post(f"{url}/responses", json=question("Title?", tools=[]))
            assert deltas(side.content) == ["Noted."]
            assert (await client.get(f"{url}/models")).json()["data"] == []
            more = await client.post(f"{url}/responses", json=question("Go", "More"))
            assert (more.status_code, more.json()["error"]["code"]) == (400, "script_exhausted")
            assert (await client.post(f"{url}/responses", content=b"{")).json()["error"]["code"] == "invalid_request"
            assert (await client.post(f"{url}/nothing")).json()["error"]["code"] == "no_endpoint"
            rows = await model.journal_until("key", lambda rows: len(rows) == 6 and rows[0].is_complete)
            assert outline(rows) == [
                (RequestKind.MAIN, 200, 0, True, False),
                (RequestKind.SIDE, 200, None, True, False),
                (RequestKind.SIDE, 200, None, True, False),
                (RequestKind.EXHAUSTED, 400, None, False, False),
                (RequestKind.REFUSED, 400, None, False, False),
                (RequestKind.REFUSED, 404, None, False, False),
            ]
            first = rows[0]
            assert (first.at_ms, first.method, first.path) == (1234, "POST", "/v1/responses")
            assert (first.model, first.tools, [item.chars for item in first.items]) == ("m", ("exec_command",), [2])
            assert "exhausted" in (rows[3].error or "")

    anyio.run(main)


@pytest.mark.parametrize("wire", ["responses", "messages"])
def test_a_script_is_neither_read_nor_advanced_without_its_token(wire: str) -> None:
    refused: list[RefusedClient] = []

    async def main() -> None:
        async with serving(on_refused=refused.append) as (model, client):
            url, other = (model.play(key, script({"say": "secret"})) for key in ("key", "other"))
            token, other_token = (each.split("/")[-2] for each in (url, other))
            replaced = model.play("other", script({"say": "secret"}))
            wrong = ["v1", "b/key/v1", "a/key/v1", "a/key//v1", f"a/{token}/v1", f"a//{token}/v1", f"a/KEY/{token}/v1"]
            wrong += [f"a/key/{token[:-1]}/v1", f"a/key/{token}x/v1", f"a/key/{other_token}/v1", f"a/nobody/{token}/v1"]
            wrong += [f"b/key/{token}/v1", "a/other/" + "-" * len(token) + "/v1", other.removeprefix(f"{model.url}/")]
            for path in wrong:
                for method, end in (("GET", "models"), ("HEAD", ""), ("POST", wire), ("POST", "messages/count_tokens")):
                    reply = await client.request(method, f"{model.url}/{path}/{end}", json=question("Go"))
                    assert (reply.status_code, reply.content) == (404, b"")
            assert model.journal("key") == model.journal("other") == ()
            assert [each.why for each in refused] == [RefusalReason.PATH] * 4 * len(wrong)
            assert (refused[0].method, refused[0].path) == ("GET", "/v1/models")
            for address in (url, replaced):
                assert deltas((await client.post(f"{address}/responses", json=question("Go"))).content) == ["secret"]
            model.forget("key")
            assert (await client.post(f"{url}/{wire}", json=question("Go"))).status_code == 404
            with pytest.raises(ValueError, match="cannot be part of a URL"):
                model.play("a/b", script({"say": "a"}))

    anyio.run(main)


@pytest.mark.long
def test_twenty_scripts_play_at_once_without_a_word_astray() -> None:
    async def main() -> None:
        async with serving() as (model, client), anyio.create_task_group() as tasks:

            async def converse(name: str) -> None:
                steps = [{"do": [{"say": f"{name}.{n}"}, {"delay": "1ms"}, {"run": "true"}]} for n in range(5)]
                url = model.play(name, script(*steps))
                texts = []
                for n in range(5):
                    texts.append(f"ask {n}")
                    reply = await client.post(f"{url}/responses", json=question(*texts))
                    assert deltas(reply.content) == [f"{name}.{n}"]
                assert [(row.kind, row.step) for row in model.journal(name)] == [
                    (RequestKind.MAIN, n) for n in range(5)
                ]

            for number in range(20):
                tasks.start_soon(converse, f"attempt-{number}")

    anyio.run(main)


def test_a_status_fault_comes_with_its_body_and_when_to_try_again() -> None:
    async def main() -> None:
        async with serving() as (model, client):
            fault = {"status": 429, "retry_after": 2, "body": {"error": {"code": "slow_down"}}}
            url = model.play("key", script({"tries": [{"fault": fault, "delay": "1ms"}, {"say": "a"}]}))
            reply = await client.post(f"{url}/responses", json=question("Go"))
            assert (reply.status_code, reply.headers["retry-after"]) == (429, "2")
            assert reply.json() == {"error": {"code": "slow_down"}}
            assert deltas((await client.post(f"{url}/responses", json=question("Go"))).content) == ["a"]

    anyio.run(main)


@pytest.mark.parametrize("cut_after", [0, 4, 1000])
def test_a_cut_stream_ends_after_so_many_events_and_without_its_end(cut_after: int) -> None:
    async def main() -> None:
        async with serving() as (model, client):
            url = model.play(
                "key", script({"say": {"text": "abcd", "chunk_chars": 1}, "fault": {"cut_after": cut_after}})
            )
            got = b""
            async with client.stream("POST", f"{url}/responses", json=question("Go")) as reply:
                try:
                    async for chunk in reply.aiter_raw():
                        got += chunk
                    pytest.fail("the stream came to its end")
                except httpx.RemoteProtocolError:
                    pass
            assert got.count(b"event: ") == min(cut_after, 11)
            rows = await model.journal_until("key", bool)
            assert outline(rows) == [(RequestKind.FAULT, 200, 0, False, False)]

    anyio.run(main)


def test_a_garbled_stream_comes_to_its_end_with_what_is_no_event() -> None:
    async def main() -> None:
        async with serving() as (model, client):
            url = model.play("key", script({"say": "abcd", "fault": {"garbled_after": 1}}))
            got = (await client.post(f"{url}/responses", json=question("Go"))).content
            first, garbage, rest = got.split(b"\n\n")
            assert (first.count(b"response.created"), rest) == (2, b"")
            with pytest.raises(UnicodeDecodeError):
                garbage.decode()
            assert outline(model.journal("key")) == [(RequestKind.FAULT, 200, 0, False, False)]

    anyio.run(main)


def test_a_failed_reply_ends_with_the_providers_word_and_can_be_asked_for_again() -> None:
    async def main() -> None:
        async with serving() as (model, client):
            failed = {"code": "server_error", "message": "out of luck"}
            url = model.play("key", script({"tries": [{"say": "a", "fault": {"failed": failed}}, {"say": "b"}]}))
            got = (await client.post(f"{url}/responses", json=question("Go"))).content
            last = json.loads(got.split(b"data: ")[-1])
            assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
            assert last["response"]["error"] == failed
            assert deltas(got) == ["a"]
            assert deltas((await client.post(f"{url}/responses", json=question("Go"))).content) == ["b"]

    anyio.run(main)


@pytest.mark.parametrize(
    "step",
    [
        {"fault": "hang"},
        {"do": [{"say": "a"}, {"delay": "1h"}]},
        {"say": "a", "fault": {"silent_after": 2}},
        {"delay": "1h", "fault": {"status": 500}},
    ],
    ids=["hang", "in a silence", "in a silence without end", "before a status"],
)
def test_a_client_that_goes_is_noticed(step: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving() as (model, client):
            url = model.play("key", script(step))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: client.post(f"{url}/responses", json=question("Go")))
                await model.journal_until("key", bool)
                tasks.cancel_scope.cancel()
            (row,) = await model.journal_until("key", lambda rows: rows[0].client_aborted)
            assert not row.is_complete

    anyio.run(main)


def test_what_is_said_before_a_silence_is_not_held_back() -> None:
    async def main() -> None:
        async with serving() as (model, client):
            url = model.play("key", script({"do": [{"say": "a"}, {"delay": "1h"}, {"say": "b"}]}))
            async with client.stream("POST", f"{url}/responses", json=question("Go")) as reply:
                got = b""
                async for chunk in reply.aiter_raw():
                    got += chunk
                    if b"output_item.done" in got:
                        break
            assert deltas(got) == ["a"]

    anyio.run(main)


def test_a_flood_arrives_whole() -> None:
    async def main() -> None:
        async with serving() as (model, client):
            url = model.play("key", script({"say": {"text": "tok ", "repeat": 100_000}}))
            reply = await client.post(f"{url}/responses", json=question("Go"))
            assert reply.content.count(b'"delta":"tok "') == 100_000
            completed = json.loads(reply.content[reply.content.rindex(b"data: ") + 6 :])
            assert completed["response"]["output"][0]["content"][0]["text"] == "tok " * 100_000

    anyio.run(main)


def test_a_reader_that_stops_reading_stops_the_flood_and_nobody_else() -> None:
    async def main() -> None:
        async with serving() as (model, client):
            flood = model.play("flood", script({"say": {"text": "x" * 1000, "repeat": 1_000_000}}))
            other = model.play("other", script({"say": "b"}))
            asking = question("Go")
            tracemalloc.start()
            try:
                async with client.stream("POST", f"{flood}/responses", json=asking) as reply:
                    chunks = reply.aiter_raw()
                    await anext(chunks)
                    for _ in range(3000):  # turns of the event loop, in each of which an unheeded flood would grow
                        await checkpoint()
                    assert deltas((await client.post(f"{other}/responses", json=asking)).content) == ["b"]
                    _, peak_bytes = tracemalloc.get_traced_memory()
                    assert outline(model.journal("flood")) == [(RequestKind.MAIN, 200, 0, False, False)]
            finally:
                tracemalloc.stop()
            assert peak_bytes < 8 * 1024 * 1024
            await model.journal_until("flood", lambda rows: rows[0].client_aborted)

    anyio.run(main)


def test_closing_does_not_wait_for_whoever_hangs() -> None:
    ends: dict[str, int | None] = {}

    async def main() -> None:
        with anyio.fail_after(DEADLINE_S):
            async with httpx.AsyncClient(timeout=DEADLINE_S) as client, anyio.create_task_group() as tasks:

                async def ask_and_be_dropped(key: str, url: str) -> None:
                    try:
                        ends[key] = (await client.post(f"{url}/responses", json=question("Go"))).status_code
                    except httpx.TransportError:
                        ends[key] = None

                async with open_model() as model:
                    for key, step in (("hang", {"fault": "hang"}), ("slow", {"do": [{"say": "a"}, {"delay": "1h"}]})):
                        tasks.start_soon(ask_and_be_dropped, key, model.play(key, script(step)))
                        await model.journal_until(key, bool)

    anyio.run(main)
    assert ends == {"hang": None, "slow": None}


def test_no_signal_handler_is_touched() -> None:
    async def main() -> None:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        async with serving():
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before

    anyio.run(main)


def test_a_taken_port_is_an_error_with_a_code() -> None:
    async def main(port: int) -> None:
        async with open_model(port=port):
            pass

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(MachineError) as caught:
        anyio.run(main, taken.getsockname()[1])
    assert caught.value.code == "machine.port"


# ── clients that belong to no script ──


async def until_closed(client: SocketStream) -> bytes:
    """Everything that the server sends until it closes the connection."""
    said = b""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            said += await client.receive()
    return said


@asynccontextmanager
async def connected(model: ScriptedModel, *data: bytes) -> AsyncIterator[SocketStream]:
    host, port = model.url.removeprefix("http://").split(":")
    async with await anyio.connect_tcp(host, int(port)) as client:
        for each in data:
            await client.send(each)
        yield client


def head_of(url: str, *, size: int) -> bytes:
    path = url.split("/", 3)[3]
    return f"POST /{path}/responses HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", RefusalReason.IDLE),
        (b"POST /a/", RefusalReason.SLOW),
        (b"POST /a/key/v1/responses HTTP/1.1\r\nhost: x\r\n", RefusalReason.SLOW),
        (None, RefusalReason.SLOW),  # the token, and half a body
    ],
)
def test_a_half_open_connection_is_closed_in_time(data: bytes | None, why: RefusalReason) -> None:
    refused: list[RefusedClient] = []

    async def main() -> None:
        # The client at the end must stay below the limits, also on a busy machine.
        limits = ModelLimits(head_s=0.5, body_s=0.5)
        async with serving(limits=limits, on_refused=refused.append) as (model, client):
            url = model.play("key", script({"say": "a"}))
            async with connected(model, head_of(url, size=100) + b"{" if data is None else data) as other:
                assert await until_closed(other) == b""
            assert [each.why for each in refused] == [why]
            assert deltas((await client.post(f"{url}/responses", json=question("Go"))).content) == ["a"]

    anyio.run(main)


def test_strangers_above_the_limit_close_the_oldest_of_them_and_no_client_of_a_script() -> None:
    refused: list[RefusedClient] = []

    async def main() -> None:
        limits = ModelLimits(strangers=3)
        async with serving(limits=limits, on_refused=refused.append) as (model, client), AsyncExitStack() as stack:
            url = model.play("key", script({"do": [{"say": "a"}, {"delay": "200ms"}, {"say": "b"}]}, {"say": "c"}))
            async with client.stream("POST", f"{url}/responses", json=question("Go")) as reply:
                others = [await stack.enter_async_context(connected(model, b"POST /")) for _ in range(5)]
                for oldest in others[:2]:
                    assert await until_closed(oldest) == b""
                assert deltas(await reply.aread()) == ["a", "b"]
            # The idle connection of the agent is used again.
            assert deltas((await client.post(f"{url}/responses", json=question("Go", "on"))).content) == ["c"]
            assert [each.why for each in refused] == [RefusalReason.CROWDED] * 2

    anyio.run(main)


def test_the_connections_of_one_script_are_limited_and_another_script_is_not_affected() -> None:
    async def main() -> None:
        async with serving(limits=ModelLimits(per_script=2)) as (model, client), AsyncExitStack() as stack:
            url, other = model.play("key", script({"fault": "hang"})), model.play("other", script({"say": "a"}))
            body = json.dumps(question("Go")).encode()
            for number in range(2):
                await stack.enter_async_context(connected(model, head_of(url, size=len(body)) + body))
                await model.journal_until("key", lambda rows, at=number: len(rows) > at)  # type: ignore[misc]
            assert (await client.post(f"{url}/responses", json=question("Go"))).status_code == 429
            assert outline(model.journal("key"))[-1] == (RequestKind.REFUSED, 429, None, False, False)
            # Idle connections make room.
            for _ in range(4):
                idle = await stack.enter_async_context(
                    connected(model, head_of(other, size=0).replace(b"POST", b"HEAD"))
                )
                assert (await idle.receive()).startswith(b"HTTP/1.1 200")
            assert deltas((await client.post(f"{other}/responses", json=question("Go"))).content) == ["a"]

    anyio.run(main)


@pytest.mark.parametrize(("wire", "code"), [("responses", "too_large"), ("messages", "request_too_large")])
def test_a_body_above_the_limit_is_refused_and_journaled(wire: str, code: str) -> None:
    async def main() -> None:
        async with serving(limits=ModelLimits(body_bytes=10_000)) as (model, client):
            url = model.play("key", script({"say": "a"}))
            reply = await client.post(f"{url}/{wire}", json=question("x" * 2_000_000))
            assert (reply.status_code, code in reply.text) == (413, True)
            assert outline(model.journal("key")) == [(RequestKind.REFUSED, 413, None, False, False)]
            assert deltas((await client.post(f"{url}/responses", json=question("Go"))).content) == ["a"]

    anyio.run(main)


def test_garbage_and_half_open_connections_cause_no_error_and_no_output(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    refused: list[RefusedClient] = []
    errors: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        async with AsyncExitStack() as stack, serving(on_refused=refused.append) as (model, client):
            url = model.play("key", script({"say": "a"}))
            begun = head_of(url, size=5).replace(b"content-length: 5", b"transfer-encoding: chunked")
            for data in (*GARBAGE, *(begun + each for each in GARBAGE)):
                async with connected(model, data) as other:
                    with anyio.move_on_after(0.05):
                        await until_closed(other)
            for data in (b"", b"GET", begun, head_of(url, size=5) + b"{", GARBAGE[-1]):
                await stack.enter_async_context(connected(model, data))
            assert deltas((await client.post(f"{url}/responses", json=question("Go"))).content) == ["a"]
        assert {each.why for each in refused} == {RefusalReason.MALFORMED, RefusalReason.PATH}

    anyio.run(main)
    assert (errors, caplog.records, capfd.readouterr()) == ([], [], ("", ""))
