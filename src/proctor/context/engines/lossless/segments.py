"""Segments: what the engine stores and summarizes as one, a turn or a part of a long turn. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from proctor.context.budget import message_bytes
from proctor.event.message import CallPart, Message, ResultPart, UserPart
from proctor.ids import EntryId

SEGMENT_BYTES: Final = 32 * 1024
"""A turn beyond this size is stored in several segments."""

FindResult = Callable[[EntryId], EntryId | None]
"""Returns the id of the result of a call; None for a call without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Entries that follow each other. Both or none of a tool call and its result are in it."""

    messages: tuple[Message, ...]
    size_bytes: int
    is_start: bool
    """Whether a turn begins with it."""

    @property
    def is_tainted(self) -> bool:
        return any(message.is_tainted for message in self.messages)


def split_turn(messages: Sequence[Message]) -> Iterator[Segment]:
    """Yield the segments of one turn."""
    results = {message.part.call: message.id for message in messages if isinstance(message.part, ResultPart)}
    return _split(messages, find_result=results.get, has_turns=False)


def split_history(messages: Iterable[Message], *, find_result: FindResult) -> Iterator[Segment]:
    """Yield the segments of a history. A turn begins with each text of the user between calls and their results."""
    return _split(messages, find_result=find_result, has_turns=True)


def _split(messages: Iterable[Message], *, find_result: FindResult, has_turns: bool) -> Iterator[Segment]:
    held: list[Message] = []
    size, is_start = 0, True
    calls: set[EntryId] = set()
    for message in messages:
        begins_turn = has_turns and isinstance(message.part, UserPart)
        if held and (begins_turn or size >= SEGMENT_BYTES) and not _await_result(calls, find_result):
            yield Segment(messages=tuple(held), size_bytes=size, is_start=is_start)
            held, size, is_start = [], 0, begins_turn
            calls.clear()
        held.append(message)
        size += message_bytes(message)
        match message.part:
            case CallPart():
                calls.add(message.id)
            case ResultPart(call=call):
                calls.discard(call)
            case _:
                pass
    if held:
        yield Segment(messages=tuple(held), size_bytes=size, is_start=is_start)


def _await_result(calls: set[EntryId], find_result: FindResult) -> bool:
    """Return whether a result of one of the calls follows. Calls that have none are removed from the set."""
    for call in sorted(calls):
        if find_result(call) is not None:
            return True
        calls.discard(call)
    return False
