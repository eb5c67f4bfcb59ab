"""The strict reader, on good streams and on anything else."""

import os
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import EvidenceError
from proctor.event.row import GENESIS, Row
from proctor.evidence.artifacts import Feedback, StreamHead
from proctor.evidence.chain import ChainHead, chain_rows, link
from proctor.evidence.reader import Finding, read_artifact, read_rows


class Small(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    a: int
    text: str


SMALL = [Small(a=number, text="é" * number) for number in range(1, 6)]
ROWS = [{"a": small.a, "text": small.text} for small in SMALL]


def chained(rows: list[Any]) -> bytes:
    return chain_rows(rows, head=ChainHead())


def write(folder: Path, data: bytes) -> Path:
    path = folder / "probes.jsonl"
    path.write_bytes(data)
    return path


def finding(code: str, line: int | None, detail: str) -> Finding:
    return Finding(code=code, file="probes.jsonl", line=line, detail=detail)


CHAIN_BROKEN = "`prev` is not the digest of the line before"


def test_a_whole_stream_gives_its_rows_and_where_its_chain_ends(tmp_path: Path) -> None:
    data = chained(SMALL)
    reading = read_rows(write(tmp_path, data), Small)

    for _ in ("first pass", "second pass"):
        assert list(reading) == SMALL
        assert reading.findings == ()
        assert reading.head == StreamHead(rows=5, head=link(data.splitlines()[-1]))


def test_rows_come_back_as_they_were_before_they_were_chained(tmp_path: Path) -> None:
    assert list(read_rows(write(tmp_path, chained(ROWS)), dict)) == ROWS


@pytest.mark.requirement("evidence.integrity")
@pytest.mark.requirement("evidence.crash-safe")
def test_a_torn_last_line_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    data = chained(SMALL)
    last = len(data.splitlines()[-1])
    reading = read_rows(write(tmp_path, data[:-1]), Small)

    assert list(reading) == SMALL[:4]
    assert reading.findings == (finding("evidence.torn", 5, f"{last} bytes without a newline"),)
    assert reading.head.rows == 4


@settings(deadline=None)
@given(st.data())
def test_a_stream_cut_anywhere_gives_its_whole_rows_and_says_so(data: st.DataObject) -> None:
    whole = chained(SMALL)
    cut = data.draw(st.integers(0, len(whole)))
    with tempfile.TemporaryDirectory() as folder:
        reading = read_rows(write(Path(folder), whole[:cut]), Small)
        rows = list(reading)

    complete = whole[:cut].count(b"\n")
    assert rows == SMALL[:complete]
    torn = cut > 0 and whole[cut - 1 : cut] != b"\n"
    assert [(found.code, found.line) for found in reading.findings] == [("evidence.torn", complete + 1)] * torn


@pytest.mark.requirement("evidence.seal")
@pytest.mark.requirement("evidence.integrity")
def test_an_altered_line_is_caught_at_the_next_one(tmp_path: Path) -> None:
    data = chained(SMALL).replace(b'"a":2', b'"a":7')
    reading = read_rows(write(tmp_path, data), Small)

    assert [row.a for row in reading] == [1, 7, 3, 4, 5]
    assert reading.findings == (finding("evidence.chain", 3, CHAIN_BROKEN),)


def test_a_line_taken_out_is_caught_at_the_next_one(tmp_path: Path) -> None:
    lines = chained(SMALL).splitlines(keepends=True)
    reading = read_rows(write(tmp_path, b"".join(lines[:1] + lines[2:])), Small)

    assert [row.a for row in reading] == [1, 3, 4, 5]
    assert (reading.findings[0].code, reading.findings[0].line) == ("evidence.chain", 2)


def test_a_row_whose_number_is_wrong_is_caught_where_it_stands(tmp_path: Path) -> None:
    data = chained(SMALL[:1]).replace(b'"seq":1', b'"seq":9')
    reading = read_rows(write(tmp_path, data), Small)

    assert list(reading) == SMALL[:1]
    assert reading.findings == (finding("evidence.chain", 1, "`seq` is 9, expected 1"),)


@settings(deadline=None)
@given(st.data())
def test_a_flipped_byte_is_found_by_the_chain_or_by_where_it_ends(data: st.DataObject) -> None:
    whole = bytearray(chained(SMALL))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with tempfile.TemporaryDirectory() as folder:
        untouched = read_rows(write(Path(folder), chained(SMALL)), Small)
        list(untouched)
        reading = read_rows(write(Path(folder), bytes(whole)), Small)
        list(reading)

    assert (reading.findings, reading.head) != ((), untouched.head)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"not json", "evidence.syntax"),
        (b"", "evidence.syntax"),
        (b"\x00\xff\xfe garbage \x80", "evidence.syntax"),
        (b'{"seq":2,"prev":"x","a":1,"text":"\xff"}', "evidence.syntax"),
        (b"[1,2]", "evidence.schema"),
        (b'{"a":1,"text":"no link"}', "evidence.schema"),
        (b'{"seq":2,"prev":"x","a":"one","text":""}', "evidence.schema"),
        (b'{"seq":2,"prev":"x","a":1,"text":"","more":1}', "evidence.schema"),
        (b'{"seq":2,"prev":"x","a":' + b"[" * 99_999, "evidence.schema"),
    ],
)
def test_a_bad_line_is_skipped_and_told_and_the_next_ones_are_read(tmp_path: Path, bad: bytes, code: str) -> None:
    lines = chained(SMALL[:3]).splitlines()
    lines[1] = bad
    reading = read_rows(write(tmp_path, b"\n".join(lines) + b"\n"), Small)

    assert [row.a for row in reading] == [1, 3]
    assert [(found.code, found.line) for found in reading.findings] == [(code, 2), ("evidence.chain", 3)]


