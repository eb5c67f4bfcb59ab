"""Turns of the real Claude Code: what it does is told in full, and what it costs."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.errors import RefusedError
from proctor.event.model import (
    FactsStated,
    ReasoningSaid,
    SessionBegan,
    TextStreamed,
    Tokens,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    UsageAuthority,
    UsageReported,
    WarningRaised,
)
from proctor.model.player import RequestKind
from proctor.runtime.base import Tool
from proctor.runtime.claude_code.program import MINIMUM_VERSION
from tests.runtime.claude_code.real import claude, run

pytestmark = [pytest.mark.real_agent, pytest.mark.agent("claude_code")]

USED = {"input": 50, "cached": 20, "output": 7, "reasoning": 3}


@pytest.mark.requirement("runtime.claude-code")
def test_a_turn_is_told_from_its_first_thought_to_what_it_cost(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            claude(tmp_path) as real,
            real.talk(
                {"do": [{"think": "Hm."}, {"say": {"text": "I begin.", "chunk_chars": 3}}, {"run": "echo $((6 * 7))"}]},
                {"patch": {"file": "a.txt", "content": "one\ntwo\n"}, "usage": USED},
                {"patch": {"file": "old.txt", "old": "two", "new": "2"}, "usage": USED},
                {"run": "echo no >&2; exit 3", "usage": USED},
                {"say": "Done.", "usage": USED},
            ) as talk,
        ):
            (talk.workspace / "old.txt").write_text("one\ntwo\n")
            assert talk.of(SessionBegan) == []
            await talk.session.turn("Go on.")
            (began,) = talk.of(SessionBegan)
            assert (began.thread, began.model, began.ephemeral) == (talk.session.thread, "scripted", True)
            assert began.cwd == str(talk.workspace)
            (turn,) = talk.of(TurnBegan)
            assert talk.ends == [("completed", None)]
            assert "".join(piece.text for piece in talk.of(TextStreamed) if piece.item.endswith("/1")) == "I begin."
            assert [thought.text for thought in talk.of(ReasoningSaid)] == ["Hm."]
            assert talk.said == ["I begin.", "Done."]
            assert [(call.kind, call.name) for call in talk.of(ToolBegan)] == [
                ("command", "Bash"),
                ("patch", "Write"),
                ("other", "Read"),
                ("patch", "Edit"),
                ("command", "Bash"),
            ]
            assert [(end.ok, end.exit_code) for end in talk.of(ToolEnded)] == [
                (True, 0),
                (True, None),
                (True, None),
                (True, None),
                (False, 3),
            ]
            assert [talk.of(ToolEnded)[n].output for n in (0, 4)] == ["42", "Exit code 3\nno"]
            assert (talk.workspace / "a.txt").read_text() == "one\ntwo\n"
            assert (talk.workspace / "old.txt").read_text() == "one\n2\n"
            # The hook tells of every call, also of those that nobody is asked about.
            assert talk.noted("hook_callback") == 5
            (used,) = talk.of(UsageReported)
            first = talk.journal[0]
            assert first.status == 200
            assert (used.scope, used.basis, used.turn) == ("turn", "absolute", turn.turn)
            assert used.authority is UsageAuthority.LIVE_TURN_COMPLETED
            assert (used.tokens.cached_input, used.tokens.reasoning_output) == (80, 13)
            stated = {name: fact.value for event in talk.of(FactsStated) for name, fact in event.facts.items()}
            assert stated.pop("runningProgram")["isLocated"] is True
            assert stated == {"version": MINIMUM_VERSION, "credentialSource": "ANTHROPIC_API_KEY"}
            facts = talk.session.facts
            assert facts["persistence"].value == "ephemeral"
            assert facts["fences"].value == {
                "writable": ["workspace", "tmp", "home"],
                "readOnly": [],
                "network": "host",
            }

    run(main)


def test_each_turn_has_its_own_cost_and_the_session_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        steps = [{"say": f"Reply {n}.", "usage": {"input": 100, "cached": 40, "output": 10 * n}} for n in (1, 2, 3)]
        async with claude(tmp_path) as real, real.talk(*steps) as talk:
            for n in range(3):
                await talk.session.turn(f"Prompt {n}.")
            assert [event.tokens for event in talk.of(UsageReported)] == [
                Tokens(input=100, output=10 * n, total=100 + 10 * n, cached_input=40, cache_write=0, reasoning_output=0)
                for n in (1, 2, 3)
            ]
            assert len({turn.turn for turn in talk.of(TurnBegan)}) == 3
            assert len(talk.of(SessionBegan)) == 1

    run(main)


@pytest.mark.requirement("runtime.claude-code")
def test_an_answer_by_a_schema_is_a_message_and_the_schema_is_the_sessions(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}

    async def main() -> None:
        async with claude(tmp_path) as real, real.talk({"say": '{"answer": 42}'}, {"say": '{"answer": 43}'}) as talk:
            await talk.session.turn("Go on.", output_schema=schema)
            assert talk.said == ['{"answer":42}']
            assert [row.has_output_schema for row in talk.journal] == [True]
            with pytest.raises(RefusedError, match="one schema per session"):
                await talk.session.turn("Go on.")
            await talk.session.turn("Go on.", output_schema=schema)
            assert (talk.said[1:], talk.ends) == (['{"answer":43}'], [("completed", None)] * 2)

    run(main)


@pytest.mark.requirement("runtime.claude-code")
def test_words_to_a_running_turn_reach_its_next_request_and_stop_no_tool(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            claude(tmp_path) as real,
            real.talk(
                {"run": "while [ ! -e go ]; do sleep 0.05; done; echo slept"},
                {"say": "One way."},
                {"do": [{"say": "I begin."}, {"delay": "10m"}]},
                {"say": "Another way."},
            ) as talk,
        ):
            with pytest.raises(RefusedError, match="no turn runs"):
                await talk.session.steer("Nobody hears this.")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talk.session.turn, "First.")
                await talk.until(lambda: talk.noted("stream_event message_stop"))
                with pytest.raises(RefusedError, match="a turn is already running"):
                    await talk.session.turn("Too early.")
                await talk.session.steer("Said to a tool.")
                (talk.workspace / "go").touch()
            assert talk.deeds == [("Bash", "completed")]
            assert any("Said to a tool." in text for text in talk.journal[1].texts)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talk.session.turn, "Second.")
                await talk.asked(3)
                await talk.session.steer("Said to a reply.")
            assert any("Said to a reply." in text for text in talk.journal[3].texts)
            assert [row.client_aborted for row in talk.journal] == [False, False, True, False]
            assert talk.ends == [("completed", None)] * 2
            assert talk.said[-1] == "Another way."
            # What the reply that was broken off cost is not known, and so not what the turn did.
            assert [event.turn for event in talk.of(UsageReported)] == [talk.of(TurnBegan)[0].turn]

    run(main)


def test_a_shortened_history_is_shorter_and_its_cost_is_not_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with claude(tmp_path) as real, real.talk({"say": "4711 it is."}, {"say": "Which?"}) as talk:
            await talk.session.turn("Remember 4711.")
            await talk.session.compact()
            await talk.session.turn("Go on.")
            assert talk.ends == [("completed", None)] * 3
            assert [row.kind for row in talk.journal if row.step is not None] == [RequestKind.MAIN] * 2
            assert ("4711 it is." in talk.journal[1].texts, "4711 it is." in talk.journal[-1].texts) == (True, False)
            turns = [turn.turn for turn in talk.of(TurnBegan)]
            assert [event.turn for event in talk.of(UsageReported)] == [turns[0], turns[2]]

    run(main)


def test_tools_of_ours_are_called_and_one_that_fails_hinders_nothing(tmp_path: Path) -> None:
    given: list[Any] = []

    async def answer(arguments: Any) -> str:
        given.append(arguments)
        if len(given) > 1:
            raise ValueError("out of luck")
        return "forty-two"

    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tool = Tool(name="lookup", description="Looks up.", schema=schema, call=answer)
    asks = {"call": {"tool": "lookup", "arguments": {"a": 1}}}

    async def main() -> None:
        async with claude(tmp_path) as real, real.talk(asks, asks, {"say": "Done."}, tools=(tool,)) as talk:
            await talk.session.turn("Go on.")
            assert given == [{"a": 1}] * 2
            assert [(end.kind, end.name, end.ok) for end in talk.of(ToolEnded)] == [
                ("dynamic", "lookup", True),
                ("dynamic", "lookup", False),
            ]
            assert [end.output for end in talk.of(ToolEnded)] == ["forty-two", "ValueError: out of luck"]
            assert talk.answers == [("accept", "tool"), ("answered", "tool"), ("accept", "tool"), ("failed", "error")]
            assert (talk.said, talk.ends) == (["Done."], [("completed", None)])
            assert [event.source for event in talk.of(WarningRaised)].count("callback") == 1

    run(main)
