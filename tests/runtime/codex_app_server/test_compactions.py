"""Compactions by the real Codex, and where they stand among the other events of a turn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from proctor.event.model import CompactionBegan, CompactionEnded
from proctor.runtime.codex_app_server import RUNTIME
from proctor.testing.agent_under_test import EventTap, open_agent
from proctor.testing.conformance.turns import must_be_lawful
from proctor.testing.journals import recorded_journals, request_items
from tests.runtime.messages import order_of, round_of, said
from tests.runtime.twin import run

pytestmark = [pytest.mark.real_agent, pytest.mark.requirement("context.compaction")]

FULL = {"usage": {"input": 190_000, "output": 5}}


def ended(tap: EventTap) -> tuple[CompactionBegan, CompactionEnded]:
    """The only compaction."""
    [began], [end] = tap.of(CompactionBegan), tap.of(CompactionEnded)
    assert (end.ok, end.keeps, end.keeps_tokens) == (True, "user-messages", 20_000)
    assert end.tokens_after is not None
    assert end.tokens_after < 10_000
    return began, end


def talk(folder: Path, steps: Sequence[Mapping[str, Any]], *acts: str) -> tuple[EventTap, list[list[tuple[str, str]]]]:
    """Do this in one session: prompts, `compact` and `give`. Returns the events, and what each request held of it."""

    async def main() -> tuple[EventTap, list[list[tuple[str, str]]]]:
        with recorded_journals() as journals:
            async with (
                open_agent(RUNTIME, RUNTIME.locate({}), home=folder / "home") as agent,
                agent.session(*steps, name="talk") as (session, tap),
            ):
                for act in acts:
                    match act:
                        case "compact":
                            await session.compact()
                        case "give":
                            await session.give(round_of(10))
                        case _:
                            await session.turn(act)
        must_be_lawful(tap)
        return tap, [said(items) for items in request_items(journals)]

    return run(main)


def test_requested_compaction_is_a_turn_of_its_own(tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = [{"say": "Said 1.", "usage": {"input": 12_000, "output": 1}}]
    tap, _ = talk(tmp_path, steps, "prompt 1", "compact")
    began, end = ended(tap)
    assert (began.trigger, end.trigger, end.tokens_before) == ("manual", "manual", 12_001)
    assert order_of(tap.events) == (
        "PromptSent TurnBegan TextSaid TurnEnded TurnBegan CompactionBegan CompactionEnded TurnEnded".split()
    )


def test_compaction_in_a_turn_stands_between_its_calls_and_its_answer(tmp_path: Path) -> None:
    tap, requests = talk(tmp_path, [{"run": "echo hi", **FULL}, {"say": "Said 1."}], "prompt 1")
    began, end = ended(tap)
    assert (began.trigger, end.trigger, end.tokens_before) == ("auto", "auto", 190_005)
    assert order_of(tap.events) == (
        "PromptSent TurnBegan ToolBegan ToolEnded CompactionBegan CompactionEnded TextSaid TurnEnded".split()
    )
    assert requests[-1] == [("user", "prompt 1")]


def test_compaction_before_the_first_request_stands_between_what_is_given_and_the_first_answer(tmp_path: Path) -> None:
    """The model never sees what was given, but for the messages of the user."""
    steps: list[dict[str, Any]] = [{"say": "Said 1.", **FULL}, {"say": "Said 2."}]
    tap, requests = talk(tmp_path, steps, "prompt 1", "give", "prompt 2")
    began, end = ended(tap)
    assert (began.trigger, end.trigger, end.tokens_before) == ("auto", "auto", 190_005)
    assert order_of(tap.events) == (
        "PromptSent TurnBegan TextSaid TurnEnded HistoryOffered HistoryGiven "
        "PromptSent TurnBegan CompactionBegan CompactionEnded TextSaid TurnEnded".split()
    )
    assert requests[-1] == [("user", "prompt 1"), ("user", "question 10"), ("user", "prompt 2")]
