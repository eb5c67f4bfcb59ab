"""The spellings in which known secrets are looked for in a text, and the masking of every place where one stands."""

import json
import re
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter

import msgspec

from proctor.evidence.secrets import LEAST_CHARS, Secret

_ESCAPED = json.JSONEncoder(ensure_ascii=False).encode
_ESCAPED_ASCII = json.JSONEncoder().encode


def placeholder(name: str) -> str:
    return f"[redacted:{name}]"


def escape(text: str) -> str:
    """As it stands between the quotes of a JSON string.

    >>> escape('say "hi"')
    'say \\\\"hi\\\\"'
    """
    return _ESCAPED(text)[1:-1]


def forms(value: str) -> Iterator[str]:
    """Every spelling of a secret that is looked for. A further form is a further `yield`, and nothing else."""
    # A diff, and a stream read line by line, never holds a secret of several lines in one piece.
    for plain in (value, *(line.strip() for line in value.splitlines())):
        if len(plain) >= LEAST_CHARS:
            yield plain
            yield escape(plain)
            yield escape(plain).replace("/", "\\/")
            yield _ESCAPED_ASCII(plain)[1:-1]


class Masked(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A text with its secrets replaced, the names of those, and how far into the text the last of them reaches."""

    text: str
    names: tuple[str, ...]
    reach: int
    last: str


class Needles:
    """All forms of all secrets.

    Where secrets overlap, everything any of them covers is masked: replacing only the leftmost would leave the rest of
    the next one standing.

    >>> needles = Needles([Secret(name="A", value="abcd-1234"), Secret(name="B", value="1234-efgh")])
    >>> needles.mask("see abcd-1234-efgh.").text
    'see [redacted:A][redacted:B].'
    """

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._names: dict[str, str] = {}
        for secret in secrets:
            for form in forms(secret.value):
                self._names.setdefault(form, secret.name)
        self._raw = tuple({**self._names, **dict.fromkeys(map(escape, self._names))})
        # Any other escape is its character's only spelling, and one like `\\u001b` can hide only a control character.
        has_controls = any(char < " " for needle in self._names for char in needle)
        self._hiding = re.compile(r"\\u|\\/" if has_controls else r"\\u(?!00[01])|\\/")
        self._by_first = {first: tuple(group) for first, group in groupby(sorted(self._names), key=itemgetter(0))}
        self._firsts = re.compile(f"[{re.escape(''.join(self._by_first))}]" if self._by_first else "(?!)")
        self._window = max(map(len, self._names), default=1) - 1

    def name_of(self, text: str) -> str | None:
        """The secret that this text is, as a whole."""
        return self._names.get(text)

    def name_of_start(self, tail: str) -> str:
        """The secret that an open tail begins: the tail itself if it is one, else the first in the alphabet."""
        return self._names[next(needle for needle in self._by_first[tail[0]] if needle.startswith(tail))]

    def may_be_in(self, raw: str) -> bool:
        """Whether undecoded JSON can hold a needle: one is in it as it stands, or an escape may hide one."""
        if "\\" in raw and self._hiding.search(raw):
            return True
        for needle in self._raw:  # noqa: SIM110  # any() over a generator takes twice as long
            if needle in raw:
                return True
        return False

    def open_at(self, text: str) -> int:
        """Where the longest tail begins that the next piece of text may make a needle of; the text's end if none."""
        for match in self._firsts.finditer(text, max(0, len(text) - self._window)):
            at = match.start()
            tail = text[at:]
            for needle in self._by_first[tail[0]]:
                if len(needle) > len(tail) and needle.startswith(tail):
                    return at
        return len(text)

    def mask(self, text: str, *, end: int | None = None, reach: int = 0, last: str = "") -> Masked:
        """Masks the needles that start before `end`, and gives out the text before it.

        `reach` and `last` say how much of the text's head an earlier call has masked already, and under which name.
        """
        end = len(text) if end is None else end
        found = [self._places(text, needle, end=end) for needle in self._names if needle in text]
        if not found:
            return Masked(text=text[reach:end], names=(), reach=reach, last=last)
        pieces: list[str] = []
        names: dict[str, None] = {}
        for start, minus_size, name in merge(*found):
            if start - minus_size <= reach:
                continue
            if start > reach:
                pieces.append(text[reach:start])
            # One run of the same secret is one placeholder: "--------" as a secret must not multiply a long rule.
            if start >= reach or name != last:
                pieces.append(placeholder(name))
            names[name] = None
            reach, last = start - minus_size, name
        pieces.append(text[reach:end])
        return Masked(text="".join(pieces), names=tuple(names), reach=reach, last=last)

    def _places(self, text: str, needle: str, *, end: int) -> Iterator[tuple[int, int, str]]:
        """Start, negative size and name of each place, so that merged places come by start, the longest first."""
        at = text.find(needle)
        while 0 <= at < end:
            yield at, -len(needle), self._names[needle]
            at = text.find(needle, at + 1)
