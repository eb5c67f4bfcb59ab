"""What the conversions of messages to an agent's native items have in common. Pure."""

import hashlib
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, Literal

from proctor import canonical
from proctor.event.command import bare_command
from proctor.event.message import AgentPart, CallPart, Message, ResultPart, SummaryPart, UserPart
from proctor.ids import Digest, EntryId

SUMMARY_LABEL: Final = "Summary of the earlier conversation. It is background, not a request:\n\n"
"""Precedes the text of a summary, which the agents receive as a message of the user."""

NO_OUTPUT: Final = "[the output of this call was not recorded]"
"""The result of a call whose result is missing or unknown. Without one, an agent would invent a result."""

FAILED_NOTE: Final = "[this call failed]"

_NAME_CHARS: Final = 64
_ID_CHARS: Final = 32
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")

OmissionReason = Literal["empty text", "repeated id", "repeated result", "result without call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """A message that no agent can be given."""

    entry: EntryId
    reason: OmissionReason


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeItem:
    """One item of an agent's protocol."""

    entries: tuple[EntryId, ...]
    """The messages that it carries. Empty for a result in place of a missing one."""
    value: dict[str, Any]
    """The item as JSON."""


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """Messages as the native items of one agent. Equal messages have equal bytes."""

    items: tuple[NativeItem, ...]
    omitted: tuple[Omission, ...] = ()
    """Messages that are in no item, in order."""
    unanswered: tuple[EntryId, ...] = ()
    """Calls without a result. They are followed by an item with `NO_OUTPUT`."""

    @property
    def entries(self) -> tuple[EntryId, ...]:
        """The messages that the items carry, in the order of the items."""
        return tuple(entry for item in self.items for entry in item.entries)

    @property
    def data(self) -> bytes:
        """All items as canonical JSON."""
        return canonical.encode([item.value for item in self.items])

    @cached_property
    def sha256(self) -> Digest:
        """The digest of `data`."""
        return canonical.digest_bytes(self.data)


@dataclass(slots=True)
class Round:
    """Tool calls that were made together, and their results, in order."""

    calls: list[Message] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)

    @property
    def unanswered(self) -> list[Message]:
        """The calls without a result."""
        answered = {result.part.call for result in self.results if isinstance(result.part, ResultPart)}
        return [call for call in self.calls if call.id not in answered]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Messages in an order that every agent accepts: the results of calls directly follow these calls."""

    steps: tuple[Message | Round, ...]
    omitted: tuple[Omission, ...]

    @property
    def unanswered(self) -> tuple[EntryId, ...]:
        """The calls without a result."""
        rounds = (step for step in self.steps if isinstance(step, Round))
        return tuple(call.id for each in rounds for call in each.unanswered)


def prepare(messages: Iterable[Message]) -> Preparation:
    """Put each result behind its calls, and leave out what no agent accepts.

    Agents refuse or replace a result whose call they do not know, and a text without visible characters. Successive
    calls form one round. All other messages keep their order.
    """
    steps: list[Message | Round] = []
    omitted: list[Omission] = []
    seen: set[EntryId] = set()
    answered: set[EntryId] = set()
    round_of: dict[EntryId, Round] = {}
    current: Round | None = None
    for message in messages:
        reason: OmissionReason | None = None
        match message.part:
            case _ if message.id in seen:
                reason = "repeated id"
            case UserPart(text=text) | AgentPart(text=text) | SummaryPart(text=text) if not text.strip():
                reason = "empty text"
            case ResultPart(call=call) if call not in round_of:
                reason = "result without call"
            case ResultPart(call=call) if call in answered:
                reason = "repeated result"
            case ResultPart(call=call):
                answered.add(call)
                round_of[call].results.append(message)
                current = None
            case CallPart():
                if current is None:
                    current = Round()
                    steps.append(current)
                current.calls.append(message)
                round_of[message.id] = current
            case _:
                steps.append(message)
                current = None
        seen.add(message.id)
        if reason is not None:
            omitted.append(Omission(entry=message.id, reason=reason))
    return Preparation(steps=tuple(steps), omitted=tuple(omitted))


@lru_cache(maxsize=256)
def call_id(entry: EntryId, *, prefix: str) -> str:
    """Return the id of the call in an entry, which has only characters that every provider accepts.

    >>> call_id(EntryId("r/a.1#7"), prefix="call_")
    'call_ca1d80d56d77bc97609e57f0fbfce710'
    """
    return prefix + hashlib.sha256(clean(entry).encode()).hexdigest()[:_ID_CHARS]


def shell_command(call: CallPart) -> str | None:
    """Return the command line of a call of kind `command`; None if its input has none.

    >>> shell_command(CallPart(kind="command", name="shell", input={"command": "/bin/bash -lc 'ls -l'", "cwd": "/w"}))
    'ls -l'
    >>> shell_command(CallPart(kind="command", name="shell", input={"command": ["bash", "-c", "ls -l"]}))
    'ls -l'
    """
    match call.input:
        case str(command) | {"command": str(command)} | {"cmd": str(command)}:
            return bare_command(clean(command))
        case {"command": [*words]} if all(isinstance(word, str) for word in words):
            return bare_command(shlex.join(clean(words)))
        case _:
            return None


def tool_name(call: CallPart) -> str:
    """Return the name of a tool in the characters and the length that every provider accepts.

    >>> tool_name(CallPart(kind="mcp", name="kit/add"))
    'mcp__kit__add'
    >>> tool_name(CallPart(kind="other", name="a b"))
    'a_b'
    """
    name = call.name
    if call.kind == "mcp":
        name = "mcp__" + name.replace("/", "__", 1)
    return _NOT_IN_NAMES.sub("_", name)[:_NAME_CHARS] or "tool"


def tool_input(call: CallPart) -> dict[str, Any]:
    """Return the input of a tool as an object, which every provider demands."""
    match call.input:
        case None:
            return {}
        case dict():
            return {str(name): value for name, value in clean(call.input).items()}
        case value:
            return {"input": clean(value)}


def output_text(result: ResultPart) -> str:
    """Return the output of a call, with a note if a part of it was left out."""
    text = NO_OUTPUT if result.output is None else clean(result.output)
    return f"{text}\n[{result.cut_bytes} bytes of this output were left out]" if result.cut_bytes else text


def clean(value: Any) -> Any:
    """Replace lone surrogates, which cannot be encoded, everywhere in a JSON value, and sort all keys.

    >>> clean({"b": ["\\ud800", 1], "a": None})
    {'a': None, 'b': ['?', 1]}
    """
    match value:
        case str():
            return value if value.isascii() else value.encode(errors="replace").decode()
        case list() | tuple():
            return [clean(each) for each in value]
        case dict():
            return {clean(name): clean(value[name]) for name in sorted(value)}
        case _:
            return value
