"""Threads of the real Codex that last: steered, taken up again, forked, shortened, and given tools of ours."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.errors import RefusedError
from proctor.model.journal import Rows
from proctor.runtime.base import Tool
from tests.runtime.real import Real, real_server
from tests.runtime.twin import run

pytestmark = pytest.mark.real_agent


def heard_last(server: Real, key: str) -> tuple[str, ...]:
    """What the model was told with its latest request: the proof of what a thread remembers."""
    return server.model.journal(key)[-1].texts


@pytest.mark.requirement("runtime.codex-app-server")
def test_words_said_into_a_running_turn_reach_the_model_within_it(tmp_path: Path) -> None:
    async def test() -> None:
        waits = {"do": [{"say": "I begin."}, {"delay": "100s"}]}
        async with real_server(tmp_path) as server, server.talk(waits, {"say": "Left it is."}, name="k") as talk:
            with pytest.raises(RefusedError, match="no turn runs"):
                await talk.session.steer("Too early.")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talk.session.turn, "Go right.")
                await server.model.journal_until("k", lambda rows: len(rows) == 1)
                with pytest.raises(RefusedError, match="a turn is already running"):
                    await talk.session.turn("The server would take this for a steer.")
                await talk.session.steer("No, left.")
            assert (talk.turns, talk.said[-1]) == (["completed"], "Left it is.")
            assert heard_last(server, "k")[-1] == "No, left."
            with pytest.raises(RefusedError, match="no turn runs"):
                await talk.session.steer("Too late.")

    run(test)


@pytest.mark.requirement("runtime.codex-app-server")
def test_a_persistent_thread_is_taken_up_by_another_process_with_all_it_knew(tmp_path: Path) -> None:
    async def test() -> None:
        home = tmp_path / "home"
        async with (
            real_server(tmp_path, home=home) as server,
            server.talk({"say": "I shall remember 4711."}, is_persistent=True) as talk,
        ):
            await talk.session.turn("Remember 4711.")
            thread = talk.session.thread
        assert talk.tap.heard[-1]["result"] == {"status": "unsubscribed"}
        async with real_server(tmp_path, home=home) as server:
            async with server.talk({"say": "4711."}, name="again", resume=thread) as talk:
                assert talk.session.thread == thread
                await talk.session.turn("Which number?")
                known = heard_last(server, "again")
                assert {"Remember 4711.", "I shall remember 4711.", "Which number?"} <= {*known}
                kept = await talk.session.read()
                assert [len(turn["items"]) for turn in kept.turns] == [2, 2]
                assert (kept.thread["id"], kept.thread["ephemeral"]) == (thread, False)
                with pytest.raises(RefusedError, match="has a session already"):
                    async with server.talk({"say": "x"}, resume=thread):
                        pass
            # Given back and taken up on the same connection: subscribed again.
            async with server.talk({"say": "Still 4711."}, resume=thread) as talk:
                await talk.session.turn("And now?")
                assert talk.said == ["Still 4711."]
            async with server.talk({"say": "Forked."}, name="fork", fork=thread) as fork:
                assert fork.session.thread != thread
                await fork.session.turn("And you?")
                assert {"Still 4711.", "And you?"} <= {*heard_last(server, "fork")}

    run(test)


def test_a_thread_that_was_not_kept_cannot_be_taken_up_and_that_is_said(tmp_path: Path) -> None:
    async def test() -> None:
        async with real_server(tmp_path) as server:
            async with server.talk({"say": "Gone."}) as talk:
                await talk.session.turn("Go on.")
                thread = talk.session.thread
            for way in ("resume", "fork"):
                with pytest.raises(RefusedError, match=f"thread/{way}: no rollout found"):
                    async with server.talk({"say": "x"}, **{way: thread}):
                        pass
            assert server.host.is_alive

    run(test)


def test_what_a_resumed_thread_may_write_to_is_its_new_place_only(tmp_path: Path) -> None:
    async def test() -> None:
        async with real_server(tmp_path) as server:
            async with server.talk({"say": "Here."}, name="old", is_persistent=True) as talk:
                await talk.session.turn("Go on.")
                thread = talk.session.thread
            tries = "touch here $TMPDIR/here; touch ../../old/workspace/there; touch ../../old/tmp/there"
            async with server.talk({"run": tries}, {"say": "Done."}, name="new", resume=thread) as talk:
                await talk.session.turn("Go on.")

    run(test)
    found = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*here"))
    assert found == ["new/tmp/here", "new/workspace/here"]


@pytest.mark.requirement("runtime.codex-app-server")
def test_a_thread_is_shortened_on_demand(tmp_path: Path) -> None:
    async def test() -> None:
        async with real_server(tmp_path) as server, server.talk({"say": "One."}, {"say": "Two."}, name="k") as talk:
            await talk.session.turn("First.")
            await talk.session.compact()
            items = [params["item"]["type"] for params in talk.heard("item/completed")]
            assert items[-1] == "contextCompaction"
            await talk.session.turn("Second.")
            assert talk.turns == ["completed"] * 3
            assert "One." not in heard_last(server, "k"), "what was said is replaced by its summary"
            assert any("Noted." in words for words in heard_last(server, "k"))

    run(test)


@pytest.mark.requirement("runtime.codex-app-server")
def test_an_output_schema_reaches_the_model(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }

    async def test() -> Rows:
        steps = ({"say": '{"n": 5}'}, {"say": "Free."})
        async with real_server(tmp_path) as server, server.talk(*steps, name="k") as talk:
            await talk.session.turn("Count.", output_schema=schema)
            await talk.session.turn("Speak.")
            assert talk.said == ['{"n": 5}', "Free."]
            return server.model.journal("k")

    assert [row.has_output_schema for row in run(test)] == [True, False], "for that turn only"


@pytest.mark.requirement("runtime.codex-app-server")
@pytest.mark.requirement("evidence.trace")
def test_a_tool_of_ours_is_offered_called_and_told_to_the_model_with_its_failures(tmp_path: Path) -> None:
    async def divide(arguments: Any) -> str:
        return str(arguments["a"] // arguments["b"])

    number = {"type": "integer"}
    schema = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}
    tool = Tool(name="divide", description="Divides.", schema=schema, call=divide)

    async def test() -> Rows:
        steps = [{"call": {"tool": "divide", "arguments": {"a": 84, "b": b}}} for b in (2, 0)]
        async with (
            real_server(tmp_path) as server,
            server.talk(*steps, {"say": "Done."}, name="k", tools=(tool,)) as talk,
        ):
            await talk.session.turn("Divide.")
            items = [params["item"] for params in talk.heard("item/completed")]
            calls = [item for item in items if item["type"] == "dynamicToolCall"]
            assert [(call["status"], call["success"]) for call in calls] == [("completed", True), ("failed", False)]
            assert [(seen.decision, seen.by) for seen in talk.answers] == [("answered", "tool"), ("failed", "error")]
            return server.model.journal("k")

    rows = run(test)
    assert "divide" in rows[0].tools
    assert rows[1].texts[-1] == "42"
    assert "ZeroDivisionError" in rows[2].texts[-1]


@pytest.mark.requirement("attempt.interrupt-one")
def test_without_an_id_whatever_turn_there_is_is_interrupted(tmp_path: Path) -> None:
    async def test() -> None:
        waits = {"do": [{"say": "I begin."}, {"delay": "100s"}]}
        async with real_server(tmp_path) as server, server.talk(waits, name="k") as talk:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talk.session.turn, "Go on.")
                await server.model.journal_until("k", lambda rows: len(rows) == 1)
                params = {"threadId": talk.session.thread, "turnId": ""}
                await talk.session._connection.call("turn/interrupt", params, deadline_s=10)
            assert talk.turns == ["interrupted"]

    run(test)
