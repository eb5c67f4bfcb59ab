"""Cuts: within the bound, between characters, and stated to the byte."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.event.bounds import PREVIEW_BYTES, TEXT_BYTES, bounded_input, cut
from proctor.event.model import ReasoningSaid, ReasoningStreamed, TextSaid, TextStreamed, ToolBegan, ToolEnded
from proctor.event.outcome import NOT_ENDED
from proctor.event.trace import TraceFold
from proctor.event.transcript import Line, TranscriptFold
from proctor.ids import AttemptId, CallId, ItemId, RuntimeId, TurnId

A1, T1, I1, C1 = AttemptId("fix.native.r1.1"), TurnId("t1"), ItemId("i1"), CallId("c1")

texts = st.text(st.sampled_from("aé€😀\n\0") | st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.mark.requirement("evidence.bounds")
@given(text=texts, limit_bytes=st.integers(0, 80))
def test_a_cut_is_the_longest_beginning_that_fits_and_the_rest_is_counted(text: str, limit_bytes: int) -> None:
    kept, left_out = cut(text, limit_bytes=limit_bytes)

    assert text.startswith(kept)
    assert len(kept.encode()) <= limit_bytes
    assert left_out == len(text.encode()) - len(kept.encode())
    if kept != text:
        assert len((kept + text[len(kept)]).encode()) > limit_bytes, "one more character would not fit"


@pytest.mark.requirement("evidence.bounds")
@given(
    value=st.recursive(
        st.none() | st.integers(0, 9) | texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner)
    )
)
def test_an_input_that_fits_is_kept_as_it_is(value: object) -> None:
    assert bounded_input(value) == (value, 0)


@pytest.mark.requirement("evidence.bounds")
@pytest.mark.parametrize("char", ["x", "é", "€", "😀"])
@pytest.mark.parametrize("extra", [-1, 0, 1, 5_000])
def test_an_input_that_does_not_fit_becomes_the_head_of_its_json(char: str, extra: int) -> None:
    value = [char * (TEXT_BYTES // len(char.encode()) + extra)]
    data = msgspec.json.encode(value).decode()
    kept, left_out = bounded_input(value)

    if len(data.encode()) <= TEXT_BYTES:
        assert (kept, left_out) == (value, 0)
    else:
        assert data.startswith(kept)
        assert TEXT_BYTES - 4 < len(kept.encode()) <= TEXT_BYTES
        assert left_out == len(data.encode()) - len(kept.encode()) > 0


@pytest.mark.requirement("evidence.bounds")
def test_a_long_output_is_previewed_and_the_cut_is_stated() -> None:
    output = "é" * PREVIEW_BYTES
    trace = TraceFold(A1)
    trace.feed(ToolBegan(turn=T1, call=C1, kind="command", name="shell", input="i" * TEXT_BYTES, frame=1, at_ms=1))
    row = trace.feed(
        ToolEnded(
            turn=T1, call=C1, kind="command", name="shell", ok=True, status="completed", output=output, frame=2, at_ms=5
        )
    )

    assert row is not None
    assert row.output == "é" * (PREVIEW_BYTES // 2)
    assert (row.output_bytes, row.cut_output_bytes) == (2 * PREVIEW_BYTES, PREVIEW_BYTES)
    assert (row.input, row.cut_input_bytes) == ('"' + "i" * (TEXT_BYTES - 1), 2)


@pytest.mark.requirement("evidence.bounds")
@given(pieces=st.lists(st.sampled_from(["x" * 9_000, "é" * 20_000, "😀" * 7_001, "a"]), min_size=1, max_size=12))
def test_a_message_that_never_ended_is_kept_as_far_as_the_bound_however_it_was_streamed(pieces: list[str]) -> None:
    """Whole or streamed, the same text is cut at the same place by the same count."""
    whole = "".join(pieces)
    streamed, said = TranscriptFold(RuntimeId("r")), TranscriptFold(RuntimeId("r"))
    for piece in pieces:
        assert streamed.feed(TextStreamed(turn=T1, item=I1, text=piece, frame=1, at_ms=1)) is None
    draft, _ = streamed.finish(NOT_ENDED, summary="", facts={})
    message = said.feed(TextSaid(turn=T1, item=I1, text=whole, frame=1, at_ms=1))

    assert message is not None
    assert draft == msgspec.structs.replace(message, partial=True)
    assert len(draft.text.encode()) + draft.cut_bytes == len(whole.encode())
    assert len(draft.text.encode()) <= TEXT_BYTES


def test_reasoning_is_bounded_like_any_message() -> None:
    text = "r" * (TEXT_BYTES + 3)
    fold = TranscriptFold(RuntimeId("r"))
    assert fold.feed(ReasoningSaid(turn=T1, item=I1, text=text, frame=1, at_ms=1)) == Line(
        kind="reasoning", at_ms=1, frame=1, text="r" * TEXT_BYTES, cut_bytes=3
    )
    fold.feed(ReasoningStreamed(turn=T1, item=ItemId("i2"), text=text, frame=2, at_ms=2))
    draft, _ = fold.finish(NOT_ENDED, summary="", facts={})
    assert draft == Line(kind="reasoning", at_ms=2, frame=2, text="r" * TEXT_BYTES, partial=True, cut_bytes=3)
