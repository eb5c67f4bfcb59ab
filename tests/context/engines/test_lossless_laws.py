"""Laws of the engine `lossless` over all sessions: nothing is lost, everything fits, compaction ends."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.context.engine import CompactStatus
from proctor.context.engines.lossless.segments import split_history, split_turn
from proctor.context.history import ListedHistory
from proctor.event.message import CallPart, Message, ResultPart
from tests.context.engines.talks import Talk, context, shown_entries, sources_of, summaries, turns

pytestmark = pytest.mark.requirement("context.engines")

STEPS = st.lists(
    st.sampled_from(["say", "say", "say", "mirror", "maintain", "compact", "reopen", "again"]), max_size=30
)


@pytest.mark.long
@settings(max_examples=40)
@given(said=turns(), steps=STEPS, tokens=st.sampled_from([0, 20, 100, 400, 5000]))
def test_everything_that_was_said_is_shown_or_covered_or_counted(
    said: list[list[Message]], steps: list[str], tokens: int
) -> None:
    ctx = context(tokens)
    with tempfile.TemporaryDirectory() as folder:
        talk, left, last = Talk(Path(folder)), iter(said), said[0]
        for step in steps:
            match step:
                case "say" | "mirror":
                    following = next(left, None)
                    if following is not None:
                        (talk.say if step == "say" else talk.mirror)(following)
                        last = following if step == "say" else last
                case "maintain":
                    talk.maintain(ctx)
                case "compact":
                    talk.compact(ctx, force=True)
                case "again" if last[0] in talk.entries:
                    talk.commit(last)
                case "reopen":
                    talk.reopen()
                case _:
                    pass
            # Checks the result, and counts the entries.
            talk.assemble(ctx)
        talk.reopen()
        talk.maintain(ctx, "bootstrap")
        talk.assemble(ctx)
        assert talk.engine.select(context(10**6), talk.history).dropped == 0
        talk.engine.close()


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
        "talk = Talk(pathlib.Path(sys.argv[1]))\n"
        "talk.say_many(40)\n"
        "talk.compact(context(2000), focus='task 7 and result 3 word')\n"
        "found = talk.assemble(context(2000))\n"
        "print(found.projection.epoch, found.messages)\n"
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
