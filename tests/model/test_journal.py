"""The journal of a scripted model: all that a request says, digests always and texts on demand, in bounded memory."""

import anyio
import httpx
import msgspec
import pytest

from proctor.canonical import digest_bytes
from proctor.model.journal import Journal, JournalItem, JournalRow
from proctor.model.player import RequestKind
from proctor.model.script import Script
from proctor.model.server import open_model
from proctor.model.wire import ContentPart
from proctor.testing.journals import recorded_journals

SCRIPT = msgspec.convert({"version": 1, "steps": [{"say": "Hi."}, {"say": "Bye."}]}, Script)


def said(*texts: str) -> tuple[ContentPart, ...]:
    return tuple(ContentPart(role="user", kind="text", text=text) for text in texts)


def row(items: tuple[JournalItem, ...]) -> JournalRow:
    return JournalRow(at_ms=0, method="POST", path="/responses", kind=RequestKind.MAIN, items=items)


def test_journal_describes_every_part_by_role_kind_and_digest() -> None:
    parts = (
        ContentPart(role="developer", kind="text", text="B\u00e9 brief."),
        ContentPart(role="", kind="function_call", text="{}", tool="kit.add", call_id="c"),
    )
    assert Journal("k", text_bytes=0).describe(parts) == (
        JournalItem(role="developer", kind="text", digest=digest_bytes("B\u00e9 brief.".encode()), chars=9),
        JournalItem(role="", kind="function_call", digest=digest_bytes(b"{}"), chars=2, tool="kit.add", call_id="c"),
    )


def test_journal_shares_what_consecutive_requests_have_in_the_same_place() -> None:
    journal = Journal("k", text_bytes=0)
    first = journal.describe(said("a", "b", "c"))
    second = journal.describe(said("a", "B", "c", "d"))
    assert [one is other for one, other in zip(first, second, strict=False)] == [True, False, True]
    assert [item.digest for item in second] == [digest_bytes(text) for text in (b"a", b"B", b"c", b"d")]


def test_journal_counts_a_repeated_text_once_against_its_limit() -> None:
    journal = Journal("k", text_bytes=10)
    journal.describe(said("12345"))
    items = journal.describe(said("new", "12345", "more", "!"))
    assert [(item.text, item.is_text_dropped) for item in items] == [
        ("new", False),
        ("12345", False),
        (None, True),
        ("!", False),
    ]


@pytest.mark.parametrize(("text_bytes", "why"), [(0, "without `text_bytes`"), (1, "no room left")])
def test_journal_texts_raise_if_one_is_missing(text_bytes: int, why: str) -> None:
    journal = Journal("k", text_bytes=text_bytes)
    with pytest.raises(ValueError, match=why):
        _ = row(journal.describe(said("long"))).texts
    assert row(()).texts == ()


def test_journal_keeps_empty_texts_of_a_full_journal() -> None:
    journal = Journal("k", text_bytes=1)
    assert row(journal.describe(said("a", ""))).texts == ("a", "")


def test_recorded_journals_outlive_their_scripts() -> None:
    async def ask(url: str, text: str) -> None:
        body = {"stream": True, "instructions": "Be brief.", "input": text, "tools": [{"type": "web_search"}]}
        async with httpx.AsyncClient() as client:
            await client.post(f"{url}/responses", json=body)

    async def main() -> None:
        with anyio.fail_after(30):
            with recorded_journals() as journals:
                for _ in range(2):
                    async with open_model() as model:
                        await ask(model.play("key", SCRIPT), "Hello?")
                        model.forget("key")
                assert [(each.key, [row.texts for row in each.rows]) for each in journals] == [
                    ("key", [("Be brief.", "Hello?")])
                ] * 2
            async with open_model() as model:
                await ask(model.play("key", SCRIPT), "Unrecorded.")
                assert [item.text for item in model.journal("key")[0].items] == [None, None]
            assert len(journals) == 2

    anyio.run(main)
