"""Compactions by the real Claude Code, and where they stand among the other events of a turn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from proctor.event.laws import Laws
from proctor.event.model import CompactionBegan, CompactionEnded, PromptSent, ToolBegan, ToolEnded, TurnEnded
from proctor.runtime.environment import agent_environment
from tests.runtime.claude_code.real import Talk, claude, run
from tests.runtime.claude_code.test_normalize import INIT, Said, events_of, heard, of, prompt, result
from tests.runtime.messages import order_of, round_of, said

pytestmark = pytest.mark.requirement("context.compaction")

FULL = {"usage": {"input": 190_000, "output": 5}}


def ended(talk: Talk, *, ok: bool = True) -> tuple[CompactionBegan, CompactionEnded]:
    """The last compaction."""
    began, end = talk.of(CompactionBegan)[-1], talk.of(CompactionEnded)[-1]
    assert (end.ok, end.keeps, end.keeps_tokens) == (ok, "nothing", None)
    return began, end


def talked(folder: Path, steps: Sequence[Mapping[str, Any]], *acts: str) -> tuple[Talk, list[tuple[str, str]]]:
    """Do this in one session: prompts and `give`. Returns it, and what the last request held."""

    async def main() -> tuple[Talk, list[tuple[str, str]]]:
        small = {"PATH": "/usr/bin:/bin", "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "200000"}
        env = agent_environment({"PATH": small.pop("PATH")}, env=small).values
        async with claude(folder, env=env) as real, real.talk(*steps) as talk:
            for act in acts:
                if act == "give":
                    await talk.session.give(round_of(10))
                else:
                    await talk.session.turn(act)
            return talk, [said(row.items) for row in talk.journal if row.digest is not None][-1]

    return run(main)


@pytest.mark.real_agent
@pytest.mark.agent("claude_code")
def test_requested_compaction_is_a_turn_of_its_own_and_a_needless_one_fails(tmp_path: Path) -> None:
    async def main() -> None:
        async with claude(tmp_path) as real, real.talk({"say": "Said 1.", "usage": {"input": 12_000}}) as talk:
            await talk.session.turn("prompt 1")
            await talk.session.compact()
            began, end = ended(talk)
            assert (began.trigger, end.trigger, end.tokens_before, end.problem) == ("manual", "manual", 12_002, None)
            assert end.tokens_after is not None
            await talk.session.compact()
            began, end = ended(talk, ok=False)
            assert (end.tokens_before, end.tokens_after) == (None, None)
            assert end.problem == "Not enough messages to compact."
            compaction = "PromptSent TurnBegan CompactionBegan CompactionEnded TurnEnded".split()
            assert order_of(talk.tap.events) == [*"PromptSent TurnBegan TextSaid TurnEnded".split(), *compaction * 2]

    run(main)


@pytest.mark.real_agent
@pytest.mark.agent("claude_code")
def test_compaction_in_a_turn_stands_between_its_calls_and_its_answer(tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = [{"say": "Said 1."}, {"run": "echo answer", **FULL}, {"say": "Said 2."}]
    talk, last = talked(tmp_path, steps, "prompt 1", "prompt 2")
    began, end = ended(talk)
    assert (began.trigger, end.trigger) == ("auto", "auto")
    assert end.tokens_before is not None
    assert end.tokens_after is not None
    assert end.tokens_before > 190_000 > 10_000 > end.tokens_after
    assert order_of(talk.tap.events) == (
        "PromptSent TurnBegan TextSaid TurnEnded "
        "PromptSent TurnBegan ToolBegan ToolEnded CompactionBegan CompactionEnded TextSaid TurnEnded".split()
    )
    assert ("user", "prompt 1") not in last
    # The call and its result are kept, but not the prompt of the turn.
    assert end.keeps_frames == (talk.of(ToolBegan)[-1].frame, talk.of(ToolEnded)[-1].frame)
    assert last == [("Bash", '{"command":"echo answer"}'), ("user", "answer")]


@pytest.mark.real_agent
@pytest.mark.agent("claude_code")
def test_compaction_before_the_first_request_stands_between_what_is_given_and_the_first_answer(tmp_path: Path) -> None:
    """The model never sees most of what was given."""
    steps: list[dict[str, Any]] = [{"say": "Said 1.", **FULL}, {"say": "Said 2."}]
    talk, last = talked(tmp_path, steps, "prompt 1", "give", "prompt 2")
    began, end = ended(talk)
    assert began.trigger == "auto"
    assert end.keeps_frames == (talk.of(PromptSent)[-1].frame,)
    assert order_of(talk.tap.events) == (
        "PromptSent TurnBegan TextSaid TurnEnded HistoryOffered HistoryGiven "
        "PromptSent TurnBegan CompactionBegan CompactionEnded TextSaid TurnEnded".split()
    )
    assert ("user", "question 10") not in last
    assert last[-1] == ("user", "prompt 2")


# ── frames that the program does not send here ──


def status(uuid: str, value: str | None, **more: Any) -> Said:
    return heard("system", subtype="status", status=value, uuid=uuid, **more)


def boundary(uuid: str, trigger: str = "auto", **counts: int) -> Said:
    return heard("system", subtype="compact_boundary", uuid=uuid, compact_metadata={"trigger": trigger, **counts})


def compactions(*frames: Said) -> list[tuple[str, str | None, bool | None]]:
    events = events_of([prompt(), INIT, *frames, result()])
    laws = Laws()
    assert [law for event in events if (law := laws.feed(event)) is not None] == []
    return [
        (type(event).__name__, event.trigger, event.ok if isinstance(event, CompactionEnded) else None)
        for event in of(events, CompactionBegan, CompactionEnded)
        if isinstance(event, CompactionBegan | CompactionEnded)
    ]


BEGAN = ("CompactionBegan", "auto", None)


def test_compaction_whose_frames_are_repeated_is_one_compaction() -> None:
    frames = [status("1", "compacting"), status("2", "compacting"), status("3", None, compact_result="success")]
    frames.append(boundary("4", pre_tokens=7))
    twice = [frame for each in frames for frame in (each, each)]
    assert compactions(*twice) == [BEGAN, ("CompactionEnded", "auto", True)]
    failed = [status("1", "compacting"), status("2", None, compact_result="failed")]
    assert compactions(*failed, *failed) == [BEGAN, ("CompactionEnded", "auto", False)]


def test_compaction_whose_beginning_is_lost_begins_with_its_end() -> None:
    assert compactions(boundary("1")) == [BEGAN, ("CompactionEnded", "auto", True)]
    assert compactions(status("1", None, compact_result="failed")) == [BEGAN, ("CompactionEnded", "auto", False)]


@pytest.mark.parametrize(("more", "ok"), [({}, False), ({"compact_result": "success"}, True)])
def test_compaction_without_boundary_ends_with_its_turn(more: dict[str, Any], ok: bool) -> None:
    frames = [status("1", "compacting"), status("2", None, **more)]
    assert compactions(*frames) == [BEGAN, ("CompactionEnded", "auto", ok)]
    events = events_of([prompt(), INIT, *frames, result()])
    assert [type(event) for event in events[-2:]] == [CompactionEnded, TurnEnded]
