"""Texts with their secrets masked: whole ones, and such as come in pieces."""

import msgspec

from proctor.evidence import scan
from proctor.evidence.needles import Needles, is_wrapped

# At a stream's end, a shorter beginning of a secret is let go.
LEAST_TAIL_CHARS = 6


_MASK = "[redacted:"


def placeholder(name: str) -> str:
    return f"{_MASK}{name}]"


def is_masked(text: str) -> bool:
    """Whether it may be another text with a secret taken out.

    >>> is_masked(f"a {placeholder('KEY')}"), is_masked("a key")
    (True, False)
    """
    return _MASK in text


class Masked(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A text with its secrets replaced, the names of those, and how far into the text the last of them reaches."""

    text: str
    names: tuple[str, ...]
    reach: int
    last: str


class _Held(msgspec.Struct, frozen=True, gc=False):
    """The end of a stream so far.

    From `start` on it is held back, because it may be the beginning of something secret. What stands before is there
    to recognise that by. `reach` says how far all has been given out, or masked already under the name of `last`.
    """

    text: str = ""
    start: int = 0
    reach: int = 0
    last: str = ""

    @property
    def is_waiting(self) -> bool:
        return self.reach < len(self.text)


_NOTHING = _Held()


class Masker:
    """Finds known secrets and the shapes of unknown ones, and keeps what is open of each stream.

    Where secrets overlap, everything any of them covers is masked: replacing only the leftmost would leave the rest of
    the next one standing.

    >>> from proctor.evidence.secrets import Secret
    >>> needles = Needles([Secret(name="A", value="abcd-1234"), Secret(name="B", value="1234-efgh")])
    >>> Masker(needles).whole("see abcd-1234-efgh.").text
    'see [redacted:A][redacted:B].'
    """

    def __init__(self, needles: Needles) -> None:
        self._needles = needles
        self._held: dict[str, _Held] = {}

    def whole(self, text: str) -> Masked:
        return self._masked(_Held(text), end=len(text), known_end=len(text), is_odd=_is_odd(text))

    # ── streams ──

    def is_plain(self, key: str, piece: str) -> bool:
        """Whether nothing of this stream is held back, nor needs to be after this piece, which holds no secret itself.

        If so, the piece is taken note of as said.
        """
        held = self._held.get(key, _NOTHING)
        if held.start < len(held.text):
            return False
        text = held.text + piece
        if _is_odd(text) or self._needles.open_at(text, start=held.start) < len(text):
            return False
        before = _context(text)
        self._held[key] = _Held(before, len(before), len(before))
        return True

    def feed(self, key: str, piece: str, *, is_clean: bool = False) -> tuple[Masked, bool]:
        """What may be said of a stream now, and whether text moves between this piece and its neighbours.

        `is_clean` says that no known secret is in the piece itself.
        """
        old = self._held.get(key, _NOTHING)
        text = old.text + piece
        now = _Held(text, old.start, old.reach, old.last)
        is_odd = _is_odd(text)
        end = self._open_at(now, is_odd=is_odd)
        body, lead = scan.open_at(text) if is_odd else (len(text), 0)
        is_endless = len(text) - body >= scan.BOUND_CHARS
        end = end if is_endless else min(end, body)
        known_end = min(end, len(old.text)) if is_clean else end
        masked = self._masked(now, end=end, known_end=known_end, is_odd=is_odd)
        # The run of an endless one may go on, and is known by its lead and its length alone.
        before = text[max(0, lead - 1) : body] + "A" * scan.BOUND_CHARS if is_endless else _context(text[:end])
        kept = _Held(before + text[end:], len(before), len(before) + max(0, masked.reach - end), masked.last)
        self._held[key] = kept
        return masked, old.is_waiting or kept.is_waiting

    def finish(self, key: str) -> Masked | None:
        """Ends a text stream and gives out what was held back of it, masked if it tells too much of a secret."""
        held = self._held.pop(key, _NOTHING)
        if not held.is_waiting:
            return None
        is_odd = _is_odd(held.text)
        end = self._open_at(held, is_odd=is_odd)
        masked = self._masked(held, end=end, known_end=end, is_odd=is_odd)
        tail = held.text[end:]
        if len(tail) < LEAST_TAIL_CHARS or masked.reach == len(held.text):
            rest, names = held.text[max(end, masked.reach) :], masked.names
        else:
            name = self._needles.name_of_start(tail)
            is_named = masked.reach > end and masked.last == name
            rest, names = "" if is_named else placeholder(name), (*masked.names, name)
        return Masked(text=masked.text + rest, names=tuple(dict.fromkeys(names)), reach=len(held.text), last="")

    def open_streams(self) -> tuple[str, ...]:
        """The keys of the streams that have not been finished."""
        return tuple(self._held)

    def _open_at(self, held: _Held, *, is_odd: bool) -> int:
        at = self._needles.open_at(held.text, start=held.start)
        return min(at, self._needles.wrapped_open_at(held.text, start=held.start)) if is_odd else at

    # ── masking ──

    def _masked(self, held: _Held, *, end: int, known_end: int, is_odd: bool) -> Masked:
        """Masks what starts before `end`, and gives out the text before it. After `known_end` nothing known starts."""
        text, reach, last = held.text, held.reach, held.last
        found = [(*place, 0) for place in self._needles.places(text, start=held.start, end=known_end)]
        if is_odd:
            found += [(*place, 0) for place in self._needles.wrapped_places(text, start=held.start, end=end)]
            found += [(*place, 1) for place in scan.places(text, end=end)]
        if not found:
            return Masked(text=text[reach:end], names=(), reach=reach, last=last)
        pieces: list[str] = []
        names: dict[str, None] = {}
        for start, stop, name, _ in sorted(found, key=_order):
            if stop <= reach:
                continue
            if start > reach:
                pieces.append(text[reach:start])
            # One run of the same secret is one placeholder: "--------" as a secret must not multiply a long rule.
            if start >= reach or name != last:
                pieces.append(placeholder(name))
            names[name] = None
            reach, last = stop, name
        pieces.append(text[reach:end])
        return Masked(text="".join(pieces), names=tuple(names), reach=reach, last=last)


def _is_odd(text: str) -> bool:
    """Whether there may be more in it than known secrets that stand in one piece."""
    return scan.may_lead(text) or is_wrapped(text)


def _order(place: tuple[int, int, str, int]) -> tuple[int, int, int, str]:
    """The longest comes first of those that start together, and a known secret first of equals."""
    start, stop, name, rank = place
    return start, -stop, rank, name


def _context(said: str) -> str:
    """What is kept of a text that has been given out: enough of its end for a lead to be recognised."""
    # A cut must not make a lead of what was only the end of a word, so a letter stands for what was there.
    return said if len(said) <= scan.LEAD_CHARS else "a" + said[-scan.LEAD_CHARS :]
