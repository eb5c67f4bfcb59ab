"""Check the trace of a simulation against laws: row by row, without keeping the rows. Pure."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from proctor.decoding import json_decoder
from proctor.protocol.lines import LineSplitter
from proctor.spec.pointer import ABSENT, at_pointer
from proctor.spec.trace_probes import LawDirection, Number, TraceLaw

MAX_TRACE_BYTES: Final = 256 * 1024 * 1024
"""Largest trace that is read."""
MAX_ROW_BYTES: Final = 1024 * 1024
"""Longest row of a trace."""

_MIB: Final = 1024 * 1024
_SHOWN_CHARS: Final = 40

Row: TypeAlias = dict[str, Any]


class BadTraceError(Exception):
    """A trace that breaks a law, or is not a trace; the text says what was observed."""


def check_rows(laws: Iterable[TraceLaw], rows: Iterable[Row]) -> str | None:
    """Return what breaks a law, with its tick, counted from 1; None if all laws hold.

    >>> rows = [{"a": 3, "b": 1}, {"a": 2, "b": 2}, {"a": 0, "b": 5}]
    >>> check_rows([TraceLaw(monotone="/a", direction=LawDirection.DOWN), TraceLaw(changes="/b")], rows)
    >>> check_rows([TraceLaw(conserved=["/a", "/b"])], rows)
    'tick 3: the sum of /a and /b is 5, after 4 at tick 1'
    >>> check_rows([TraceLaw(within="/b", max=4)], rows)
    'tick 3: /b is 5'
    """
    checkers = [checker_of(law) for law in laws]
    try:
        for tick, row in enumerate(rows, start=1):
            for checker in checkers:
                checker.check(tick, row)
        for checker in checkers:
            checker.end()
    except BadTraceError as problem:
        return str(problem)
    return None


class LawChecker:
    """Checks one law on the rows of a trace, in their order."""

    def check(self, tick: int, row: Row) -> None:
        """Raise BadTraceError if the row breaks the law."""
        raise NotImplementedError

    def end(self) -> None:
        """Raise BadTraceError if the rows together break the law."""


def checker_of(law: TraceLaw) -> LawChecker:
    """Return a checker for one trace."""
    if law.changes is not None:
        return _Changes(law.changes)
    if law.monotone is not None:
        return _Monotone(law.monotone, law)
    if law.within is not None:
        return _Within(law.within, law)
    assert law.conserved is not None, "the spec was checked"
    return _Conserved(law.conserved, law.tolerance)


class _Changes(LawChecker):
    def __init__(self, pointer: str) -> None:
        self._pointer = pointer
        self._first: Any = ABSENT
        self._has_changed = False

    def check(self, tick: int, row: Row) -> None:
        value = _value_at(row, self._pointer, tick=tick)
        if self._first is ABSENT:
            self._first = value
        # True equals 1 here: a trace that only changes the type of a value is not one that changes.
        self._has_changed = self._has_changed or value != self._first

    def end(self) -> None:
        if not self._has_changed:
            raise BadTraceError(f"{self._pointer} is the same at every tick")


class _Monotone(LawChecker):
    def __init__(self, pointer: str, law: TraceLaw) -> None:
        self._pointer = pointer
        self._sign = 1 if law.direction is LawDirection.UP else -1
        self._is_strict = law.strictly
        self._last: Number | None = None

    def check(self, tick: int, row: Row) -> None:
        number, last = _number_at(row, self._pointer, tick=tick), self._last
        self._last = number
        if last is None:
            return
        is_backwards = number < last if self._sign > 0 else number > last
        if is_backwards or (self._is_strict and number == last):
            raise BadTraceError(f"tick {tick:,}: {self._pointer} is {_show(number)}, after {_show(last)}")


class _Within(LawChecker):
    def __init__(self, pointer: str, law: TraceLaw) -> None:
        self._pointer = pointer
        self._min, self._max = law.min, law.max

    def check(self, tick: int, row: Row) -> None:
        number = _number_at(row, self._pointer, tick=tick)
        is_low, is_high = (self._min is not None and number < self._min, self._max is not None and number > self._max)
        if is_low or is_high:
            raise BadTraceError(f"tick {tick:,}: {self._pointer} is {_show(number)}")


class _Conserved(LawChecker):
    def __init__(self, pointers: Sequence[str], tolerance: Number) -> None:
        self._pointers = pointers
        self._tolerance = tolerance
        self._first: Number | None = None

    def check(self, tick: int, row: Row) -> None:
        numbers = [_number_at(row, pointer, tick=tick) for pointer in self._pointers]
        names = " and ".join(self._pointers)
        try:
            # The sum of integers is exact, that of others is rounded once.
            total = sum(numbers) if all(isinstance(each, int) for each in numbers) else math.fsum(numbers)
            if self._first is None:
                self._first = total
            is_same = total == self._first or abs(total - self._first) <= self._tolerance
        except OverflowError as error:
            raise BadTraceError(f"tick {tick:,}: the sum of {names} is too large") from error
        if not is_same:
            sums = f"{_show(total)}, after {_show(self._first)} at tick 1"
            raise BadTraceError(f"tick {tick:,}: the sum of {names} is {sums}")


def _value_at(row: Row, pointer: str, *, tick: int) -> Any:
    value = at_pointer(row, pointer)
    if value is ABSENT:
        raise BadTraceError(f"tick {tick:,}: there is no {pointer}")
    return value


def _number_at(row: Row, pointer: str, *, tick: int) -> Number:
    value = _value_at(row, pointer, tick=tick)
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise BadTraceError(f"tick {tick:,}: {pointer} is not a finite number")
    return value


def _is_finite(number: Number) -> bool:
    """Return whether a number can be used in every comparison and sum: an integer may be too large for that."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _show(number: Number) -> str:
    text = str(number)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


