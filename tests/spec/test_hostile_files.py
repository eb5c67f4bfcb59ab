"""Files that want to hang us, fill our memory or make us crash are refused with a code, a line and few words."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import InputError
from proctor.spec.collect_errors import MAX_ERRORS
from proctor.spec.model import CampaignSpec
from proctor.spec.source_file import MAX_FILE_BYTES, decode_bytes, decode_file
from proctor.spec.tree import MAX_DEPTH

LAUGHS = b"a: &a [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + at, 98 + at, b",".join([b"*%c" % (97 + at)] * 10)) for at in range(12)
)
LADDER = b"a: &a [x]\n" + b"".join(b"b%d: &a [*a]\n" % at for at in range(MAX_DEPTH + 2))


@pytest.mark.long
@pytest.mark.parametrize(
    ("data", "line", "what"),
    [
        (b"a: [1, 2", 1, "did not find expected ',' or ']' while parsing a flow sequence that began on line 1"),
        (b"a: 1\nb: c: d", 2, "mapping values are not allowed in this context"),
        (
            b"a: 1\n\tb: 2",
            2,
            "found a tab character that violates indentation while scanning a plain scalar that began on line 1",
        ),
        (b"a: 1\nb: \xff", 2, "not UTF-8: invalid start byte"),
        (b"\x89PNG\r\n\x1a\n\0\0", 1, "not UTF-8: invalid start byte"),
        (b"\xff\xfea\0:\0", 1, "not UTF-8: invalid start byte"),
        (b"a: 1\nb: \0", 2, "YAML does not allow the character U+0000"),
        (b'a: 1\nb: "\\0"', 2, "a text must not contain the character U+0000"),
        (b'a: 1\n"\\0": b', 2, "a text must not contain the character U+0000"),
        (LAUGHS, 6, "the file has more than 200000 values, with aliases expanded"),
        (b"[" + b"[]," * 250_000 + b"]", 1, "the file has more than 200000 values, with aliases expanded"),
        (LADDER, MAX_DEPTH, "the file is nested more than 64 levels deep, with aliases expanded"),
        (b"a: &a [*a]", 1, "the alias *a has no anchor before it"),
        (b"*a", 1, "the alias *a has no anchor before it"),
        (b"[" * 100_000, 1, "the file is nested more than 64 levels deep"),
        (b"- " * 100_000, 1, "the file is nested more than 64 levels deep"),
        (b"{a: " * 100_000, 1, "the file is nested more than 64 levels deep"),
        (b"? " * 100_000, 1, "a key must be a string, not a list or a mapping"),
        (b"? [a]\n: b", 1, "a key must be a string, not a list or a mapping"),
        (b"a: &k x\n? *k\n: b", 2, "a key must be a string, not an alias"),
        (b"? " + b"k" * 1000 + b"\n: b", 1, "the key has more than 200 characters"),
        (
            b"a: 1\nb: !!python/object/apply:os.system [ls]",
            2,
            "the YAML tag `tag:yaml.org,2002:python/object/apply:os.system` is not supported",
        ),
        (b"a: !!str 5", 1, "the YAML tag `tag:yaml.org,2002:str` is not supported"),
        (b"a: &a {b: 1}\nc:\n  <<: *a", 3, "the merge key `<<` is not supported"),
        (b"a: 1\n---\nb: 2", 2, "the file contains a second YAML document; only one is allowed"),
        (b"%YAML 9.9\n---\na: 1", 1, "found incompatible YAML document"),
        (
            b"'" + b"\n" * 100_000,
            100_000,
            "found unexpected end of stream while scanning a quoted scalar that began on line 1",
        ),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else "",
)
def test_what_is_no_honest_yaml_is_a_syntax_error(data: bytes, line: int, what: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_bytes(data, dict[str, Any], file="evil.yaml")
    error = caught.value
    assert (error.code, error.file, error.line, error.what) == ("spec.syntax", "evil.yaml", line, what)


def test_as_deep_as_allowed_is_read() -> None:
    marked = decode_bytes(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, list[Any], file="deep.yaml")
    assert marked.root.depth == MAX_DEPTH


def test_a_thousand_faults_are_told_as_the_first_hundred() -> None:
    data = b"".join(b"key%d: 1\n" % at for at in range(1000))
    with pytest.raises(InputError) as caught:
        decode_bytes(data, CampaignSpec, file="evil.yaml")
    assert len(getattr(caught.value, "errors", ())) == MAX_ERRORS


def make_folder(path: Path) -> None:
    path.mkdir()


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_large(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_nothing(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (make_folder, "this is a folder, not a file"),
        (make_pipe, "this is not a regular file"),
        (make_large, "the file is larger than 4 MiB"),
        (make_loop, "this file cannot be read: Too many levels of symbolic links"),
        (make_nothing, "this file does not exist"),
    ],
)
def test_what_cannot_be_read_is_unreadable(tmp_path: Path, make: Any, what: str) -> None:
    path = tmp_path / "spec.yaml"
    make(path)
    with pytest.raises(InputError) as caught:
        decode_file(path, CampaignSpec)
    error = caught.value
    assert (error.code, error.file, error.line, error.what) == ("spec.unreadable", str(path), None, what)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_an_impossible_path_is_unreadable(name: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_file(Path(name), CampaignSpec)
    assert caught.value.code == "spec.unreadable"


_PIECES = st.sampled_from(
    [
        "a",
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\n",
        "  ",
        "&a ",
        "*a",
        "!t ",
        "? ",
        "'",
        '"',
        "|\n",
        "#",
        "%",
        "---\n",
        "<<",
    ]
)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.lists(_PIECES, max_size=30).map(lambda parts: "".join(parts).encode()))
def test_no_bytes_end_in_anything_but_a_value_or_an_input_error(data: bytes) -> None:
    for type_ in (CampaignSpec, dict[str, Any]):
        error = refusal(data, type_)
        if error is not None:
            assert error.code.startswith("spec.")
            assert error.line is not None
            assert 1 <= error.line <= max(1, len(data.decode("utf-8", "replace").splitlines()))


def refusal(data: bytes, type_: type) -> InputError | None:
    try:
        decode_bytes(data, type_, file="any.yaml")
    except InputError as error:
        return error
    return None
