"""Each turn of a conversation has an ending of its own, whatever became of the one before."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

import proctor
from proctor.attempt.recheck import examine_run
from proctor.evidence.layout import RootPaths
from proctor.model import responses
from proctor.model.wire import Pause, Reply, Text, Tokens
from proctor.testing.journals import recorded_journals
from tests.api.talk import bounded, kill_agents, script
from tests.lab import report_of

pytestmark = pytest.mark.real_agent

HELLO = {"say": "Hello."}
QUICK = proctor.Limits(attempt="60s", turn="2s", stall="30s")


@pytest.mark.requirement("surface.embed")
def test_a_turn_that_nobody_was_left_to_take_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    steps, root = script(tmp_path, HELLO), tmp_path / "root"

    async def talk() -> None:
        async with proctor.session(script=steps, evidence="disk", root=root) as s:
            assert (await s.say("Hello?")).outcome is proctor.Outcome.COMPLETED
            kill_agents()
            async for _, event in s.events():
                if isinstance(event, proctor.ProcessExited):
                    break
            ending = await s.say("Are you there?")
            assert (ending.outcome, ending.code) == (proctor.Outcome.CRASHED, "peer.killed")
            assert s.answer is None

    bounded(talk)
    [run] = RootPaths(root).runs()
    assert {each.status for each in examine_run(run, is_strict=True)} == {"valid"}
    [paths] = run.attempts()
    assert report_of(paths).outcome is proctor.Outcome.CRASHED
    assert '"text":"Are you there?"' in paths.frames.read_text(), "what was asked is on record"
    assert '"step":"hangup"' in paths.frames.read_text(), "the agent refused nothing"


@asynccontextmanager
async def open_provider(*replies: bytes | None) -> AsyncIterator[proctor.Model]:
    """A model that gives these replies in turn, and none at all where one is None.

    The scripted model will not do: what a compaction asks for is no step of a script.
    """
    waiting = list(replies)

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or 0))
                said = waiting.pop(0) if head.startswith(b"post") else reply(404, b"{}")
                if said is not None:
                    writer.write(said)
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield proctor.Model(provider="p", name="some-model", base_url=f"http://127.0.0.1:{port}/v1")
    finally:
        server.close()


def reply(status: int, body: bytes, *, kind: str = "application/json") -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        kind.encode(),
        len(body),
        body,
    )


def said(text: str) -> bytes:
    tokens = Tokens(input=12, cached=0, output=7, reasoning=0)
    serial = text.lower().replace(" ", "-").rstrip(".")
    whole = Reply(serial=serial, model="some-model", parts=(Text(text=text),), tokens=tokens)
    events = (event for event in responses.render(whole) if not isinstance(event, Pause))
    return reply(200, b"".join(events), kind="text/event-stream")


@pytest.mark.requirement("runtime.codex-app-server")
def test_a_compaction_is_a_turn_with_an_ending_and_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P_API_KEY", "none-needed-here")
    replies = (said("Hello."), None, said("Short."), said("Still here."))

    async def talk() -> None:
        async with (
            open_provider(*replies) as model,
            proctor.session(model=model, login="api-key", limits=QUICK) as s,
        ):
            await s.say("Hello?")
            assert (await s.compact()).code == "limit.turn"
            # The provider of this test counts fewer tokens than Codex does for what is left.
            assert (await s.compact()).status is proctor.CompactStatus.NO_PROGRESS
            assert s.outcome is proctor.Outcome.COMPLETED
            assert (await s.say("And now?")).outcome is proctor.Outcome.COMPLETED
            assert s.answer == "Still here."

    bounded(talk)


@pytest.mark.agent("claude_code")
@pytest.mark.requirement("context.compaction")
def test_compaction_by_claude_code_is_reported_with_its_tokens_and_its_failure(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"version": 1, "steps": [{"say": "Hello.", "usage": {"input": 12000, "output": 5}}]}')

    async def talk() -> None:
        async with proctor.session("claude_code", script=script) as s:
            await s.say("Hello?")
            compaction = await s.compact()
            assert (compaction.status, compaction.tokens_before) == (proctor.CompactStatus.COMPACTED, 12_005)
            assert compaction.tokens_after is not None
            assert compaction.tokens_after < 12_005
            assert (await s.compact()).status is proctor.CompactStatus.FAILED
            assert s.outcome is proctor.Outcome.COMPLETED

    bounded(talk)


def test_a_compaction_that_the_provider_refuses_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P_API_KEY", "none-needed-here")
    options = {"request_max_retries": 0, "stream_max_retries": 0}

    async def talk() -> None:
        async with (
            open_provider(said("Hello."), *[reply(401, b"{}")] * 8) as model,
            proctor.session(model=model, login="api-key", options=options) as s,
        ):
            await s.say("Hello?")
            compaction = await s.compact()
            assert (compaction.status, compaction.code) == (proctor.CompactStatus.FAILED, "provider.unauthorized")
            assert (s.ending.outcome, s.ending.code) == (proctor.Outcome.FAILED, "provider.unauthorized")

    bounded(talk)


def test_a_compaction_that_is_interrupted_is_cancelled_and_the_next_turn_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P_API_KEY", "none-needed-here")

    async def talk() -> None:
        async with (
            open_provider(said("Hello."), None, said("Still here.")) as model,
            proctor.session(model=model, login="api-key") as s,
            anyio.create_task_group() as tasks,
        ):
            await s.say("Hello?")
            after = s.offset

            async def halt() -> None:
                async for _, event in s.events(after=after):
                    if isinstance(event, proctor.TurnBegan):
                        await s.interrupt()
                        return

            tasks.start_soon(halt)
            assert (await s.compact()).code == "run.cancelled"
            assert (await s.say("And now?")).outcome is proctor.Outcome.COMPLETED

    bounded(talk)


@pytest.mark.requirement("attempt.clocks")
def test_what_a_tool_of_ours_takes_is_not_charged_to_the_agent(tmp_path: Path) -> None:
    async def think(_: object) -> str:
        await anyio.sleep(2.5)  # longer than the turn may take
        return "42"

    tool = proctor.Tool(name="think", description="Thinks.", schema={"type": "object"}, call=think)
    steps = script(tmp_path, {"call": {"tool": "think"}}, {"say": "It is 42."})

    async def talk() -> None:
        async with proctor.session(script=steps, tools=[tool], limits=QUICK) as s:
            assert (await s.say("Think.")).outcome is proctor.Outcome.COMPLETED

    bounded(talk)


@pytest.mark.requirement("runtime.codex-app-server")
def test_session_in_a_pool_is_forked_with_its_history(tmp_path: Path) -> None:
    first, second = script(tmp_path, HELLO), script(tmp_path, {"say": "Forked."})

    async def talk() -> None:
        with recorded_journals() as journals:
            async with (
                proctor.pool(evidence="disk", root=tmp_path / "evidence") as pool,
                pool.session(id="one", script=first) as s,
            ):
                await s.say("Hello?")
                await s.fork("two")
                async with pool.session(id="two", script=second) as other:
                    assert other.thread != s.thread
                    await other.say("And you?")
                    assert other.answer == "Forked."
        [request] = [row for row in journals[-1].rows if row.items]
        assert [text for text in request.texts if text in ("Hello?", "And you?")] == ["Hello?", "And you?"]

    bounded(talk)
