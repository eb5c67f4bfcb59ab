"""The schema pages: every field's meaning is printed, in one line of its table."""

import re

import pytest

from proctor.event.row import AnySupervisorRow
from proctor.surface.contract import Contract, contract
from proctor.surface.gc import GcItem
from tools.field_docs import documented_structs, meanings_of
from tools.reference import document_types, documents


@pytest.fixture(scope="module")
def built() -> Contract:
    return contract()


def test_schema_page_prints_the_meaning_of_a_field(built: Contract) -> None:
    meaning = meanings_of(GcItem)["isDeleted"]
    assert f"| `isDeleted` | boolean | required | {meaning} |\n" in documents(built)["SCHEMAS.md"]


def test_schema_page_prints_every_meaning_there_is(built: Contract) -> None:
    pages = documents(built)
    tables = pages["SCHEMAS.md"] + pages["docs/reference/events.md"]
    rows = set(re.findall(r"^\| `(\w+)` \|.*? \| ([^|]*?) \|$", tables, re.MULTILINE))
    meanings = {
        (name, meaning)
        for struct in documented_structs()
        for name, meaning in meanings_of(struct).items()
        if "|" not in meaning and name not in ("frame", "atMs")  # the page of the events explains these two once
    }
    assert len(meanings) > 100
    assert meanings - rows == set()


def test_schema_page_escapes_a_pipe_in_a_meaning(built: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tools.reference.meanings_of", lambda struct: {"isDeleted": "a | b"} if struct is GcItem else {}
    )
    assert "| `isDeleted` | boolean | required | a \\| b |\n" in documents(built)["SCHEMAS.md"]


def test_types_with_one_name_are_told_apart(built: Contract) -> None:
    types, printed = document_types(built)
    assert list(types) == list(built.types)
    assert "transcript.Line" in printed
    assert printed["AttemptExplanation"]["properties"]["transcriptTail"]["items"] == {"$ref": "transcript.Line"}
    assert "seq" in types["Line"]["properties"]
    assert "seq" not in printed["transcript.Line"]["properties"]


def test_tag_of_a_variant_has_a_meaning(built: Contract) -> None:
    types, _ = document_types(built)
    variants = [types[member.__name__] for member in AnySupervisorRow.__args__]
    assert {each["properties"]["saw"]["description"] for each in variants} == {"The tag: which variant this is."}
