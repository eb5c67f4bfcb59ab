"""The field docstrings: how they are read, which structs need them, and that none is missing."""

import importlib
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from proctor.event.row import Row
from proctor.evidence.artifacts import Seal
from proctor.surface.cli.app import COMMANDS, find_command
from proctor.surface.contract import SCHEMAS
from tools import field_docs
from tools.field_docs import (
    JSON_OUTPUTS,
    Declaration,
    MissingDoc,
    documented_structs,
    find_missing,
    main,
    meanings_of,
    read_declarations,
    scan,
    structs_below,
)

ROOT = Path(__file__).parent.parent.parent


class Parent(msgspec.Struct, kw_only=True, rename="camel"):
    """Root of the structs below."""

    schema_version: int
    """Version of the format."""
    at_ms: int
    """Time of the event."""


class Child(Parent, kw_only=True, rename="camel"):
    """Narrows one field, documents another anew, and adds one without a docstring."""

    schema_version: typing.Literal[1] = 1
    at_ms: int
    """Time of the child."""
    name: str


class Sibling(msgspec.Struct):
    """Found through a union inside a container."""

    child: Child | None
    """The child."""


class Household(msgspec.Struct):
    """Holds the others."""

    members: dict[str, tuple[Parent | Sibling, ...]] = {}
    """Members by name."""


def meaning(source: str, field: str = "x") -> str | None:
    return read_declarations(f"class A:\n{source}")["A"][field].meaning


# ── the reader ──


def test_reader_returns_the_line_after_the_field() -> None:
    assert meaning('    x: int\n    """Width, in pixels."""\n') == "Width, in pixels."


def test_reader_takes_a_field_with_a_default() -> None:
    assert (
        meaning('    x: list[int] = msgspec.field(\n        default_factory=list\n    )\n    """Widths."""\n')
        == "Widths."
    )


def test_reader_passes_over_a_comment_between() -> None:
    assert meaning('    x: int = 0  # noqa\n    # A hazard.\n\n    """Width."""\n') == "Width."


def test_reader_joins_the_lines_of_the_first_paragraph() -> None:
    assert meaning('    x: int\n    """Width\n    in pixels.\n\n    More of it.\n    """\n') == "Width in pixels."


def test_reader_finds_no_docstring_behind_another_statement() -> None:
    assert meaning('    x: int\n    y: int\n    """Height."""\n') is None


def test_reader_does_not_take_the_docstring_of_a_class_for_a_field() -> None:
    assert read_declarations('class A:\n    """An A."""\n\n    x: int\n') == {
        "A": {"x": Declaration(line=4, meaning=None)}
    }


@pytest.mark.parametrize("literal", ['f"Width {1}."', 'b"Width."', "1", '""', '"  "', "...", "note('Width.')"])
def test_reader_takes_only_a_string_with_text(literal: str) -> None:
    assert meaning(f"    x: int\n    {literal}\n") is None


def test_reader_names_nested_classes_by_their_qualified_name() -> None:
    source = 'class A:\n    class B:\n        x: int\n        """Width."""\n    y: int\n    """Height."""\n'
    assert read_declarations(source) == {
        "A": {"y": Declaration(line=5, meaning="Height.")},
        "A.B": {"x": Declaration(line=3, meaning="Width.")},
    }


def test_meanings_are_keyed_by_the_encoded_name_and_inherited() -> None:
    assert meanings_of(Child) == {"schemaVersion": "Version of the format.", "atMs": "Time of the child."}
    assert meanings_of(Parent) == {"schemaVersion": "Version of the format.", "atMs": "Time of the event."}


def test_meanings_are_inherited_across_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "field_docs_base.py").write_text(
        'import msgspec\n\n\nclass Base(msgspec.Struct):\n    x: int\n    """Width."""\n'
    )
    (tmp_path / "field_docs_sub.py").write_text(
        "from field_docs_base import Base\n\n\nclass Sub(Base):\n    y: int = 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    sub = importlib.import_module("field_docs_sub").Sub

    assert meanings_of(sub) == {"x": "Width."}
    assert list(find_missing(sub, root=tmp_path)) == [MissingDoc(path="field_docs_sub.py", line=5, field="Sub.y")]


def test_missing_field_is_named_where_it_is_declared() -> None:
    source = Path(__file__).read_text().splitlines()
    [missing] = find_missing(Child, root=ROOT)
    assert str(missing) == f"tests/tools/test_field_docs.py:{source.index('    name: str') + 1} Child.name"


def test_missing_inherited_field_is_reported_once_for_all_subclasses() -> None:
    class Grandchild(Child, kw_only=True):
        pass

    assert {*find_missing(Grandchild, root=ROOT)} == {*find_missing(Child, root=ROOT)}


def test_fields_that_the_chain_adds_mean_what_they_mean_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = {"seq": Declaration(line=1, meaning="Number."), "prev": Declaration(line=2, meaning="Digest.")}
    monkeypatch.setattr(
        field_docs, "declared_in", lambda struct: declared if struct is Row else {"call": declared["seq"]}
    )
    chained = msgspec.defstruct("ToolCall", [("seq", int), ("prev", str)])

    assert meanings_of(chained) == {"seq": "Number.", "prev": "Digest."}


# ── the structs ──


def test_structs_are_found_through_fields_unions_and_containers() -> None:
    assert structs_below(Household) == [Household, Parent, Sibling, Child]


def test_structs_of_the_contract_are_checked() -> None:
    assert {Seal, Row, *structs_below(*SCHEMAS.values())} <= {*documented_structs()}


def test_every_command_that_prints_json_is_listed() -> None:
    printing = {
        name
        for name in COMMANDS
        if any(
            "--json" in each.names and each.settings.get("dest") == "as_json" for each in find_command(name).arguments
        )
    }
    assert set(JSON_OUTPUTS) == printing


def subclasses(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in struct.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_public_struct_of_the_surface_is_checked() -> None:
    for file in (ROOT / "src/proctor/surface").rglob("*.py"):
        importlib.import_module(
            ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        )
    documented = {*documented_structs()}
    roots = {base for struct in documented for base in struct.__mro__}
    assert [
        struct.__name__
        for struct in subclasses(msgspec.Struct)
        if struct.__module__.startswith("proctor.surface.")
        and not struct.__name__.startswith("_")
        and struct not in roots
    ] == []


# ── the check ──


FIELDS = (
    MissingDoc(path="src/proctor/event/a.py", line=3, field="A.x"),
    MissingDoc(path="src/proctor/event/b/c.py", line=5, field="C.y"),
    MissingDoc(path="src/proctor/fact.py", line=1, field="Fact.z"),
)


@pytest.mark.requirement("surface.words")
def test_every_field_that_reaches_disk_or_wire_has_a_docstring() -> None:
    assert [str(each) for each in scan(ROOT)] == []


def test_check_fails_on_any_field_and_lists_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(field_docs, "scan", lambda root: list(FIELDS))
    assert main([]) == 1
    assert capsys.readouterr().out.splitlines() == list(map(str, FIELDS))

    monkeypatch.setattr(field_docs, "scan", lambda root: [])
    assert main([]) == 0
    assert capsys.readouterr().out == "fields without a docstring: none\n"


def test_check_lists_only_the_fields_below_a_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(field_docs, "scan", lambda root: list(FIELDS))
    assert main(["src/proctor/event/b"]) == 1
    assert capsys.readouterr().out == "src/proctor/event/b/c.py:5 C.y\n"
    assert main(["src/proctor/spec"]) == 0
