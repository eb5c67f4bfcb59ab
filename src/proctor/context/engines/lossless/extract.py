"""Summaries without a model: what was asked, which tools ran, how it ended. Equal entries give equal texts. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from proctor.context.engines.lossless.entry_text import cut, one_line, valid_text, whole_text
from proctor.context.payload import utf8_bytes
from proctor.event.message import AgentPart, CallPart, Message, ResultPart, UserPart

_FEWEST_TURN_BYTES: Final = 96
"""If there is less room per turn, turns are left out and counted."""

_FEWEST_LINE_BYTES: Final = 24
"""A shorter beginning of a text says nothing."""

_MOST_FOCUS_LINE_BYTES: Final = 300
_MOST_TOOLS: Final = 8
_WORD: Final = re.compile(r"\w{3,}")


def summarize_turns(turns: Sequence[Sequence[Message]], *, most_bytes: int, focus: str | None = None) -> str:
    """Summarize entries. Lines with a word of `focus` are kept first, in up to half of the room."""
    found = list(_fitting(_focus_lines(turns, focus), most_bytes=most_bytes // 2))
    room = most_bytes - sum(map(_line_bytes, found))
    kept = _spread(len(turns), most=max(1, room // _FEWEST_TURN_BYTES))
    lines: list[str] = []
    at = 0
    for number in kept:
        if number > at:
            lines.append(_left_out(number - at))
        each_bytes = max(0, room - sum(map(_line_bytes, lines))) // (len(kept) - kept.index(number))
        lines += _turn_lines(turns[number], most_bytes=each_bytes)
        at = number + 1
    return cut("\n".join((*found, *lines)), most_bytes=most_bytes)


def summarize_texts(texts: Sequence[str], *, most_bytes: int, focus: str | None = None) -> str:
    """Summarize summaries: the first lines of each, and first of all those with a word of `focus`."""
    words = _focus_words(focus)
    found = list(
        _fitting((line for text in texts for line in text.split("\n") if _has(line, words)), most_bytes=most_bytes // 2)
    )
    room = most_bytes - sum(map(_line_bytes, found))
    lines: list[str] = []
    for number, text in enumerate(texts):
        most = max(0, room - sum(map(_line_bytes, lines))) // (len(texts) - number)
        own = [line for line in text.split("\n") if line and line not in found]
        kept = list(_fitting(own, most_bytes=most))
        lines += kept or ([cut(own[0], most_bytes=most - 1)] if own and most > _FEWEST_LINE_BYTES else [])
    return cut("\n".join((*found, *filter(None, lines))), most_bytes=most_bytes)


def _turn_lines(turn: Sequence[Message], *, most_bytes: int) -> list[str]:
    asked = [message.part.text for message in turn if isinstance(message.part, UserPart)]
    said = [message.part.text for message in turn if isinstance(message.part, AgentPart)]
    tools = cut(_tools_line(turn), most_bytes=most_bytes // 3)
    room = most_bytes - (_line_bytes(tools) if tools else 0)
    prompt = _labelled("User", " / ".join(asked), most_bytes=room if not said else room // 2)
    answer = _labelled("Agent", said[-1] if said else "", most_bytes=room - (_line_bytes(prompt) if prompt else 0))
    return [line for line in (prompt, tools, answer) if line]


def _labelled(label: str, text: str, *, most_bytes: int) -> str:
    room = most_bytes - len(label) - 3
    line = one_line(text, most_bytes=room) if room >= _FEWEST_LINE_BYTES else ""
    return f"{label}: {line}" if line else ""


def _tools_line(turn: Sequence[Message]) -> str:
    """Return the names of the tools with counts, and the size of what they returned."""
    calls = Counter(message.part.name for message in turn if isinstance(message.part, CallPart))
    if not calls:
        return ""
    results = [message.part for message in turn if isinstance(message.part, ResultPart)]
    failed = sum(part.ok is False for part in results)
    size = sum(utf8_bytes(part.output or "") + part.cut_bytes for part in results)
    names = [f"{one_line(name, most_bytes=60)} ×{count}" for name, count in calls.most_common(_MOST_TOOLS)]
    more = [f"{len(calls) - _MOST_TOOLS} more"] if len(calls) > _MOST_TOOLS else []
    return f"Tools: {', '.join((*names, *more))}; {failed} failed; {size} bytes of output"


def _focus_words(focus: str | None) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(focus or ""))


def _focus_lines(turns: Sequence[Sequence[Message]], focus: str | None) -> Iterator[str]:
    words = _focus_words(focus)
    if not words:
        return
    for turn in turns:
        for message in turn:
            for line in whole_text(message).splitlines():
                if _has(line, words):
                    yield _around(line, words)


def _has(line: str, words: frozenset[str]) -> bool:
    return not words.isdisjoint(word.casefold() for word in _WORD.findall(line))


def _around(line: str, words: frozenset[str]) -> str:
    """Return a line, or of a long one the part around the first of the words."""
    first = next(found.start() for found in _WORD.finditer(line) if found[0].casefold() in words)
    begin = max(0, first - _MOST_FOCUS_LINE_BYTES // 3) if len(line) > _MOST_FOCUS_LINE_BYTES else 0
    return one_line(valid_text(line[begin : begin + 2 * _MOST_FOCUS_LINE_BYTES]), most_bytes=_MOST_FOCUS_LINE_BYTES)


def _fitting(lines: Iterable[str], *, most_bytes: int) -> Iterator[str]:
    """Yield lines, each once, up to the first that does not fit."""
    seen: set[str] = set()
    for line in lines:
        if line in seen:
            continue
        most_bytes -= _line_bytes(line)
        if most_bytes < 0:
            return
        seen.add(line)
        yield line


def _spread(count: int, *, most: int) -> list[int]:
    """Return at most so many of the numbers below `count`, evenly spread, with the last.

    >>> _spread(3, most=5), _spread(10, most=3)
    ([0, 1, 2], [2, 5, 9])
    """
    if count <= most:
        return list(range(count))
    return [count * number // most - 1 for number in range(1, most + 1)]


def _left_out(count: int) -> str:
    return f"({count} more)"


def _line_bytes(line: str) -> int:
    return utf8_bytes(line) + 1