def test_bad_bytes_are_found_in_a_frame_that_is_not_decoded(tmp_path: Path) -> None:
    line = b'{"seq":1,"atMs":0,"dir":"in","prev":"%b","frame":{"a":"\xff"}}\n' % GENESIS.encode()
    reading = read_rows(write(tmp_path, line), Row)

    assert list(reading) == []
    assert [(found.code, found.line) for found in reading.findings] == [("evidence.syntax", 1)]


@pytest.mark.requirement("evidence.validate")
@settings(deadline=None)
@given(st.lists(st.binary(max_size=40) | st.sampled_from(chained(SMALL).splitlines(keepends=True)), max_size=8))
def test_any_bytes_whatever_are_read_without_an_exception_and_every_line_is_accounted_for(parts: list[bytes]) -> None:
    data = b"".join(parts)
    with tempfile.TemporaryDirectory() as folder:
        reading = read_rows(write(Path(folder), data), Small)
        rows = list(reading)

    skipped = [found for found in reading.findings if found.code in ("evidence.syntax", "evidence.schema")]
    assert len(rows) + len(skipped) == data.count(b"\n") == reading.head.rows


def test_a_line_of_100_megabytes_is_passed_over_in_little_memory_and_the_chain_goes_on(tmp_path: Path) -> None:
    path, limit_bytes = tmp_path / "probes.jsonl", 1024 * 1024
    with path.open("wb") as file:
        file.truncate(100_000_000)
        file.seek(0, os.SEEK_END)
        file.write(b"\n")
    # Links taken over the whole file are for checking only; the reader under test must not hold it.
    head = ChainHead(rows=1, prev=link(path.read_bytes()[:-1]))
    with path.open("ab") as file:
        file.write(chain_rows(SMALL[:1], head=head))

    tracemalloc.start()
    reading = read_rows(path, Small, limit_bytes=limit_bytes)
    rows = list(reading)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert rows == SMALL[:1]
    assert reading.findings == (finding("evidence.syntax", 1, f"the line is longer than {limit_bytes} bytes"),)
    assert peak_bytes < 8 * limit_bytes


@pytest.mark.parametrize("size", [8, 16, 17, 40])
def test_a_long_line_that_never_ends_is_torn(tmp_path: Path, size: int) -> None:
    reading = read_rows(write(tmp_path, b"x" * size), Small, limit_bytes=16)

    assert list(reading) == []
    assert [found.code for found in reading.findings] == ["evidence.torn"]


def test_a_line_of_just_the_limit_is_read(tmp_path: Path) -> None:
    data = chained(SMALL[:1])

    assert list(read_rows(write(tmp_path, data), Small, limit_bytes=len(data) - 1)) == SMALL[:1]


def make_link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path: None, "evidence.missing-file"),
        (Path.mkdir, "evidence.containment"),
        (os.mkfifo, "evidence.containment"),
        (make_link, "evidence.containment"),
    ],
)
def test_what_is_no_file_is_told_and_never_followed_or_waited_for(tmp_path: Path, make: Any, code: str) -> None:
    (tmp_path / "elsewhere").write_bytes(chained(SMALL))
    path = tmp_path / "probes.jsonl"
    make(path)
    reading = read_rows(path, Small)

    assert list(reading) == []
    assert [(found.code, found.file) for found in reading.findings] == [(code, "probes.jsonl")]
    with pytest.raises(EvidenceError) as refused:
        read_artifact(path, Feedback)
    assert refused.value.code == code


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_an_artifact_of_any_bytes_whatever_gives_a_code(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "feedback.json"
        path.write_bytes(data)
        with pytest.raises(EvidenceError) as refused:
            read_artifact(path, Feedback)

    assert refused.value.code in ("evidence.syntax", "evidence.schema")
