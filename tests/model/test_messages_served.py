"""The Messages wire over loopback: its paths, its faults, and a client that goes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import msgspec
import pytest

from proctor.model.journal import Rows
from proctor.model.player import RequestKind
from proctor.model.script import Script
from proctor.model.server import ScriptedModel, open_model

DEADLINE_S = 30
TOOLS = [{"name": "Bash", "input_schema": {"properties": {"command": {"type": "string"}}}}]


def question(*texts: str, **fields: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": text} for text in texts]
    return {
        "model": "m",
        "stream": True,
        "messages": [{"role": "user", "content": blocks}],
        "tools": TOOLS,
        **fields,
    }


@asynccontextmanager
async def playing(*steps: dict[str, Any]) -> AsyncIterator[tuple[ScriptedModel, httpx.AsyncClient, str]]:
    """The URL is the one an agent of this wire is given: it adds the version itself."""
    script = msgspec.convert({"version": 1, "steps": steps}, Script)
    with anyio.fail_after(DEADLINE_S):
        async with open_model() as model, httpx.AsyncClient(timeout=DEADLINE_S) as client:
            yield model, client, model.play("key", script).removesuffix("/v1")


def outline(rows: Rows) -> list[tuple[str, RequestKind, int | None, int | None, bool, bool]]:
    return [(row.path, row.kind, row.status, row.step, row.is_complete, row.client_aborted) for row in rows]


@pytest.mark.requirement("model.scripted")
def test_only_a_request_with_tools_takes_a_step() -> None:
    async def main() -> None:
        async with playing({"run": "ls"}, {"say": "Done."}) as (model, client, url):
            assert (await client.head(url)).status_code == 200
            assert (await client.head(f"{url}/api/hello")).status_code == 200
            assert (await client.get(f"{url}/v1/models")).json()["data"] == []
            counted = await client.post(f"{url}/v1/messages/count_tokens?beta=true", json=question("Go"))
            assert counted.json()["input_tokens"] > 0
            title = await client.post(f"{url}/v1/messages", json=question("Title?", tools=[]))
            assert "Noted." in title.text
            wish = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."
            assert "Noted." in (await client.post(f"{url}/v1/messages", json=question("Go", wish))).text
            first = await client.post(f"{url}/v1/messages?beta=true", json=question("Go"))
            assert (first.headers["content-type"], '"name":"Bash"' in first.text) == ("text/event-stream", True)
            whole = await client.post(f"{url}/v1/messages", json=question("Go", "On", stream=False))
            assert whole.json()["content"] == [{"type": "text", "text": "Done."}]
            over = await client.post(f"{url}/v1/messages", json=question("Go", "On", "More"))
            assert over.json()["error"]["type"] == "invalid_request_error"
            assert over.json()["error"]["message"].startswith("script_exhausted: ")
            wrong = await client.post(f"{url}/v1/messages", content=b"{")
            assert (wrong.status_code, wrong.json()["error"]["type"]) == (400, "invalid_request_error")
            assert (await client.post(f"{url}/v1/messages/count_tokens", content=b"{")).status_code == 400
            rows = await model.journal_until("key", lambda rows: len(rows) == 11 and rows[7].is_complete)
            assert outline(rows) == [
                ("/", RequestKind.SIDE, 200, None, True, False),
                ("/api/hello", RequestKind.SIDE, 200, None, True, False),
                ("/v1/models", RequestKind.SIDE, 200, None, True, False),
                ("/v1/messages/count_tokens", RequestKind.SIDE, 200, None, True, False),
                ("/v1/messages", RequestKind.SIDE, 200, None, True, False),
                ("/v1/messages", RequestKind.SIDE, 200, None, True, False),
                ("/v1/messages", RequestKind.MAIN, 200, 0, True, False),
                ("/v1/messages", RequestKind.MAIN, 200, 1, True, False),
                ("/v1/messages", RequestKind.EXHAUSTED, 400, None, False, False),
                ("/v1/messages", RequestKind.REFUSED, 400, None, False, False),
                ("/v1/messages/count_tokens", RequestKind.REFUSED, 400, None, False, False),
            ]

    anyio.run(main)


def test_nobody_plays_where_no_script_is() -> None:
    async def main() -> None:
        async with playing({"say": "a"}) as (model, client, url):
            model.forget("key")
            gone = await client.post(f"{url}/v1/messages", json=question("Go"))
            assert (gone.status_code, gone.content) == (404, b"")
            assert (await client.head(url)).status_code == 404

    anyio.run(main)


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "authentication_error"), (429, "rate_limit_error"), (529, "overloaded_error")]
)
def test_a_fault_is_worded_as_the_provider_does_and_covers_the_tries_it_is_for(status: int, kind: str) -> None:
    async def main() -> None:
        fault = {"fault": {"status": status, "retry_after": 2}}
        async with playing({"tries": [fault, {"say": "a"}]}) as (model, client, url):
            refused = await client.post(f"{url}/v1/messages", json=question("Go"))
            assert (refused.status_code, refused.headers["retry-after"]) == (status, "2")
            assert refused.json()["error"]["type"] == kind
            # How far to cache is no part of what is asked: it is the same request.
            again = question("Go")
            again["messages"][0]["content"][0]["cache_control"] = {"type": "ephemeral"}
            assert '"text":"a"' in (await client.post(f"{url}/v1/messages", json=again)).text
            assert [row.kind for row in model.journal("key")] == [RequestKind.FAULT, RequestKind.RETRY]

    anyio.run(main)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_cut_reply_ends_without_its_end(is_streamed: bool) -> None:
    async def main() -> None:
        step = {"say": {"text": "abcd", "chunk_chars": 1}, "fault": {"cut_after": 3}}
        async with playing(step) as (model, client, url):
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post(f"{url}/v1/messages", json=question("Go", stream=is_streamed))
            rows = await model.journal_until("key", bool)
            assert outline(rows) == [("/v1/messages", RequestKind.FAULT, 200, 0, False, False)]

    anyio.run(main)


def test_a_garbled_reply_goes_on_with_what_is_no_event() -> None:
    async def main() -> None:
        async with playing({"say": "abcd", "fault": {"garbled_after": 1}}) as (_, client, url):
            first, garbage, rest = (await client.post(f"{url}/v1/messages", json=question("Go"))).content.split(b"\n\n")
            assert (b"message_start" in first, b"content_block_delta" in garbage, rest) == (True, True, b"")
            with pytest.raises(UnicodeDecodeError):
                garbage.decode()

    anyio.run(main)


def test_a_failure_in_a_reply_is_an_event_of_a_stream_and_an_error_without_one() -> None:
    async def main() -> None:
        step = {"say": "a", "fault": {"failed": {"code": "overloaded_error", "message": "Overloaded"}}}
        async with playing({"tries": [step, step]}) as (_, client, url):
            streamed = await client.post(f"{url}/v1/messages", json=question("Go"))
            assert streamed.text.endswith(
                'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
            )
            whole = await client.post(f"{url}/v1/messages", json=question("Go", stream=False))
            error = {"type": "api_error", "message": "overloaded_error: Overloaded"}
            assert (whole.status_code, whole.json()) == (500, {"type": "error", "error": error})

    anyio.run(main)


@pytest.mark.requirement("model.scripted")
def test_a_client_that_goes_is_noticed() -> None:
    async def main() -> None:
        async with playing({"do": [{"say": "a"}, {"delay": "1h"}]}) as (model, client, url):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: client.post(f"{url}/v1/messages", json=question("Go")))
                await model.journal_until("key", bool)
                tasks.cancel_scope.cancel()
            rows = await model.journal_until("key", lambda rows: rows[0].client_aborted)
            assert outline(rows) == [("/v1/messages", RequestKind.MAIN, 200, 0, False, True)]

    anyio.run(main)
