"""The example engine: it passes the suite, reminds of what was asked, and records its calls in order."""

import json
from pathlib import Path

import pytest

from proctor.context.budget import budget_for
from proctor.context.engine import EngineContext, EngineSetup, TurnCommit
from proctor.context.guard import CancelSignal
from proctor.context.history import ListedHistory
from proctor.errors import InputError
from proctor.event.message import AgentPart, Message, SummaryPart, UserPart
from proctor.ids import EntryId, SessionKey
from proctor_notes import MOST_CALLS, NotesEngine, create

BUDGET = budget_for(reported_window=None, configured_window=None, fixed_prompt_tokens=None)
PROMPT = Message(id=EntryId("r/a#9"), at_ms=9, part=UserPart(text="And now?"))
TURN = (
    Message(id=EntryId("r/a#1"), at_ms=1, part=UserPart(text="Where is the lamp?\nSay it in one word.")),
    Message(id=EntryId("r/a#2"), at_ms=2, part=AgentPart(text="Cellar.")),
)


def open_engine(folder: Path, **options: object) -> NotesEngine:
    return create(EngineSetup(session=SessionKey("s"), folder=folder, options=options))


def context() -> EngineContext:
    return EngineContext(session=SessionKey("s"), model=None, tools=frozenset(), budget=BUDGET, cancel=CancelSignal())


def commit(engine: NotesEngine) -> str:
    turn = TurnCommit(key=TURN[0].id, messages=TURN, model=None, budget=BUDGET, usage=None)
    return engine.commit_turn(context(), turn)


def calls(folder: Path) -> list[str]:
    return [json.loads(line)["method"] for line in (folder / "calls.jsonl").read_text().splitlines()]


def test_notes_are_the_first_lines_of_prompts(tmp_path: Path) -> None:
    engine = open_engine(tmp_path, line_chars=8)
    assert commit(engine) == "committed"
    [summary] = engine.assemble(context(), ListedHistory(TURN), PROMPT).messages
    assert summary.part == SummaryPart(text="The user asked before:\n- Where is", sources=(TURN[0].id,))


def test_notes_record_their_calls_in_order_and_nothing_that_was_said(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    engine.bootstrap(context(), ListedHistory(TURN))
    engine.maintain(context(), "bootstrap")
    engine.assemble(context(), ListedHistory(TURN), PROMPT)
    commit(engine)
    engine.close()
    assert calls(tmp_path) == ["bootstrap", "maintain", "assemble", "commit_turn", "close"]
    assert "lamp" not in (tmp_path / "calls.jsonl").read_text()


def test_notes_maintenance_bounds_the_record_of_calls(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    for _ in range(MOST_CALLS):
        engine.close()
    engine.maintain(context(), "turn")
    assert calls(tmp_path)[-2:] == ["close", "maintain"]
    assert len(calls(tmp_path)) == MOST_CALLS // 2


def test_notes_stop_a_bootstrap_that_is_cancelled(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    ctx = context()
    assert isinstance(ctx.cancel, CancelSignal)
    ctx.cancel.set()
    engine.bootstrap(ctx, ListedHistory(TURN))
    assert engine.assemble(context(), ListedHistory(TURN), PROMPT).messages == ()


@pytest.mark.parametrize("options", [{"line_char": 5}, {"line_chars": 0}, {"line_chars": "9"}])
def test_notes_refuse_wrong_options(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(InputError, match="line_char"):
        open_engine(tmp_path, **options)
