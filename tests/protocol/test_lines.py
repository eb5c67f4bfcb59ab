"""Lines are the same however the stream was cut into chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.protocol.lines import LineSplitter

STREAMS = st.lists(
    st.sampled_from([b"", b"\n", b"\r\n", b"{}", b" ", b"abc", b"\xff\x00"]) | st.binary(max_size=9)
).map(b"".join)


def split(chunks: list[bytes], *, limit_bytes: int) -> list[bytes]:
    """Every line, with the torn one last where there is one."""
    splitter = LineSplitter(limit_bytes=limit_bytes)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    rest = splitter.rest()
    assert splitter.rest() == b""
    return [*lines, rest] if rest else lines


@st.composite
def chunked(draw: st.DrawFn) -> list[bytes]:
    stream = draw(STREAMS)
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    return [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@given(chunked())
def test_any_chunking_gives_the_lines_of_the_whole(chunks: list[bytes]) -> None:
    *whole, torn = b"".join(chunks).split(b"\n")
    expected = [line.removesuffix(b"\r") for line in whole if line.strip()]
    assert split(chunks, limit_bytes=1000) == expected + ([torn] if torn else [])


@given(chunked(), st.integers(1, 5))
def test_a_line_over_the_limit_comes_in_pieces_that_no_chunking_changes(chunks: list[bytes], limit_bytes: int) -> None:
    stream = b"".join(chunks)
    pieces = split(chunks, limit_bytes=limit_bytes)
    assert pieces == split([stream], limit_bytes=limit_bytes)
    assert all(len(piece) <= limit_bytes for piece in pieces)


@given(st.text("0123456789", min_size=1).map(str.encode), st.integers(1, 5))
def test_the_pieces_of_a_long_line_hold_all_of_its_bytes(line: bytes, limit_bytes: int) -> None:
    assert b"".join(split([line, b"\n", b"next"], limit_bytes=limit_bytes)) == line + b"next"


@pytest.mark.parametrize("chunk_bytes", [1, 7, 65536])
def test_what_follows_a_long_line_is_whole(chunk_bytes: int) -> None:
    stream = b"x" * 10 + b"\n" + b'{"a":1}\n'
    chunks = [stream[at : at + chunk_bytes] for at in range(0, len(stream), chunk_bytes)]
    assert split(chunks, limit_bytes=8) == [b"x" * 8, b"xx", b'{"a":1}']
