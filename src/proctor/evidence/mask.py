"""Masks secrets in complete texts and in texts that arrive in pieces."""

from collections.abc import Sequence

import msgspec

from proctor.evidence import scan
from proctor.evidence.escapes import cut_at, decode_escapes, has_escapes
from proctor.evidence.needles import Needles, is_wrapped

LEAST_TAIL_CHARS = 6
"""At the end of a stream, a shorter beginning of a secret is not masked."""


_MASK = "[redacted:"


def placeholder(name: str) -> str:
    """Return the text that replaces a secret."""
    return f"{_MASK}{name}]"


def is_masked(text: str) -> bool:
    """Whether a text contains a placeholder, so that the original may have been another text.

    >>> is_masked(f"a {placeholder('KEY')}"), is_masked("a key")
    (True, False)
    """
    return _MASK in text


def count_masked(text: str) -> int:
    """Return the number of placeholders in a text.

    >>> count_masked(f"{placeholder('KEY')} and {placeholder('KEY')}")
    2
    """
    return text.count(_MASK)


class MaskedText(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A text with its secrets replaced."""

    text: str
    names: tuple[str, ...]
    """Names of the secrets that were replaced."""
    reach: int
    """Offset in the original text up to which it was given out or masked."""
    last: str
    """Name of the last secret that was replaced. Empty if none was."""


class _Pending(msgspec.Struct, frozen=True, gc=False):
    """The last part of a stream so far."""

    text: str = ""
    """Context that was given out already, then text that is held back because it may begin a secret."""
    start: int = 0
    """Offset where the text that is held back begins."""
    reach: int = 0
    """Offset up to which the text was given out or masked."""
    last: str = ""
    """Name of the last secret that was masked. Empty if none was."""

    @property
    def is_waiting(self) -> bool:
        return self.reach < len(self.text)


_NOTHING = _Pending()

_Match = tuple[int, int, str, int]
"""Start, end and name of what is masked, and its rank: a known secret goes before a token shape."""


class Masker:
    """Masks known secrets and token shapes, and holds back the undecided end of each stream.

    Where secrets overlap, everything that any of them covers is masked: replacing only the leftmost would leave the
    rest of the next one readable.

    >>> from proctor.evidence.secrets import Secret
    >>> needles = Needles([Secret(name="A", value="abcd-1234"), Secret(name="B", value="1234-efgh")])
    >>> Masker(needles).mask("see abcd-1234-efgh.").text
    'see [redacted:A][redacted:B].'
    """

    def __init__(self, needles: Needles) -> None:
        self._needles = needles
        self._held: dict[str, _Pending] = {}

    def mask(self, text: str) -> MaskedText:
        """Mask a complete text."""
        is_odd = _is_odd(text)
        tokens = _escaped_tokens(text) if is_odd and has_escapes(text) else []
        return self._mask_range(_Pending(text), end=len(text), known_end=len(text), is_odd=is_odd, tokens=tokens)

    # ── streams ──

    def is_plain(self, key: str, piece: str) -> bool:
        """Whether nothing of a stream is held back, and nothing has to be after this piece, which has no secret in it.

        If so, the piece is recorded as given out.
        """
        held = self._held.get(key, _NOTHING)
        if held.start < len(held.text):
            return False
        text = held.text + piece
        if _is_odd(text) or self._needles.open_at(text, start=held.start) < len(text):
            return False
        before = _context(text)
        self._held[key] = _Pending(before, len(before), len(before))
        return True

    def feed(self, key: str, piece: str, *, is_clean: bool = False) -> tuple[MaskedText, bool]:
        """Add a piece to a stream. Return what can be given out now, and whether text moves to or from another piece.

        `is_clean` states that the piece itself contains no known secret.
        """
        old = self._held.get(key, _NOTHING)
        text = old.text + piece
        now = _Pending(text, old.start, old.reach, old.last)
        is_odd = _is_odd(text)
        end = min(self._open_at(now, is_odd=is_odd), max(old.start, cut_at(text))) if is_odd else self._open_at(now)
        body, lead = scan.open_at(text) if is_odd else (len(text), 0)
        is_endless = len(text) - body >= scan.BOUND_CHARS
        end = end if is_endless else min(end, body)
        known_end = min(end, len(old.text)) if is_clean else end
        masked = self._mask_range(now, end=end, known_end=known_end, is_odd=is_odd)
        # An endless run may continue. Its lead and its length are enough to recognise it.
        before = text[max(0, lead - 1) : body] + "A" * scan.BOUND_CHARS if is_endless else _context(text[:end])
        pending = _Pending(before + text[end:], len(before), len(before) + max(0, masked.reach - end), masked.last)
        self._held[key] = pending
        return masked, old.is_waiting or pending.is_waiting

    def finish(self, key: str) -> MaskedText | None:
        """End a stream and return what was held back, masked if it reveals too much; None if nothing was."""
        held = self._held.pop(key, _NOTHING)
        if not held.is_waiting:
            return None
        is_odd = _is_odd(held.text)
        end = self._open_at(held, is_odd=is_odd)
        masked = self._mask_range(held, end=end, known_end=end, is_odd=is_odd)
        tail = held.text[end:]
        if len(tail) < LEAST_TAIL_CHARS or masked.reach == len(held.text):
            rest, names = held.text[max(end, masked.reach) :], masked.names
        else:
            name = self._needles.name_of_start(tail)
            is_named = masked.reach > end and masked.last == name
            rest, names = "" if is_named else placeholder(name), (*masked.names, name)
        return MaskedText(text=masked.text + rest, names=tuple(dict.fromkeys(names)), reach=len(held.text), last="")

    def open_streams(self) -> tuple[str, ...]:
        """Return the keys of the streams that are not finished."""
        return tuple(self._held)

    def _open_at(self, pending: _Pending, *, is_odd: bool = False) -> int:
        text, start = pending.text, pending.start
        at = self._needles.open_at(text, start=start)
        if not is_odd:
            return at
        at = min(at, self._needles.wrapped_open_at(text, start=start))
        return min(at, self._needles.escaped_open_at(text, start=start)) if has_escapes(text) else at

    # ── masking ──

    def _mask_range(
        self, pending: _Pending, *, end: int, known_end: int, is_odd: bool, tokens: Sequence[_Match] = ()
    ) -> MaskedText:
        """Mask secrets that start before `end` and return the text up to it. Known secrets start before `known_end`.

        `tokens` are masked as well.
        """
        text, reach, last = pending.text, pending.reach, pending.last
        matches = list(tokens)
        if known_end > pending.start:
            matches += [(*place, 0) for place in self._needles.places(text, start=pending.start, end=known_end)]
        if is_odd:
            matches += [(*place, 0) for place in self._needles.wrapped_places(text, start=pending.start, end=end)]
            matches += [(*place, 1) for place in scan.places(text, end=end)]
            if has_escapes(text):
                matches += [(*place, 0) for place in self._needles.escaped_places(text, start=pending.start, end=end)]
        if not matches:
            return MaskedText(text=text[reach:end], names=(), reach=reach, last=last)
        pieces: list[str] = []
        names: dict[str, None] = {}
        for start, stop, name, _ in sorted(matches, key=_order):
            if stop <= reach:
                continue
            if start > reach:
                pieces.append(text[reach:start])
            # Adjacent matches of one secret become one placeholder: with "--------" as a secret, a long rule would
            # otherwise become many.
            if start >= reach or name != last:
                pieces.append(placeholder(name))
            names[name] = None
            reach, last = stop, name
        pieces.append(text[reach:end])
        return MaskedText(text="".join(pieces), names=tuple(names), reach=reach, last=last)


def _is_odd(text: str) -> bool:
    """Whether a text may contain token shapes, unusual escapes, or base64 over several lines."""
    return scan.may_contain_lead(text) or (
        ("\n" in text or "\\" in text or "%" in text or "\r" in text) and (is_wrapped(text) or has_escapes(text))
    )


def _escaped_tokens(text: str) -> list[_Match]:
    """Return the token shapes in a complete text that are spelled with unusual escapes."""
    decoded = decode_escapes(text)
    found = scan.places(decoded.text, end=len(decoded.text))
    spans = [(decoded.origin(start), decoded.origin(stop), name, stop - start) for start, stop, name in found]
    return [(start, stop, name, 1) for start, stop, name, size in spans if stop - start > size]


def _order(place: _Match) -> tuple[int, int, int, str]:
    """Sort by start, the longest first, and of equal ones a known secret first."""
    start, stop, name, rank = place
    return start, -stop, rank, name


def _context(text: str) -> str:
    """Return the end of a text that was given out, long enough for a lead to be recognised."""
    # A cut must not turn the end of a word into a lead, so the removed part is replaced by a letter.
    return text if len(text) <= scan.LEAD_CHARS else "a" + text[-scan.LEAD_CHARS :]
