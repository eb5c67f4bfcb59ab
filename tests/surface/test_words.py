"""Names, messages and documents are plain technical English, held by the word list and the glossary."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.surface.contract import contract
from tools.wordlist import ENTRIES, OLD_TERMS, find_words, scan

ROOT = Path(__file__).parent.parent.parent


@cache
def words_in(text: str) -> tuple[str, ...]:
    return tuple(each.word for each in find_words("README.md", text))


def texts_in(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield at, value
        case dict():
            for key, each in value.items():
                yield from texts_in(each, f"{at}.{key}")
        case list() | tuple():
            for each in value:
                name = each.get("name") or each.get("code") or each.get("id") if isinstance(each, dict) else None
                yield from texts_in(each, f"{at}[{name}]")


def names_in(source: str) -> Iterator[str]:
    """Yield the names of classes, functions, parameters and fields."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def spaced(name: str) -> str:
    """Return the words of a name, as in `of its own` for `of_its_own` and `OfItsOwn`."""
    return " ".join(re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)).lower()


@pytest.mark.requirement("surface.words")
def test_commands_options_errors_and_fields_have_no_words_to_avoid() -> None:
    texts = [*texts_in(msgspec.to_builtins(contract()))]
    assert {at.split("[")[0] for at, _ in texts} >= {".commands", ".errors", ".failures", ".exits", ".files", ".events"}
    assert [(at, words) for at, text in texts if (words := words_in(text))] == []


@pytest.mark.long
@pytest.mark.requirement("surface.words")
def test_source_and_documents_have_no_words_to_avoid() -> None:
    assert [str(each) for each in scan(ROOT)] == []


@pytest.mark.long
@pytest.mark.requirement("surface.words")
def test_names_have_no_words_to_avoid() -> None:
    found = {}
    for path in (ROOT / "src").rglob("*.py"):
        names = {path.stem, *names_in(path.read_text(encoding="utf-8"))}
        if avoided := sorted(name for name in names if words_in(spaced(name))):
            found[path.relative_to(ROOT).as_posix()] = avoided
    assert found == {}


@pytest.mark.requirement("surface.words")
def test_names_with_words_to_avoid_are_found() -> None:
    source = "class CellResult:\n    told: str\n\n    def of_its_own(self, lane_id, title, cancelled): ...\n"
    assert {name for name in names_in(source) if words_in(spaced(name))} == {
        "CellResult",
        "told",
        "of_its_own",
        "lane_id",
    }


@pytest.mark.requirement("surface.words")
def test_terms_that_the_glossary_replaces_are_words_to_avoid() -> None:
    assert {entry.name for entry in ENTRIES} >= OLD_TERMS
    glossary = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    assert not set(re.findall(r"\w+", glossary.lower())) & OLD_TERMS
