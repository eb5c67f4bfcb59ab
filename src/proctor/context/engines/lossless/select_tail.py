"""Select what of the summaries and of the newest entries fits into the budget. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from proctor.context.budget import message_bytes
from proctor.context.history import History
from proctor.event.message import CallPart, Message, ResultPart, SummaryPart, UserPart
from proctor.ids import EntryId

_BATCH: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What fits: summaries, then entries, oldest first. `dropped` is the number of entries that are in neither."""

    summaries: tuple[Message, ...]
    entries: tuple[Message, ...]
    size_bytes: int
    dropped: int


def select(summaries: Sequence[Message], history: History, *, begin: int, room_bytes: int) -> Selection:
    """Return what fits of the summaries, and of the entries from the position `begin`.

    The newest turn has priority, then the summaries, then the other turns, the newest first. A turn is left out as a
    whole, except the newest if it does not fit: then its oldest messages are left out, calls with their results.
    """
    tail = _read_tail(history, begin=begin, most_bytes=room_bytes)
    turns = list(_split_turns(tail))
    newest = turns.pop() if turns else []
    room = _TailRoom(room_bytes)
    fits = room.take(newest)
    if fits:
        kept_summaries = _newest_that_fit([[each] for each in summaries], room)
        kept = [*_newest_that_fit(turns, room), *newest]
    else:
        half = _TailRoom(room_bytes // 2)
        kept_summaries = _newest_that_fit([[each] for each in summaries], half)
        room.take(kept_summaries)
        kept = _newest_of_turn(newest, room)
    entries = tuple(_paired(kept, history))
    left_out = summaries[: len(summaries) - len(kept_summaries)]
    return Selection(
        summaries=tuple(kept_summaries),
        entries=entries,
        size_bytes=sum(map(message_bytes, (*kept_summaries, *entries))),
        dropped=len(history) - begin - len(entries) + sum(map(_covered, left_out)),
    )


class _TailRoom:
    """How many bytes are left."""

    def __init__(self, size_bytes: int) -> None:
        self._bytes = size_bytes

    def take(self, messages: Iterable[Message]) -> bool:
        """Use room for all of the messages, or for none."""
        size = sum(map(message_bytes, messages))
        if size > self._bytes:
            return False
        self._bytes -= size
        return True


def _read_tail(history: History, *, begin: int, most_bytes: int) -> list[Message]:
    """Read the newest entries, to the position `begin` or until there are more than fit."""
    batches: list[Sequence[Message]] = []
    size, end = 0, len(history)
    while end > begin and size <= most_bytes:
        start = max(begin, end - _BATCH)
        batch = history[start:end]
        batches.append(batch)
        size += sum(map(message_bytes, batch))
        end = start
    return [message for batch in reversed(batches) for message in batch]


def _split_turns(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield turns: each begins with a text of the user that is not between a call and its result."""
    calls = {message.id: at for at, message in enumerate(messages) if isinstance(message.part, CallPart)}
    results = {
        calls[message.part.call]: at
        for at, message in enumerate(messages)
        if isinstance(message.part, ResultPart) and message.part.call in calls
    }
    turn: list[Message] = []
    reach = -1
    for at, message in enumerate(messages):
        if turn and isinstance(message.part, UserPart) and reach < at:
            yield turn
            turn = []
        turn.append(message)
        reach = max(reach, results.get(at, -1))
    if turn:
        yield turn


def _newest_that_fit(groups: Sequence[list[Message]], room: _TailRoom) -> list[Message]:
    """Return the messages of the newest groups, up to the first that does not fit."""
    kept = list(takewhile(room.take, reversed(groups)))
    return [message for group in reversed(kept) for message in group]


def _newest_of_turn(turn: Sequence[Message], room: _TailRoom) -> list[Message]:
    """Return what fits of a turn: the user's first text, and the newest of the rest, calls with their results."""
    first = [message for message in turn[:1] if isinstance(message.part, UserPart) and room.take([message])]
    units: dict[EntryId, list[Message]] = {}
    for message in turn[len(first) :]:
        key = message.part.call if isinstance(message.part, ResultPart) else message.id
        units.setdefault(key, []).append(message)
    kept = {message.id for message in _newest_that_fit(list(units.values()), room)}
    return [*first, *(message for message in turn[len(first) :] if message.id in kept)]


def _paired(messages: Sequence[Message], history: History) -> Iterator[Message]:
    """Yield the messages without calls and results whose other half is in the history, but not among them."""
    results = {message.part.call for message in messages if isinstance(message.part, ResultPart)}
    calls: set[EntryId] = set()
    for message in messages:
        match message.part:
            case CallPart() if message.id not in results and history.result_of(message.id) is not None:
                continue
            case CallPart():
                calls.add(message.id)
            case ResultPart(call=call) if call not in calls and history.position(call) is not None:
                continue
            case _:
                pass
        yield message


def _covered(summary: Message) -> int:
    return len(summary.part.sources) if isinstance(summary.part, SummaryPart) else 0