class TraceReader:
    """Reads a trace from its bytes as they arrive. Keeps one row and what the laws need, however long the trace is.

    >>> reader = TraceReader([TraceLaw(monotone="/x")], ticks=3)
    >>> reader.feed(b'{"x": 1}\\n{"x"')
    >>> reader.feed(b': 3}\\n{"x": 2}')
    >>> reader.end()
    'tick 3: /x is 2, after 3'
    """

    def __init__(self, laws: Iterable[TraceLaw], *, ticks: int) -> None:
        self._checkers = [checker_of(law) for law in laws]
        self._ticks = ticks
        self._rows = 0
        self._bytes = 0
        # A longer row is returned in pieces, of which the first is too long too.
        self._splitter = LineSplitter(limit_bytes=MAX_ROW_BYTES + 1, is_verbatim=True)
        self._decode = json_decoder(Row)
        self._problem: str | None = None

    def feed(self, chunk: bytes) -> None:
        """Add a part of the trace. After the first problem, the rest is ignored."""
        if self._problem is not None:
            return
        self._bytes += len(chunk)
        try:
            if self._bytes > MAX_TRACE_BYTES:
                raise BadTraceError(f"tick {self._rows + 1:,}: the trace is larger than {MAX_TRACE_BYTES // _MIB} MiB")
            for line in self._splitter.feed(chunk):
                self._add(line)
        except BadTraceError as problem:
            self._problem = str(problem)

    def end(self) -> str | None:
        """Return what is wrong with the whole trace; None if nothing is."""
        if self._problem is not None:
            return self._problem
        try:
            if rest := self._splitter.rest():
                self._add(rest)
            if self._rows != self._ticks:
                raise BadTraceError(f"the trace has {self._rows:,} row{'' if self._rows == 1 else 's'}")
            for checker in self._checkers:
                checker.end()
        except BadTraceError as problem:
            self._problem = str(problem)
        return self._problem

    def _add(self, line: bytes) -> None:
        self._rows += 1
        tick = self._rows
        if tick > self._ticks:
            raise BadTraceError(f"the trace has more rows than the {self._ticks:,} ticks of the run")
        if len(line) > MAX_ROW_BYTES:
            raise BadTraceError(f"tick {tick:,}: the row is longer than {MAX_ROW_BYTES // _MIB} MiB")
        try:
            row = self._decode(line)
            for checker in self._checkers:
                checker.check(tick, row)
        except UnicodeDecodeError as error:
            raise BadTraceError(f"tick {tick:,}: the row is not UTF-8") from error
        except RecursionError as error:
            raise BadTraceError(f"tick {tick:,}: the row is nested too deeply") from error
        except (msgspec.DecodeError, ValueError) as error:
            raise BadTraceError(f"tick {tick:,}: the row is not a JSON object") from error
