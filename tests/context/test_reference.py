"""References: what is given beside the prompt is whole and cannot leave its tag; the rest is quoted."""

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.context.reference import (
    Reference,
    Trust,
    escape_reference,
    place_references,
    quote_reference,
    reference_key,
    unescape_reference,
)
from proctor.context.text import Header, Quote
from tests.context.histories import texts

pytestmark = pytest.mark.requirement("context.projection")

MOST_BYTES: Final = 4_000

references = st.builds(Reference, id=texts, text=texts, trust=st.sampled_from(Trust))


@given(text=texts)
def test_a_reference_cannot_leave_its_tag_and_can_be_read_back(text: str) -> None:
    escaped = escape_reference(text)
    assert re.search(r"[<>\0]|\$[A-Za-z0-9_:-]|\[@", escaped) is None
    assert unescape_reference(escaped) == text
    assert escaped.encode().decode() == escaped


@given(id_=texts)
def test_keys_have_only_safe_characters(id_: str) -> None:
    assert re.fullmatch("[a-z0-9][a-z0-9_]{0,63}", reference_key(id_))


@given(found=st.lists(references, max_size=6), most=st.none() | st.integers(0, 60))
def test_each_reference_has_one_place(found: list[Reference], most: int | None) -> None:
    placed = place_references(found, most_separate_bytes=most)
    assert sorted([*(each.id for each in placed.separate), *(each.id for each in placed.quoted)]) == sorted(
        each.id for each in found
    )
    assert len({each.key for each in placed.separate}) == len(placed.separate)
    assert all(most is not None and len(each.value.encode()) <= most for each in placed.separate)


@pytest.mark.parametrize("char", ["a", "é", "😀", "<", "$a", "\ud800"])
def test_a_reference_is_quoted_if_its_escaped_text_is_longer_than_the_agent_passes_on(char: str) -> None:
    escaped_bytes = len(escape_reference(char).encode())
    fitting = Reference(id="a", text=char * (MOST_BYTES // escaped_bytes))
    longer = Reference(id="b", text=char * (MOST_BYTES // escaped_bytes + 1))
    placed = place_references([fitting, longer], most_separate_bytes=MOST_BYTES)
    assert [each.id for each in placed.separate] == ["a"]
    assert placed.quoted == (longer,)


def test_every_reference_is_quoted_where_the_agent_has_no_other_place() -> None:
    found = (Reference(id="a", text="a"), Reference(id="b", text="b", trust=Trust.OPERATOR))
    placed = place_references(found, most_separate_bytes=None)
    assert (placed.separate, placed.quoted) == ((), found)


def test_of_two_references_with_one_id_the_second_is_quoted() -> None:
    first, second = Reference(id="a", text="1"), Reference(id="a", text="2")
    placed = place_references([first, second], most_separate_bytes=MOST_BYTES)
    assert ([each.value for each in placed.separate], placed.quoted) == (["1"], (second,))


def test_a_quoted_reference_names_its_id_and_trust() -> None:
    reference = Reference(id="notes.md", text="Use tabs.", trust=Trust.OPERATOR)
    assert quote_reference(reference) == Quote(header=Header.REFERENCE, text="notes.md (operator)\nUse tabs.")
