"""The hash chain of a JSONL stream: each row names the digest of the line before it."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.event.row import GENESIS

# Sorts sets and mappings, so that every process writes the same bytes.
_ENCODER = msgspec.json.Encoder(order="deterministic")


def link(line: bytes) -> str:
    """Return the digest of a line, which the next row names as its `prev`.

    >>> link(b"{}")
    '44136fa355b3678a1146ad16f7e8649e'
    """
    return hashlib.sha256(line).hexdigest()[:32]


@dataclass(slots=True)
class ChainHead:
    """The end of a stream: its number of rows, and the `prev` of the next row.

    >>> head = ChainHead()
    >>> head.advance(b"{}")
    >>> head
    ChainHead(rows=1, prev='44136fa355b3678a1146ad16f7e8649e')
    """

    rows: int = 0
    prev: str = GENESIS

    def advance(self, line: bytes) -> None:
        """Move past one more line, given without its newline."""
        self.rows += 1
        self.prev = link(line)


def chain_rows(rows: Iterable[Any], *, head: ChainHead) -> bytes:
    """Encode rows (structs or mappings) as chained lines after `head`, and advance `head` past them.

    Each line begins with `seq`, its number counted from 1, and `prev`.

    >>> chain_rows([{"a": 1}, {}], head=ChainHead()).decode().splitlines()[0]
    '{"seq":1,"prev":"00000000000000000000000000000000","a":1}'
    """
    lines = bytearray()
    for row in rows:
        fields = _ENCODER.encode(row)[1:]
        comma = b"" if fields == b"}" else b","
        line = b'{"seq":%d,"prev":"%b"%b%b' % (head.rows + 1, head.prev.encode(), comma, fields)
        head.advance(line)
        lines += line
        lines += b"\n"
    return bytes(lines)
