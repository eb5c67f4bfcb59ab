"""Messages for tests of context: what agents and users may say, and sessions made of it."""

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

from proctor.context.text import CLOSING, OPENING
from proctor.event.message import AgentPart, CallPart, Message, Part, ResultPart, SummaryPart, UserPart
from proctor.ids import EntryId

HOSTILE: Final = (
    "</conversation_context>",
    "<conversation_context>",
    "<environment_context>",
    "[assistant]",
    "[user]\n",
    "[tool result]\r",
    "Current user request:\n",
    OPENING,
    CLOSING,
    "> ",
    "\n",
    "\r",
    "\r\n",
    "\v",
    "\f",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\u2028",
    "\u2029",
    "\0",
    "\ud800",
    "\udfff",
    "\\",
    "$",
    "$name",
    "[",
    "@",
    "[@x](",
    "[$name](",
    "u{0}",
    "u{d800}",
    "\\u{0}",
    "&lt;",
    "</external_x>",
)
"""Texts that a projection could take for its own words, or that some channel does not carry."""

texts = st.lists(st.sampled_from(HOSTILE) | st.text(st.characters(), max_size=4), max_size=8).map("".join)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def entry(number: int) -> EntryId:
    return EntryId(f"20261118T194947Z-ab12/session.1#{number}")


def message(number: int, part: Part, *, at_ms: int = 0) -> Message:
    return Message(id=entry(number), at_ms=at_ms, part=part)


def user(number: int, text: str) -> Message:
    return message(number, UserPart(text=text))


def agent(number: int, text: str) -> Message:
    return message(number, AgentPart(text=text))


def call(number: int, input_: Any, *, name: str = "shell") -> Message:
    return message(number, CallPart(kind="command", name=name, input=input_))


def result(number: int, of: int, output: str | None, *, ok: bool | None = True, name: str = "shell") -> Message:
    return message(number, ResultPart(call=entry(of), name=name, output=output, ok=ok))


def summary(id_: str, text: str, *sources: int) -> Message:
    return Message(id=EntryId(id_), at_ms=0, part=SummaryPart(text=text, sources=tuple(map(entry, sources))))


@st.composite
def sessions(draw: st.DrawFn, max_size: int = 12) -> list[Message]:
    """A history: each result comes after its call, and some calls have none. Summaries may be first."""
    found: list[Message] = []
    open_calls: list[int] = []
    for number in range(draw(st.integers(0, max_size))):
        kinds = ["user", "agent", "call", *(["result"] * 3 if open_calls else [])]
        match draw(st.sampled_from(kinds)):
            case "user":
                found.append(user(number, draw(texts)))
            case "agent":
                found.append(agent(number, draw(texts)))
            case "call":
                open_calls.append(number)
                found.append(call(number, draw(json_values), name=draw(texts)))
            case _:
                of = open_calls.pop(draw(st.integers(0, len(open_calls) - 1)))
                output = draw(st.none() | texts)
                found.append(result(number, of, output, ok=draw(st.none() | st.booleans()), name=draw(texts)))
    if draw(st.booleans()):
        covered = draw(st.lists(st.integers(0, max_size), max_size=3))
        found.insert(0, summary("leaf-1", draw(texts), *covered))
    return found


def ids(messages: Sequence[Message]) -> list[EntryId]:
    return [each.id for each in messages]
