"""The engine `window` assembles the newest whole turns that fit, and reads no further than that."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proctor.context.budget import ASSUMED_RATIO, budget_for, estimate_messages, message_bytes
from proctor.context.check_assembled import check_assembled
from proctor.context.engine import EngineContext, EngineSetup, TurnCommit
from proctor.context.engines import none, window
from proctor.context.engines.window import newest_turns
from proctor.context.guard import CancelSignal
from proctor.context.history import ListedHistory
from proctor.errors import InputError
from proctor.event.message import Message
from proctor.ids import EntryId, SessionKey
from tests.context.histories import agent, call, entry, ids, result, sessions, user

PROMPT = EntryId("r/a#999")
BUDGET = budget_for(reported_window=None, configured_window=None, fixed_prompt_tokens=None)


def context(tokens: int = BUDGET.history) -> EngineContext:
    return EngineContext(
        session=SessionKey("s"),
        model=None,
        tools=frozenset(),
        budget=replace(BUDGET, history=tokens),
        cancel=CancelSignal(),
    )


def setup(folder: Path, **options: Any) -> EngineSetup:
    return EngineSetup(session=SessionKey("s"), folder=folder, options=options)


def commit(*messages: Message) -> TurnCommit:
    return TurnCommit(key=messages[0].id, messages=messages, model=None, budget=BUDGET, usage=None)


def newest(messages: Sequence[Message], *, room: int) -> list[EntryId]:
    return ids(newest_turns(ListedHistory(messages), prompt_id=PROMPT, room_bytes=room))


class CountingHistory(ListedHistory):
    read = 0

    def __reversed__(self) -> Iterator[Message]:
        for message in super().__reversed__():
            self.read += 1
            yield message


FIRST = [user(1, "a" * 50), agent(2, "b" * 50)]
SECOND = [user(3, "c" * 50), call(4, {"command": "ls"}), result(5, 4, "out"), agent(6, "d" * 50)]
SIZE = sum(map(message_bytes, SECOND))


@pytest.mark.requirement("context.engines")
def test_window_keeps_the_newest_whole_turns() -> None:
    whole = SIZE + sum(map(message_bytes, FIRST))
    assert newest([*FIRST, *SECOND], room=whole) == ids([*FIRST, *SECOND])
    assert newest([*FIRST, *SECOND], room=whole - 1) == ids(SECOND)
    assert newest([*FIRST, *SECOND], room=SIZE) == ids(SECOND)


def test_window_keeps_the_prompt_of_a_turn_that_does_not_fit_to_the_last() -> None:
    prompt, ran, returned, said = SECOND
    assert newest([*FIRST, *SECOND], room=SIZE - 1) == ids([prompt, said])
    assert newest([*FIRST, *SECOND], room=SIZE - message_bytes(said)) == ids([prompt])
    assert newest([*FIRST, *SECOND], room=message_bytes(prompt)) == ids([prompt])
    assert newest([*FIRST, *SECOND], room=message_bytes(prompt) - 1) == []
    longer = [prompt, said, ran, returned]
    assert newest([*FIRST, *longer], room=SIZE - 1) == ids([prompt, ran, returned])


def test_window_keeps_a_call_with_its_result_across_a_steer() -> None:
    steered = [user(1, "go"), call(2, None), user(3, "faster"), result(4, 2, "x" * 50), agent(5, "done")]
    whole = sum(map(message_bytes, steered))
    assert newest(steered, room=whole) == ids(steered)
    assert newest(steered, room=whole - 1) == [entry(1), entry(3), entry(5)]


def test_window_leaves_out_the_prompt_by_id_and_keeps_an_equal_text() -> None:
    assert newest([user(1, "again"), agent(2, "yes"), user(3, "again")], room=1_000) == [entry(1), entry(2), entry(3)]
    history = ListedHistory([user(1, "again"), user(3, "again")])
    assert ids(newest_turns(history, prompt_id=entry(3), room_bytes=1_000)) == [entry(1)]


def test_window_reads_no_further_than_the_first_turn_that_does_not_fit() -> None:
    history = CountingHistory([each for _ in range(500) for each in FIRST] + SECOND)
    newest_turns(history, prompt_id=PROMPT, room_bytes=SIZE)
    assert history.read == len(SECOND) + 1


@given(messages=sessions(max_size=20), tokens=st.integers(0, 200))
def test_window_assembles_what_the_check_accepts(
    messages: list[Message], tokens: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    history = ListedHistory([each for each in messages if "#" in each.id])
    engine = window.create(setup(tmp_path_factory.getbasetemp()))
    ctx = context(tokens)
    assembled = engine.assemble(ctx, history, replace(user(0, "now"), id=PROMPT))
    findings = check_assembled(
        assembled.messages, history=history, prompt_id=PROMPT, budget=ctx.budget, ratio=ctx.ratio
    )
    assert findings == ()
    assert assembled.estimated_tokens == estimate_messages(assembled.messages, ratio=ASSUMED_RATIO).tokens <= tokens
    # Of the newest turns, nothing is left out in between.
    kept = [each.id in set(ids(assembled.messages)) for each in history]
    assert all(kept) or estimate_messages(history, ratio=ASSUMED_RATIO).tokens > tokens


@pytest.mark.requirement("context.engines")
def test_null_engine_assembles_nothing(tmp_path: Path) -> None:
    engine = none.create(setup(tmp_path, citations="on"))
    assert engine.assemble(context(), ListedHistory(FIRST), replace(user(0, "now"), id=PROMPT)).messages == ()


@pytest.mark.requirement("context.engines")
@pytest.mark.parametrize("module", [none, window])
def test_case_14_built_in_engines_know_a_turn_again_after_reopening_and_not_after_forgetting(
    tmp_path: Path, module: Any
) -> None:
    engine = module.create(setup(tmp_path))
    assert engine.commit_turn(context(), commit(*FIRST)) == "committed"
    engine.close()
    again = module.create(setup(tmp_path))
    assert again.commit_turn(context(5), commit(*FIRST)) == "duplicate"
    with pytest.raises(InputError, match="with other messages") as refused:
        again.commit_turn(context(), commit(FIRST[0], agent(2, "other")))
    assert refused.value.code == "engine.key-reused"
    again.forget(context(), "reset")
    assert list(tmp_path.iterdir()) == []
    assert again.commit_turn(context(), commit(*FIRST)) == "committed"


@pytest.mark.parametrize("module", [none, window])
def test_built_in_engines_refuse_unknown_options(tmp_path: Path, module: Any) -> None:
    with pytest.raises(InputError) as refused:
        module.create(setup(tmp_path, citation="on"))
    assert (refused.value.code, refused.value.key) == ("engine.options", "context.options.citation")
    assert refused.value.suggestion == "Did you mean `citations`?"
    with pytest.raises(InputError, match="`citations` is a int"):
        module.create(setup(tmp_path, citations=1))
