"""How values are spelled for people: never a control character, never a zero that means unknown."""

import json
import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Final

import msgspec

UNKNOWN = "?"

USED_UP: Final[Mapping[str, str]] = {
    "limit": "its time is used up: raise limits.campaign, and run it anew",
    "budget": "its money is used up: raise limits.usd, and run it anew",
}
"""What to do after a run that ended so: another one of the same spec would end at once."""

# What moves a cursor, sets a colour or turns the direction of writing must not come out of an agent's mouth.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def legible(text: str) -> str:
    """The text with everything a terminal would obey spelled out.

    >>> legible("a\\x1b[31mb\\r\\nc")
    'a\\\\x1b[31mb\\nc'
    """
    return _UNSAFE.sub(lambda found: ascii(found.group())[1:-1], text.replace("\r\n", "\n"))


def one_line(text: str, *, limit: int = 72) -> str:
    """
    >>> one_line("first\\n  second line", limit=15)
    'first · second…'
    """
    lines = (line.strip() for line in legible(text).splitlines())
    joined = " · ".join(line for line in lines if line)
    return joined if len(joined) <= limit else joined[: limit - 1].rstrip() + "…"


def markdown_text(text: str, *, limit: int = 300) -> str:
    """One line in which no text of an agent's can begin markup of its own.

    >>> print(markdown_text("a|b <i>"))
    a\\|b \\<i\\>
    """
    escaped = one_line(text, limit=limit).replace("\\", "\\\\")
    for char in "|<>`[]":
        escaped = escaped.replace(char, f"\\{char}")
    return escaped


def plain_error(text: str) -> str:
    """An error with its message in the place of the JSON that it came in.

    >>> plain_error('last error: {"error": {"message": "no more", "param": null}}')
    'last error: no more'
    >>> plain_error("{not JSON}")
    '{not JSON}'
    """
    before, brace, _ = text.partition("{")
    if not brace:
        return text
    try:
        found, end = json.JSONDecoder().raw_decode(text, len(before))
    except (ValueError, RecursionError):
        return text
    match found:
        case {"error": {"message": str(message)}} if message:
            return f"{before}{message}{text[end:]}"
        case _:
            return text


def yes_no(value: bool | None, *, none: str) -> str:
    return none if value is None else "yes" if value else "no"


def count(value: int | None) -> str:
    """
    >>> count(None), count(0), count(12345)
    ('?', '0', '12,345')
    """
    return UNKNOWN if value is None else f"{value:,}"


def plural(number: int, noun: str) -> str:
    """
    >>> plural(1, "attempt"), plural(2, "tool call")
    ('1 attempt', '2 tool calls')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def total(known: int, *, unknown: int = 0) -> str:
    """What is known, and whether that is all.

    >>> total(0), total(1234), total(1234, unknown=1), total(0, unknown=1)
    ('0', '1,234', '≥ 1,234', '?')
    """
    if not unknown:
        return count(known)
    return f"≥ {known:,}" if known else UNKNOWN


def money(usd: float | None, *, unknown: int = 0) -> str:
    """What is known, and whether that is all.

    >>> money(None), money(0.0), money(0.0213), money(12.5, unknown=3)
    ('?', '$0.00', '$0.0213', '≥ $12.50')
    """
    if usd is None:
        return UNKNOWN
    spelled = f"${usd:,.4f}" if 0 < usd < 0.1 else f"${usd:,.2f}"
    return f"≥ {spelled}" if unknown else spelled


def percent(share: float | None) -> str:
    """
    >>> percent(None), percent(0.75), percent(0.9996), percent(1.0)
    ('?', '75 %', '99.9 %', '100 %')
    """
    if share is None:
        return UNKNOWN
    # Never rounded up to all, nor down to nothing.
    tenths = min(max(round(share * 1000), share > 0), 999 if share < 1 else 1000)
    return f"{tenths / 10:g} %"


def moment(at_ms: int | None) -> str:
    """
    >>> moment(1767268800000), moment(None), moment(10**18)
    ('2026-01-01 12:00:00 UTC', '?', '?')
    """
    if at_ms is None:
        return UNKNOWN
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S UTC}"
    except (ValueError, OverflowError, OSError):
        return UNKNOWN  # a damaged ledger may hold any number


def duration(ms: int | None) -> str:
    """
    >>> [duration(ms) for ms in (None, 82, 2402, 75_000, 3_700_000)]
    ['?', '82 ms', '2.4 s', '1 min 15 s', '1 h 01 min']
    """
    if ms is None:
        return UNKNOWN
    if ms < 1000:
        return f"{ms} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def deed(name: str, given: Any, *, limit: int = 60) -> str:
    """What a tool call was for, in a line.

    >>> deed("shell", {"command": "/bin/bash -lc 'cat greet.py'", "cwd": "/w"})
    'cat greet.py'
    >>> deed("patch", {"changes": [{"path": "/w/greet.py"}, {"path": "/w/new.py"}]})
    'greet.py, new.py'
    """
    match given:
        case {"command": str(command)}:
            return one_line(_inner(command), limit=limit)
        case {"changes": [*changes]}:
            paths = [str(change["path"]) for change in changes if isinstance(change, Mapping) and "path" in change]
            return one_line(", ".join(PurePath(path).name for path in paths) or name, limit=limit)
        case None:
            return name
        case _:
            return one_line(msgspec.json.encode(given).decode(), limit=limit)


def _inner(command: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    is_wrapped = len(words) == 3 and words[0].endswith("sh") and words[1] in ("-c", "-lc")
    return words[2] if is_wrapped else command
