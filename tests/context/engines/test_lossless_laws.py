"""Laws of the engine `lossless` over all sessions: nothing is lost, everything fits, compaction ends."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.context.engine import CompactStatus, EngineContext
from proctor.context.engines.lossless.entry_text import valid_text, whole_text
from proctor.context.engines.lossless.segments import split_history, split_turn
from proctor.context.history import ListedHistory
from proctor.event.message import CallPart, Message, ResultPart
from proctor.ids import EntryId
from tests.context.engines.talks import Talk, context, shown_entries, sources_of, summaries, turns

pytestmark = pytest.mark.requirement("context.engines")

TOKENS = st.sampled_from([0, 20, 100, 400, 5000])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "say", "mirror", "maintain", "compact", "reopen", "again", "damage"]),
        TOKENS,
        st.sampled_from([False, False, True]),
    ),
    max_size=30,
)
EVERYTHING = context(10**6)


@pytest.mark.long
@settings(max_examples=40)
@given(said=turns(), steps=STEPS, summary_tokens=st.sampled_from([50, 800]))
def test_everything_that_was_said_is_shown_or_covered_or_counted(
    said: list[list[Message]], steps: list[tuple[str, int, bool]], summary_tokens: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        talk, left, last = Talk(Path(folder), summary_tokens=summary_tokens), iter(said), said[0]
        before = talk.assemble(EVERYTHING)
        for step, tokens, is_by_model in steps:
            ctx = context(tokens, complete=_answer if is_by_model else None)
            match step:
                case "say" | "mirror":
                    following = next(left, None)
                    if following is not None:
                        (talk.say if step == "say" else talk.mirror)(following)
                        last = following if step == "say" else last
                case "maintain":
                    talk.maintain(ctx)
                case "compact":
                    assert_compacts(talk, ctx)
                case "again" if last[0] in talk.entries:
                    talk.commit(last)
                case "reopen":
                    talk.reopen()
                case "damage":
                    talk.engine.close()
                    (Path(folder) / "lossless.db").write_bytes(b"damaged")
                    talk.reopen()
                case _:
                    pass
            # Checks the result, and counts the entries.
            talk.assemble(ctx)
            shown = talk.assemble(EVERYTHING)
            assert (shown.projection.epoch == before.projection.epoch) == (summaries(shown) == summaries(before))
            if step in ("say", "mirror", "again"):
                assert shown.projection.epoch == before.projection.epoch
            before = shown
        talk.reopen()
        talk.maintain(context(100), "bootstrap")
        talk.assemble(context(100))
        assert talk.engine.select(EVERYTHING, talk.history).dropped == 0
        assert_expandable(talk)
        assert talk.engine.find_damage() is None
        talk.engine.close()


async def _answer(request: str) -> str:
    return f"A request of {len(request)} characters."


def assert_compacts(talk: Talk, ctx: EngineContext) -> None:
    """Compact. Either tokens are saved, or nothing changes and the status says so."""
    before = summaries(talk.assemble(EVERYTHING))
    done = talk.compact(ctx, force=True)
    assert done.tokens_before is not None
    assert done.tokens_after is not None
    if done.status is CompactStatus.COMPACTED:
        assert done.tokens_after < done.tokens_before
        assert summaries(talk.assemble(EVERYTHING)) != before
    else:
        assert done.status in (CompactStatus.NO_PROGRESS, CompactStatus.NOT_NEEDED)
        assert done.tokens_after == done.tokens_before
        assert summaries(talk.assemble(EVERYTHING)) == before


def assert_expandable(talk: Talk) -> None:
    """Follow `context_expand` from each summary to its entries: each once, in order, with its text and taint."""
    entries = {message.id: message for message in talk.entries}
    results = {message.part.call: message.id for message in talk.entries if isinstance(message.part, ResultPart)}
    for summary in summaries(talk.assemble(EVERYTHING)):
        assert tuple(expanded(talk, summary.id, entries, results)) == sources_of(summary)


def as_read(text: str) -> str:
    """Return the text as JSON gives it back: two surrogates that follow each other become one character."""
    read: str = json.loads(json.dumps(text))
    return read


def expanded(
    talk: Talk, id_: EntryId, entries: Mapping[EntryId, Message], results: Mapping[EntryId, EntryId]
) -> Iterator[EntryId]:
    """Yield the entries that a summary covers, as the agent finds them. Checks each level."""
    covered: list[dict[str, Any]] = []
    following: str | None = id_
    while following is not None:
        answer = json.loads(talk.call("context_expand", id=following))
        covered += answer["covers"]
        following = answer.get("next")
    if "text" in covered[0]:
        for each in covered:
            below = list(expanded(talk, EntryId(each["id"]), entries, results))
            assert each["entries"] == len(below)
            assert each.get("isTainted", False) == any(entries[id_].is_tainted for id_ in below)
            yield from below
        return
    own = {each["id"] for each in covered}
    for each in covered:
        entry = entries[each["id"]]
        assert each.get("isTainted", False) == entry.is_tainted
        # A call and its result are in one leaf.
        assert results.get(entry.id, entry.id) in own
        assert json.loads(talk.call("context_expand", id=entry.id))["text"] == valid_text(as_read(whole_text(entry)))
        yield entry.id


@pytest.mark.long
@settings(max_examples=25)
@given(said=turns(), tokens=st.sampled_from([20, 100, 400]))
def test_case_26_compaction_saves_tokens_in_each_pass_and_ends(said: list[list[Message]], tokens: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        talk = Talk(Path(folder))
        for messages in said:
            talk.say(messages)
        passes = [talk.compact(context(tokens), force=True)]
        while passes[-1].status is CompactStatus.COMPACTED:
            assert len(passes) < 100
            passes.append(talk.compact(context(tokens), force=True))
        assert passes[-1].status in (CompactStatus.NO_PROGRESS, CompactStatus.NOT_NEEDED)
        sizes = [size for each in passes for size in (each.tokens_before, each.tokens_after)]
        assert sizes == sorted(sizes, key=lambda size: -(size or 0))
        found = talk.assemble(context(10**6))
        assert shown_entries(found) == [message.id for message in talk.entries]
        talk.engine.close()


@pytest.mark.long
@settings(max_examples=25)
@given(said=turns())
def test_a_summary_is_tainted_if_one_of_its_entries_is_and_is_no_larger_than_they(said: list[list[Message]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        talk = Talk(Path(folder))
        for messages in said:
            talk.say(messages)
        talk.compact(context(50), force=True)
        tainted = {message.id for message in talk.entries if message.is_tainted}
        for summary in summaries(talk.assemble(context(10**6))):
            assert summary.is_tainted == (not tainted.isdisjoint(sources_of(summary)))
            assert "\0" not in summary.part.text  # type: ignore[union-attr]
            summary.part.text.encode()  # type: ignore[union-attr]
        talk.engine.close()


@settings(max_examples=30)
@given(said=turns(max_size=5))
def test_segments_keep_order_and_never_part_a_call_from_its_result(said: list[list[Message]]) -> None:
    entries = [message for messages in said for message in messages]
    history = ListedHistory(entries)
    whole = list(split_history(entries, find_result=history.result_of))
    assert [message for each in whole for message in each.messages] == entries
    for segments in (whole, [each for messages in said for each in split_turn(messages)]):
        for segment in segments:
            calls = {message.id for message in segment.messages if isinstance(message.part, CallPart)}
            results = {message.part.call for message in segment.messages if isinstance(message.part, ResultPart)}
            assert results <= calls


@pytest.mark.proctor_process
def test_equal_sessions_have_equal_summaries_in_every_process(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from tests.context.engines.talks import Talk, context\n"
        "from tests.context.engines.talks import various\n"
        "talk = Talk(pathlib.Path(sys.argv[1]))\n"
        "for number in range(60): talk.say(various(number))\n"
        "talk.compact(context(2000), focus='task 7 and result 3 word')\n"
        "found = talk.assemble(context(2000))\n"
        "print(found.projection.epoch, found.messages)\n"
        "print(talk.call('context_search', query='task word', limit=50))\n"
        "print([talk.call('context_expand', id=each.id) for each in found.messages])\n"
    )
    printed = []
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    assert "summary-" in printed[0]
