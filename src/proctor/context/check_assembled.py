"""Check what a context engine assembled, before anything of it is projected. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Final, Literal, get_args

import msgspec

from proctor import decoding
from proctor.context.budget import Budget, TokenRatio, estimate_tokens, message_bytes
from proctor.context.history import History
from proctor.context.payload import utf8_bytes
from proctor.context.reference import Reference, reference_bytes
from proctor.event.message import CallPart, Message, Part, ResultPart
from proctor.ids import EntryId

MOST_BYTES: Final = 16 * 1024 * 1024
"""The most that an engine may assemble. Codex takes a second for as much."""

MOST_LEVELS: Final = 64
MOST_VALUES: Final = 100_000
"""The deepest level, and the most values at all levels, of a tool's input."""

_MOST_AHEAD: Final = 256
"""So many entries are read at once."""

_PARTS: Final = get_args(Part)
_PART_NAMES: Final = ", ".join(part.__name__ for part in _PARTS)

AssemblyFault = Literal[
    "wrong-shape",
    "unknown-part",
    "repeated",
    "unknown-entry",
    "altered",
    "call-without-result",
    "result-without-call",
    "over-budget",
    "too-large",
    "no-epoch",
]


class AssemblyFinding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Something wrong in what an engine assembled. The policy of the session decides what follows."""

    fault: AssemblyFault
    """What kind of fault it is."""

    message: str | None
    """Id of the message; None if the fault is not in one message, or the message has no id."""

    what: str
    """What is wrong, with the id of the message, and what the author of the engine should do."""


def check_assembled(
    messages: object,
    *,
    system_addition: object = None,
    references: object = (),
    needs_epoch: bool = False,
    epoch: str | None = None,
    may_overflow: bool = False,
    history: History,
    prompt_id: EntryId,
    budget: Budget,
    ratio: TokenRatio,
    most_bytes: int = MOST_BYTES,
) -> tuple[AssemblyFinding, ...]:
    """Return what is wrong with an engine's result; nothing if it can be projected.

    `history` is the session's own copy of the messages that the engine was given: if the engine changed its input, the
    difference is a finding. Few other entries than those that were assembled are read. `needs_epoch` is whether the
    mode is `thread_bootstrap`. With `may_overflow`, more than the budget is no finding. The shape is checked first,
    then the size, then the rest; each only if nothing was found before.

    >>> from proctor.context.budget import ASSUMED_RATIO, budget_for
    >>> from proctor.context.history import ListedHistory
    >>> budget = budget_for(reported_window=None, configured_window=None, fixed_prompt_tokens=None)
    >>> check = {"history": ListedHistory(), "prompt_id": EntryId("r/a#9"), "budget": budget, "ratio": ASSUMED_RATIO}
    >>> check_assembled([], **check)
    ()
    >>> check_assembled({"messages": []}, **check)[0].what
    '`messages` is a dict: return a list or tuple of Message'
    """
    findings = tuple(_wrong_shapes(messages, system_addition, references))
    if findings:
        return findings
    assembled = _Assembled(
        messages=tuple(_items_of(messages, Message)),
        references=tuple(_items_of(references, Reference)),
        addition=system_addition if isinstance(system_addition, str) else "",
    )
    if findings := tuple(_too_large(assembled, most_bytes=most_bytes)):
        return findings
    entries = _entries(assembled.messages, history)
    return (
        *_wrong_ids(assembled.messages, entries=entries, prompt_id=prompt_id),
        *_unpaired(assembled.messages, entries=entries, history=history),
        *(() if may_overflow else _over_budget(assembled, budget=budget, ratio=ratio)),
        *(_no_epoch() if needs_epoch and not epoch else ()),
    )


@dataclass(frozen=True, kw_only=True)
class _Assembled:
    """What the engine returned, with its types checked."""

    messages: tuple[Message, ...]
    references: tuple[Reference, ...]
    addition: str

    @cached_property
    def size_bytes(self) -> int:
        return (
            sum(map(message_bytes, self.messages))
            + sum(map(reference_bytes, self.references))
            + utf8_bytes(self.addition)
        )


def _items_of(values: object, type_: type[Any]) -> Iterator[Any]:
    yield from (value for value in values if isinstance(value, type_)) if isinstance(values, list | tuple) else ()


def _wrong_shapes(messages: object, addition: object, references: object) -> Iterator[AssemblyFinding]:
    if not isinstance(addition, str | None):
        yield _shape(None, f"`system_addition` is a {_name(addition)}: return a text or None")
    yield from _wrong_items("references", references, Reference)
    yield from _wrong_items("messages", messages, Message)


def _wrong_items(name: str, values: object, type_: type[Message | Reference]) -> Iterator[AssemblyFinding]:
    if not isinstance(values, list | tuple):
        yield _shape(None, f"`{name}` is a {_name(values)}: return a list or tuple of {type_.__name__}")
        return
    for at, value in enumerate(values):
        if type(value) is not type_:
            yield _shape(None, f"`{name}[{at}]` is a {_name(value)}: return a {type_.__name__}")
        elif isinstance(value, Message) and type(value.part) not in _PARTS:
            what = f"message {value.id}: its part is a {_name(value.part)}: use one of {_PART_NAMES}"
            yield AssemblyFinding(fault="unknown-part", message=_text_or_none(value.id), what=what)
        elif (problem := type_problem(value, type_)) is not None:
            id_ = _text_or_none(value.id)
            where = f"`{name}[{at}]`" if id_ is None else f"{type_.__name__.lower()} {id_}"
            yield _shape(id_, f"{where}: {problem}: give every field a value of its type")


def type_problem(value: msgspec.Struct, type_: type[msgspec.Struct]) -> str | None:
    """Return which field has a wrong type; None if all are right. Constructing a struct checks no types."""
    if isinstance(value, Message) and isinstance(value.part, CallPart) and not is_json(value.part.input):
        return f"`part.input` is not a JSON value of at most {MOST_LEVELS} levels and {MOST_VALUES} values"
    try:
        decoding.convert(msgspec.to_builtins(value), type_)
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        return str(error)
    return None


def replacement_problem(replacements: object, *, most_bytes: int = MOST_BYTES) -> str | None:
    """Return why these cannot take the place of entries; None if they can, as far as the entries need not be known.

    >>> replacement_problem({EntryId("r/a#1"): "shorter"})
    'the replacement of r/a#1 is a str: give a Message with the id of its entry'
    """
    if not isinstance(replacements, Mapping):
        return f"the replacements are a {_name(replacements)}: give a mapping from ids to messages"
    for id_, message in replacements.items():
        if type(message) is not Message or message.id != id_ or type(message.part) not in _PARTS:
            return f"the replacement of {id_} is a {_name(message)}: give a Message with the id of its entry"
        if (problem := type_problem(message, Message)) is not None:
            return f"the replacement of {id_}: {problem}: give every field a value of its type"
    if sum(map(message_bytes, replacements.values())) > most_bytes:
        return f"the replacements have more than {most_bytes} bytes"
    return None


def is_json(value: object) -> bool:
    """Return whether it is a bounded JSON value. The bounds also end at objects that contain themselves."""
    open_values = [(value, 0)]
    for _ in range(MOST_VALUES):
        if not open_values:
            return True
        one, level = open_values.pop()
        if level > MOST_LEVELS:
            return False
        match one:
            case None | bool() | int() | str():
                pass
            case float() if isfinite(one):
                pass
            case list():
                open_values += ((each, level + 1) for each in one)
            case dict() if all(isinstance(key, str) for key in one):
                open_values += ((each, level + 1) for each in one.values())
            case _:
                return False
    return False


def _too_large(assembled: _Assembled, *, most_bytes: int) -> Iterator[AssemblyFinding]:
    total = assembled.size_bytes
    if total > most_bytes:
        yield AssemblyFinding(
            fault="too-large",
            message=_largest(assembled.messages),
            what=f"{total} bytes were assembled, and at most {most_bytes} are accepted{_largest_hint(assembled)}:"
            " return fewer messages, or summaries of them",
        )


def _over_budget(assembled: _Assembled, *, budget: Budget, ratio: TokenRatio) -> Iterator[AssemblyFinding]:
    estimate = estimate_tokens(assembled.size_bytes, ratio=ratio)
    if estimate.tokens > budget.history:
        yield AssemblyFinding(
            fault="over-budget",
            message=_largest(assembled.messages),
            what=f"about {estimate.tokens} tokens were assembled ({estimate.bytes_per_token:.2f} bytes per token,"
            f" {estimate.source}), and the budget is {budget.history}{_largest_hint(assembled)}:"
            " return at most `ctx.budget.history` tokens",
        )


def _largest(messages: Sequence[Message]) -> str | None:
    return max(messages, key=message_bytes).id if messages else None


def _largest_hint(assembled: _Assembled) -> str:
    largest = _largest(assembled.messages)
    return "" if largest is None else f" (the largest message is {largest})"


def _no_epoch() -> Iterator[AssemblyFinding]:
    what = (
        "the mode is `thread_bootstrap` and `projection.epoch` is empty: return an id of the stable part of the context"
    )
    yield AssemblyFinding(fault="no-epoch", message=None, what=what)


def _entries(messages: Sequence[Message], history: History) -> Mapping[EntryId, Message]:
    """Return the entries of the history that were assembled, by id. Neighbours are read together."""
    entries: dict[EntryId, Message] = {}
    at, ahead = 0, 1
    while at < len(messages):
        position = history.position(messages[at].id)
        # What follows in the history probably follows here too, so that its position need not be looked up.
        run = () if position is None else history[position : position + ahead]
        known = list(_common_start(run, messages[at : at + len(run)]))
        entries |= {entry.id: entry for entry in known}
        ahead = min(2 * ahead, _MOST_AHEAD) if run and len(known) == len(run) else 1
        at += max(1, len(known))
    return entries


def _common_start(run: Sequence[Message], messages: Sequence[Message]) -> Iterator[Message]:
    for entry, message in zip(run, messages, strict=False):
        if entry.id != message.id:
            return
        yield entry


def _wrong_ids(
    messages: Sequence[Message], *, entries: Mapping[EntryId, Message], prompt_id: EntryId
) -> Iterator[AssemblyFinding]:
    for id_, count in Counter(message.id for message in messages).items():
        if count > 1:
            what = f"message {id_} was assembled {count} times: return each message once"
            yield AssemblyFinding(fault="repeated", message=id_, what=what)
    for message in messages:
        entry = entries.get(message.id)
        if entry is None and "#" in message.id and message.id != prompt_id:
            what = f"message {message.id} is not in the history: give a message that you make an id without `#`"
            yield AssemblyFinding(fault="unknown-entry", message=message.id, what=what)
        elif entry is not None and entry != message:
            what = (
                f"message {message.id} differs from the entry with this id: return entries unchanged, replace them with"
                " `ctx.rewrite`, or return a SummaryPart that names them as sources"
            )
            yield AssemblyFinding(fault="altered", message=message.id, what=what)


def _unpaired(
    messages: Sequence[Message], *, entries: Mapping[EntryId, Message], history: History
) -> Iterator[AssemblyFinding]:
    """Yield the calls and results whose other half is missing, or comes too early, unless it is not in the history
    either: the call of an interrupted turn has no result."""
    results = {message.part.call for message in messages if isinstance(message.part, ResultPart)}
    calls: set[EntryId] = set()
    for message in messages:
        if isinstance(message.part, CallPart):
            calls.add(message.id)
        match message.part:
            case CallPart() if message.id not in results:
                result = history.result_of(message.id)
                if result is not None or message.id not in entries:
                    where = f"message {result}" if result is not None else "a message with a ResultPart"
                    what = f"message {message.id} is a tool call without its result: return {where} too, or neither"
                    yield AssemblyFinding(fault="call-without-result", message=message.id, what=what)
            case ResultPart(call=call) if call not in calls:
                if message.id not in entries or history.position(call) is not None:
                    what = (
                        f"message {message.id} is a tool result without its call: return message {call} before it, or"
                        " neither"
                    )
                    yield AssemblyFinding(fault="result-without-call", message=message.id, what=what)
            case _:
                pass


def _shape(id_: str | None, what: str) -> AssemblyFinding:
    return AssemblyFinding(fault="wrong-shape", message=id_, what=what)


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _name(value: object) -> str:
    return "NoneType" if value is None else type(value).__name__
