"""Format values for people: without control characters, and with unknown values as `?`, never as 0."""

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
    "limit": "its time is used up: raise limits.campaign and start a new campaign",
    "budget": "its budget is used up: raise limits.usd and start a new campaign",
}
"""What to do after a run that ended this way. Another run of the same campaign would end at once."""

# An agent's text must not move the cursor, set a colour or change the direction of writing.
# Some characters are allowed nowhere in XML, and tag characters are invisible.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff"
    r"\U000e0000-\U000e007f]"
)


def legible(text: str) -> str:
    """Escape everything that a terminal would interpret.

    >>> legible("a\\x1b[31mb\\r\\nc")
    'a\\\\x1b[31mb\\nc'
    """
    return _UNSAFE.sub(lambda found: ascii(found.group())[1:-1], text.replace("\r\n", "\n"))


def one_line(text: str, *, limit: int = 72) -> str:
    """Join the lines of a text, and cut the result after `limit` characters.

    >>> one_line("first\\n  second line", limit=15)
    'first · second…'
    """
    lines = (line.strip() for line in legible(text).splitlines())
    joined = " · ".join(line for line in lines if line)
    return joined if len(joined) <= limit else joined[: limit - 1].rstrip() + "…"


def markdown_text(text: str, *, limit: int = 300) -> str:
    """Return a text as one line of Markdown in which nothing is markup.

    >>> print(markdown_text("a|b <i>"))
    a\\|b \\<i\\>
    """
    escaped = one_line(text, limit=limit).replace("\\", "\\\\")
    for char in "|<>`[]":
        escaped = escaped.replace(char, f"\\{char}")
    return escaped


def plain_error(text: str) -> str:
    """Replace the JSON in an error's text by the message that it contains.

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
    """Return `yes` or `no`, and `none` for None."""
    return none if value is None else "yes" if value else "no"


def count(value: int | None) -> str:
    """Format a number, which may be unknown.

    >>> count(None), count(0), count(12345)
    ('?', '0', '12,345')
    """
    return UNKNOWN if value is None else f"{value:,}"


def plural(number: int, noun: str) -> str:
    """Format a number of things.

    >>> plural(1, "attempt"), plural(2, "tool call"), plural(2, "agent process")
    ('1 attempt', '2 tool calls', '2 agent processes')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"


def total(known: int, *, unknown: int = 0) -> str:
    """Format a sum in which `unknown` values are missing.

    >>> total(0), total(1234), total(1234, unknown=1), total(0, unknown=1)
    ('0', '1,234', '≥ 1,234', '?')
    """
    if not unknown:
        return count(known)
    return f"≥ {known:,}" if known else UNKNOWN


def money(usd: float | None, *, unknown: int = 0) -> str:
    """Format a sum of money in which `unknown` values are missing.

    >>> money(None), money(0.0), money(0.0213), money(12.5, unknown=3)
    ('?', '$0.00', '$0.0213', '≥ $12.50')
    """
    if usd is None:
        return UNKNOWN
    amount = f"${usd:,.4f}" if 0 < usd < 0.1 else f"${usd:,.2f}"
    return f"≥ {amount}" if unknown else amount


def percent(share: float | None) -> str:
    """Format a share, which may be unknown.

    >>> percent(None), percent(0.75), percent(0.9996), percent(1.0)
    ('?', '75 %', '99.9 %', '100 %')
    """
    if share is None:
        return UNKNOWN
    # A share below 1 is never shown as 100 %, and one above 0 never as 0 %.
    tenths = min(max(round(share * 1000), share > 0), 999 if share < 1 else 1000)
    return f"{tenths / 10:g} %"


def moment(at_ms: int | None) -> str:
    """Format a time, which may be unknown.

    >>> moment(1767268800000), moment(None), moment(10**18)
    ('2026-01-01 12:00:00 UTC', '?', '?')
    """
    if at_ms is None:
        return UNKNOWN
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S UTC}"
    except (ValueError, OverflowError, OSError):
        return UNKNOWN  # a damaged ledger may contain any number


def duration(ms: int | None) -> str:
    """Format a duration, which may be unknown.

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


def describe_call(name: str, given: Any, *, limit: int = 60) -> str:
    """Describe a tool call by its command, its files or its input, in one line.

    >>> describe_call("shell", {"command": "/bin/bash -lc 'cat greet.py'", "cwd": "/w"})
    'cat greet.py'
    >>> describe_call("patch", {"changes": [{"path": "/w/greet.py"}, {"path": "/w/new.py"}]})
    'greet.py, new.py'
    """
    match given:
        case {"command": str(command)}:
            return one_line(_unwrap_shell(command), limit=limit)
        case {"changes": [*changes]}:
            paths = [str(change["path"]) for change in changes if isinstance(change, Mapping) and "path" in change]
            return one_line(", ".join(PurePath(path).name for path in paths) or name, limit=limit)
        case None:
            return name
        case _:
            return one_line(msgspec.json.encode(given).decode(), limit=limit)


def _unwrap_shell(command: str) -> str:
    """Return the command that `sh -c` or a like shell runs; any other command as it is."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    is_wrapped = len(words) == 3 and words[0].endswith("sh") and words[1] in ("-c", "-lc")
    return words[2] if is_wrapped else command


NOT_EXPECTED = "not as expected: "
_UNMET_VERDICTS = {
    "verified: expected yes, got no": "expected to be verified, but the probe failed",
    "verified: expected no, got yes": "expected not to be verified, but the probe passed",
}


def explain_unmet(sentence: str) -> str:
    """Return the recorded sentence about an expectation that was not met, for a reader.

    >>> explain_unmet("verified: expected yes, got no"), explain_unmet("answer: expected '4', got '5'")
    ('expected to be verified, but the probe failed', "not as expected: answer: expected '4', got '5'")
    """
    return _UNMET_VERDICTS.get(sentence, f"{NOT_EXPECTED}{sentence}")
