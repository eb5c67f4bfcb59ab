"""Decoding with lines: every kind of fault at its exact place, and every right file whole."""

import re
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import Meta

from proctor import canonical
from proctor.errors import CollectedInputError, InputError
from proctor.spec.source_file import decode_bytes
from proctor.spec.tree import Node, child_path


class Mood(StrEnum):
    YES = "yes"
    NO = "no"


class Walk(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="walk"):
    steps: Annotated[int, Meta(ge=1, le=9)]


class Sing(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="sing"):
    song: list[str] | str

    def __post_init__(self) -> None:
        if not self.song:
            raise ValueError("a song has words")


class Dog(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    mood: Mood = Mood.NO
    size: Literal["small", "big"] | None = None
    age: float | None = None
    is_good: bool = True
    tricks: tuple[Walk | Sing, ...] = ()
    tags: dict[str, str] = {}
    notes: Any = None
    puppies: Annotated[list["Dog"], Meta(max_length=2)] = []


def decode(text: str) -> Dog:
    return decode_bytes(text.encode(), Dog, file="dog.yaml").value


def test_a_file_becomes_structs() -> None:
    text = """
name: Rex
mood: yes
size: big
age: 3
is_good: false
tricks:
  - {kind: walk, steps: 0x7}
  - {kind: sing, song: [la, la]}
  - {kind: sing, song: on}
tags: {off: "1", null: 'true'}
notes: {a: [1, 1.5, true, ~, yes, 2024-01-01, 1:30]}
puppies: [{name: Ada}]
"""
    assert decode(text) == Dog(
        name="Rex",
        mood=Mood.YES,
        size="big",
        age=3.0,
        is_good=False,
        tricks=(Walk(steps=7), Sing(song=["la", "la"]), Sing(song="on")),
        tags={"off": "1", "null": "true"},
        notes={"a": [1, 1.5, True, None, "yes", "2024-01-01", "1:30"]},
        puppies=[Dog(name="Ada")],
    )


def test_an_anchor_is_read_where_it_is_named() -> None:
    text = "&k name: &n Rex\npuppies:\n  - &p {name: *n, notes: *k}\n  - *p\n"
    marked = decode_bytes(text.encode(), Dog, file="dog.yaml")
    assert marked.value == Dog(name="Rex", puppies=[Dog(name="Rex", notes="name")] * 2)
    assert [marked.line_of(key) for key in ("puppies[0]", "puppies[1]")] == [3, 4]


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert decode_bytes(b"\xef\xbb\xbfname: Rex", Dog, file="dog.yaml").value == Dog(name="Rex")


@pytest.mark.parametrize(
    ("text", "code", "line", "key", "what", "suggestion"),
    [
        ("name: R\nmod: yes", "spec.unknown-key", 2, "mod", "unknown key `mod`", "Did you mean `mood`?"),
        (
            "name: R\nzzz: 1",
            "spec.unknown-key",
            2,
            "zzz",
            "unknown key `zzz`",
            "Known keys: name, mood, size, age, is_good, tricks, tags, notes, puppies.",
        ),
        ("nam: R", "spec.unknown-key", 1, "nam", "unknown key `nam`", "Did you mean `name`?"),
        (
            "name: R\npuppies:\n  - name: A\n\n    name: B",
            "spec.duplicate-key",
            5,
            "puppies[0].name",
            "the key `name` is already on line 3",
            None,
        ),
        ("mood: yes", "spec.missing-key", 1, "name", "required key `name` is missing", None),
        ("puppies: []\nname:", "spec.type", 2, "name", "expected a string, found nothing", None),
        ("name: 5", "spec.type", 1, "name", "expected a string, found an integer", "Put it in quotes."),
        ("name: true", "spec.type", 1, "name", "expected a string, found true", "Put it in quotes."),
        ("name: R\nis_good: yes", "spec.type", 2, "is_good", "expected true or false, found a string", "Write true."),
        ("name: R\nis_good: off", "spec.type", 2, "is_good", "expected true or false, found a string", "Write false."),
        ("name: R\nmood: yse", "spec.type", 2, "mood", "`yse` is not one of yes, no", "Did you mean `yes`?"),
        ("name: R\nmood: true", "spec.type", 2, "mood", "expected one of yes, no, found true", None),
        ("name: R\nsize: huge", "spec.type", 2, "size", "`huge` is not one of small, big", None),
        ("name: R\nage: old", "spec.type", 2, "age", "expected a number, found a string", None),
        ("name: R\nage: 1e999", "spec.type", 2, "age", "the number 1e999 is too large", None),
        (
            "name: R\nnotes: [" + "9" * 5000 + "]",
            "spec.type",
            2,
            "notes[0]",
            f"the number {'9' * 30} is too large",
            None,
        ),
        ("name: R\ntricks: sit", "spec.type", 2, "tricks", "expected a list, found a string", 'Write a list: ["sit"].'),
        ("name: R\ntags: [a]", "spec.type", 2, "tags", "expected a mapping, found a list", None),
        ("name: R\ntags: {a.b: {}}", "spec.type", 2, 'tags["a.b"]', "expected a string, found a mapping", None),
        (
            "name: R\ntricks:\n- kind: walk\n  steps: 10",
            "spec.type",
            4,
            "tricks[0].steps",
            "expected an integer <= 9, found 10",
            None,
        ),
        ("name: R\ntricks:\n- kind: sing\n  song: []", "spec.type", 3, "tricks[0]", "a song has words", None),
        (
            "name: R\npuppies: [{name: A}, {name: B}, {name: C}]",
            "spec.type",
            2,
            "puppies",
            "expected a list of length <= 2",
            None,
        ),
        (
            "name: R\ntricks:\n- steps: 3",
            "spec.missing-key",
            3,
            "tricks[0].kind",
            "required key `kind` is missing",
            "Add `kind`, one of walk, sing.",
        ),
        (
            "name: R\ntricks:\n- steps: 3\n  kind: wlak",
            "spec.type",
            4,
            "tricks[0].kind",
            "unknown kind `wlak`; the kinds are walk, sing",
            "Did you mean `walk`?",
        ),
        (
            "name: R\ntricks: [{kind: 3}]",
            "spec.type",
            2,
            "tricks[0].kind",
            "expected one of walk, sing, found an integer",
            None,
        ),
        ("- a", "spec.type", 1, None, "expected a mapping, found a list", None),
        ("", "spec.type", 1, None, "expected a mapping, found nothing", None),
    ],
)
def test_a_fault_is_told_with_its_place_and_a_way_out(
    text: str, code: str, line: int, key: str | None, what: str, suggestion: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        decode(text)
    error = caught.value
    assert not isinstance(error, CollectedInputError)
    assert (error.code, error.file, error.line, error.key, error.what, error.suggestion) == (
        code,
        "dog.yaml",
        line,
        key,
        what,
        suggestion,
    )


@pytest.mark.requirement("campaign.matrix")
def test_all_faults_of_a_file_are_told_at_once_in_its_order() -> None:
    text = """\
nme: Rex
mood: mabye
mood: yes
tricks:
  - {kind: walk, steps: few, far: 1}
  - {kind: fly}
puppies:
  - {}
"""
    with pytest.raises(CollectedInputError) as caught:
        decode(text)
    assert [str(one) for one in caught.value.errors] == [
        "dog.yaml:1: nme: unknown key `nme`",
        "dog.yaml:2: mood: `mabye` is not one of yes, no",
        "dog.yaml:3: mood: the key `mood` is already on line 2",
        "dog.yaml:5: tricks[0].steps: expected an integer, found a string",
        "dog.yaml:5: tricks[0].far: unknown key `far`",
        "dog.yaml:6: tricks[1].kind: unknown kind `fly`; the kinds are walk, sing",
        "dog.yaml:8: puppies[0].name: required key `name` is missing",
    ]


def test_the_line_of_an_absent_key_is_that_of_what_would_hold_it() -> None:
    marked = decode_bytes(b"name: R\npuppies:\n  - name: A\n  - name: B\n", Dog, file="dog.yaml")
    keys = ("puppies[1].name", "puppies[1].mood", "puppies[7].mood", "tags.a", "name[0]", "")
    assert [marked.line_of(key) for key in keys] == [4, 4, 2, 1, 1, 1]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Every kind of value there is."""

    text: str
    words: list[str] = []
    table: dict[str, dict[str, int]] = {}
    inner: "Shape | None" = None
    loose: Any = None


# PyYAML writes YAML 1.1, in which `1e5` and `0o7` are words; read as 1.2 they are numbers.
_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12).filter(
    lambda text: re.fullmatch(r"[-+.]?[0-9][0-9.]*[eEo][-+0-9]+", text) is None
)
_LEAF = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
_LOOSE = st.recursive(
    _LEAF | _TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_TEXT.filter(lambda key: key != "<<"), inner, max_size=3)
    ),
    max_leaves=6,
)
_TABLE = st.dictionaries(
    _TEXT.filter(lambda key: key != "<<"),
    st.dictionaries(st.text('ab.["\\ ', max_size=4), st.integers(0, 9), max_size=3),
)
_SHAPE = st.recursive(
    st.builds(Shape, text=_TEXT, words=st.lists(_TEXT, max_size=3), table=_TABLE, loose=_LOOSE),
    lambda inner: st.builds(Shape, text=_TEXT, inner=inner),
    max_leaves=3,
)


def places(value: Any, path: str = "") -> list[str]:
    """The key paths of all entries, in the order they are written in block style."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [
        place for key, inner in entries for where in [child_path(path, key)] for place in [where, *places(inner, where)]
    ]


@settings(max_examples=60, deadline=None)
@given(_SHAPE, st.booleans(), st.sampled_from([10, 80, 10_000]))
def test_whatever_is_dumped_is_read_back(shape: Shape, is_flow: bool, width: int) -> None:
    plain = msgspec.to_builtins(shape)
    text = yaml.safe_dump(plain, default_flow_style=is_flow, width=width, sort_keys=False)
    # PyYAML folds a few texts, such as '0\x1f 0' at a width of 10, so that it does not read them back itself.
    assume(yaml.safe_load(text) == plain)
    # As bytes, because 1, 1.0 and true are equal in Python.
    assert canonical.encode(decode_bytes(text.encode(), Shape, file="x").value) == canonical.encode(shape)


@settings(max_examples=60, deadline=None)
@given(_SHAPE)
def test_every_entry_is_on_the_line_where_it_is_written(shape: Shape) -> None:
    plain = msgspec.to_builtins(shape)
    text, lines = spell(plain)
    marked = decode_bytes(text.encode(), Shape, file="x")
    assert canonical.encode(marked.value) == canonical.encode(shape)
    assert {where: marked.line_of(where) for where in places(plain)} == lines


def quoted(text: str) -> str:
    return '"' + "".join(char if char.isascii() and char.isalnum() else f"\\U{ord(char):08X}" for char in text) + '"'


def spell(plain: Any) -> tuple[str, dict[str, int]]:
    """Flow style with one entry a line, and the line of each."""
    out: list[str] = []
    lines: dict[str, int] = {}

    def write(value: Any, path: str) -> None:
        if isinstance(value, dict | list):
            out[-1] += "{" if isinstance(value, dict) else "["
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                where = child_path(path, key)
                out.append(f"? {quoted(key)} : " if isinstance(key, str) else "")
                lines[where] = len(out)
                write(inner, where)
                out[-1] += ","
            out[-1] += "}" if isinstance(value, dict) else "]"
        else:
            out[-1] += quoted(value) if isinstance(value, str) else msgspec.json.encode(value).decode()

    out.append("")
    write(plain, "")
    return "\n".join(out), lines


def test_a_node_knows_how_much_it_stands_for() -> None:
    marked = decode_bytes(b"a: &a [1, 2]\nb: [*a, *a]\n", dict[str, Any], file="x")
    assert isinstance(marked.root, Node)
    assert (marked.root.size, marked.root.depth) == (11, 4)
