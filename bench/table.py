"""The table of measured values and the values to beat."""

from collections.abc import Iterable

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One measurement. `ratio` is measured / to beat; `ok` says whether it is on the right side of 1.

    What could not be measured is not ok either, and the note says why.
    """

    what: str
    measured: float | None
    to_beat: float
    unit: str
    is_at_most: bool
    ratio: float | None
    ok: bool
    note: str = ""


def at_most(what: str, measured: float, to_beat: float, unit: str, *, note: str = "") -> Row:
    return _row(what, measured, to_beat, unit, is_at_most=True, note=note)


def at_least(what: str, measured: float, to_beat: float, unit: str, *, note: str = "") -> Row:
    return _row(what, measured, to_beat, unit, is_at_most=False, note=note)


def exactly(what: str, measured: float, to_beat: float, unit: str, *, note: str = "") -> Row:
    """Return a row for a count that must be what it is: its ratio is 1 if it is."""
    ratio = 1.0 if measured == to_beat else measured / to_beat if to_beat else measured
    return Row(
        what=what,
        measured=measured,
        to_beat=to_beat,
        unit=unit,
        is_at_most=measured >= to_beat,
        ratio=ratio,
        ok=measured == to_beat,
        note=note,
    )


def not_measured(what: str, to_beat: float, unit: str, *, why: str) -> Row:
    """Return the row for something that cannot be measured here and must be at most `to_beat`."""
    note = f"not measured: {why}"
    return Row(what=what, measured=None, to_beat=to_beat, unit=unit, is_at_most=True, ratio=None, ok=False, note=note)


def _row(what: str, measured: float, to_beat: float, unit: str, *, is_at_most: bool, note: str) -> Row:
    ratio = measured / to_beat
    return Row(
        what=what,
        measured=measured,
        to_beat=to_beat,
        unit=unit,
        is_at_most=is_at_most,
        ratio=ratio,
        ok=ratio <= 1 if is_at_most else ratio >= 1,
        note=note,
    )


def render(rows: Iterable[Row]) -> str:
    r"""Return the table as text.

    >>> print(render([at_most("a start", 0.03, 0.04, "s", note="of two")]))
    what     measured  to beat  ratio  ok   note
    a start    0.03 s   0.04 s   0.75  yes  of two
    """
    table = [("what", "measured", "to beat", "ratio", "ok", "note")]
    for row in rows:
        measured = "?" if row.measured is None else f"{row.measured:.3g} {row.unit}"
        to_beat = f"{row.to_beat:.3g} {row.unit}"
        ratio = "?" if row.ratio is None else f"{row.ratio:.2f}"
        table.append((row.what, measured, to_beat, ratio, "yes" if row.ok else "NO", row.note))
    widths = [max(len(line[at]) for line in table) for at in range(5)]
    lines = []
    for what, measured, to_beat, ratio, ok, note in table:
        numbers = zip((measured, to_beat, ratio), widths[1:4], strict=True)
        columns = [what.ljust(widths[0]), *(text.rjust(width) for text, width in numbers), ok.ljust(widths[4]), note]
        lines.append("  ".join(columns).rstrip())
    return "\n".join(lines)
