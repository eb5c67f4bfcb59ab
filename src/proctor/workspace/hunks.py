"""Render the differences of two texts as unified diff hunks, in bounded time for any input."""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Final, TypeAlias

_CONTEXT: Final = 3
# Matching lines takes quadratic time at worst. Above this limit the changed middle is shown as one replaced block.
_MAX_PAIRS: Final = 2_000_000

_Step: TypeAlias = tuple[str, int, int, int, int]


def render_hunks(old: bytes, new: bytes) -> bytes:
    r"""Return the hunks that change `old` into `new`; empty if they are equal.

    >>> print(render_hunks(b"one\ntwo\n", b"one\n2").decode(), end="")
    @@ -1,2 +1,2 @@
     one
    -two
    +2
    \ No newline at end of file
    """
    a, b = _lines(old), _lines(new)
    return b"".join(_render(a, b, group) for group in _groups(a, b))


def _groups(a: Sequence[bytes], b: Sequence[bytes]) -> Iterable[Sequence[_Step]]:
    head = _common_prefix(a, b)
    tail = min(_common_prefix(a[::-1], b[::-1]), len(a) - head, len(b) - head)
    start = max(0, head - _CONTEXT)
    a_end, b_end = len(a) - max(0, tail - _CONTEXT), len(b) - max(0, tail - _CONTEXT)
    if (a_end - start) * (b_end - start) <= _MAX_PAIRS:
        matcher = SequenceMatcher(None, a[start:a_end], b[start:b_end])
        for group in matcher.get_grouped_opcodes(_CONTEXT):
            yield [(tag, i + start, j + start, k + start, m + start) for tag, i, j, k, m in group]
    else:
        a_tail, b_tail = len(a) - tail, len(b) - tail
        yield [
            ("equal", start, head, start, head),
            ("replace", head, a_tail, head, b_tail),
            ("equal", a_tail, a_end, b_tail, b_end),
        ]


def _render(a: Sequence[bytes], b: Sequence[bytes], group: Sequence[_Step]) -> bytes:
    first, last = group[0], group[-1]
    out = [f"@@ -{_span(first[1], last[2])} +{_span(first[3], last[4])} @@\n".encode()]
    for tag, a_from, a_to, b_from, b_to in group:
        if tag == "equal":
            out.extend(_line(b" ", line) for line in a[a_from:a_to])
        else:
            out.extend(_line(b"-", line) for line in a[a_from:a_to])
            out.extend(_line(b"+", line) for line in b[b_from:b_to])
    return b"".join(out)


def _span(start: int, end: int) -> str:
    count = end - start
    first = start + 1 if count else start
    return f"{first}" if count == 1 else f"{first},{count}"


def _line(mark: bytes, line: bytes) -> bytes:
    return mark + line if line.endswith(b"\n") else mark + line + b"\n\\ No newline at end of file\n"


def _lines(text: bytes) -> list[bytes]:
    # Not splitlines(): a carriage return does not end a line.
    *complete, rest = text.split(b"\n")
    return [line + b"\n" for line in complete] + ([rest] if rest else [])


def _common_prefix(a: Sequence[bytes], b: Sequence[bytes]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
