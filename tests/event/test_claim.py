"""A claim is what the agent itself said in the marker, and nothing else."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.event.claim import FOOTER, MARKER, NO_CLAIM, Claim, ClaimFold, claim_in, with_footer
from proctor.event.model import Event, PromptSent, ResultFound, TextSaid, TextStreamed, TurnAsked, TurnEnded
from proctor.ids import ItemId, TurnId
from tests.event.streams import streams, words

T1 = TurnId("t1")

answers = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def said(text: str, *, frame: int) -> TextSaid:
    return TextSaid(turn=T1, item=ItemId(f"i{frame}"), text=text, frame=frame, at_ms=frame)


def marker(*, done: bool, answer: str | None) -> str:
    return f"{MARKER} {msgspec.json.encode({'done': done, 'answer': answer}).decode()}"


def claim_of(*events: Event) -> Claim:
    fold = ClaimFold()
    for event in events:
        fold.feed(event)
    return fold.claim


@pytest.mark.requirement("evidence.claimed-vs-verified")
@given(streams)
def test_without_a_marker_there_is_no_claim_whatever_happened(events: list[Event]) -> None:
    assert claim_of(*events) == NO_CLAIM


@pytest.mark.requirement("evidence.claimed-vs-verified")
def test_a_turn_that_merely_ended_claims_nothing() -> None:
    ended = TurnEnded(turn=T1, status="completed", frame=2, at_ms=2)
    assert claim_of(said("All done, everything is fixed!", frame=1), ended) == NO_CLAIM


@given(
    before=words,
    done=st.booleans(),
    answer=answers,
    ticks=st.sampled_from(["", "`"]),
    after=st.sampled_from(["", "\n", "\r\n"]),
)
def test_a_marker_is_read_back_as_it_was_written(before: str, done: bool, answer: str, ticks: str, after: str) -> None:
    text = f"{before}\n{ticks}{marker(done=done, answer=answer)}{ticks}{after}"
    assert claim_in(text, frame=7) == Claim(claimed=done, answer=answer, frame=7)


def test_an_empty_answer_is_none() -> None:
    assert claim_in(marker(done=True, answer=""), frame=1) == Claim(claimed=True, answer=None, frame=1)


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "yes",
        '{"done": "yes"}',
        "{}",
        '{"done": true',
        '{"done": true} and more',
        '{"done":true,"x":' + "[" * 100_000,
    ],
    ids=lambda rest: rest[:20],
)
def test_a_marker_that_cannot_be_read_is_a_problem_and_no_claim(rest: str) -> None:
    claim = claim_in(f"{MARKER} {rest}", frame=3)
    assert (claim.claimed, claim.answer, claim.frame) == (None, None, 3)
    assert claim.problem is not None
    assert claim.problem.startswith("the marker line is not readable: ")


def test_only_the_last_line_of_the_last_message_is_a_claim() -> None:
    text = f"{marker(done=False, answer='a')}\n{marker(done=True, answer='b')}\n"
    assert claim_in(text, frame=1) == Claim(claimed=True, answer="b", frame=1)
    assert claim_in(f"{text}But it is not finished.", frame=1) == NO_CLAIM
    assert claim_in(f"I refuse to write {marker(done=True, answer='a')}", frame=1) == NO_CLAIM
    two = (said(marker(done=True, answer="a"), frame=1), said(marker(done=False, answer="b"), frame=2))
    assert claim_of(*two) == Claim(claimed=False, answer="b", frame=2)
    assert claim_of(*two, said("Actually I failed.", frame=3)) == NO_CLAIM


def test_a_new_prompt_forgets_what_was_claimed_before() -> None:
    claimed = said(marker(done=True, answer="a"), frame=1)
    assert claim_of(claimed, TurnAsked(text="Again.", frame=2, at_ms=2)) == NO_CLAIM


def test_neither_our_prompt_nor_half_a_message_is_a_claim() -> None:
    """The prompt spells the marker out, and a stream may break off."""
    streamed = TextStreamed(turn=T1, item=ItemId("i1"), text=marker(done=True, answer="a"), frame=2, at_ms=2)
    assert claim_of(PromptSent(text=with_footer("Do it."), frame=1, at_ms=1), streamed) == NO_CLAIM


def test_an_agent_that_only_repeats_the_request_claims_nothing() -> None:
    assert claim_in(FOOTER, frame=1).claimed is None


@pytest.mark.requirement("evidence.claimed-vs-verified")
def test_a_result_that_was_handed_in_stands_until_another_is_and_one_that_is_none_takes_nothing_back() -> None:
    handed_in = ResultFound(source="feedback", done=True, answer="4", result=[4], frame=1, at_ms=1)
    missing = ResultFound(source="file", code="agent.result-missing", problem="no file", frame=3, at_ms=3)
    later = ResultFound(source="feedback", done=False, frame=4, at_ms=4)
    words = said(marker(done=False, answer="no"), frame=2)
    claim = Claim(claimed=True, answer="4", frame=1, result=[4])

    assert claim_of(handed_in, words) == claim
    assert claim_of(handed_in, missing) == msgspec.structs.replace(claim, problem="agent.result-missing: no file")
    assert claim_of(words, missing) == Claim(frame=3, problem="agent.result-missing: no file")
    assert claim_of(handed_in, words, later) == Claim(claimed=False, frame=4)
    assert claim_of(handed_in, TurnAsked(text="x", frame=2, at_ms=2), said("Hm.", frame=3)) == NO_CLAIM
