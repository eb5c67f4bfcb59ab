"""The tools with which an agent finds what was said: `context_search` and `context_expand`."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio.to_thread

from proctor import canonical
from proctor.context.engines.lossless.entry_text import one_line, role_of, searched_text, valid_text, whole_text
from proctor.context.engines.lossless.lossless_store import LosslessStore
from proctor.context.engines.lossless.stored_summary import Summary
from proctor.context.word_query import query_words
from proctor.errors import MachineError
from proctor.event.message import Message
from proctor.ids import EntryId
from proctor.runtime.base import Tool

MOST_RESULTS: Final = 50
_RESULTS: Final = 10
_MOST_LISTED: Final = 100
_MOST_CHARS: Final = 20_000
_EXCERPT_BYTES: Final = 240
_LINE_BYTES: Final = 120

_SEARCH_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "Words that must all occur."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST_RESULTS, "description": "The most results."},
    },
    "required": ["query"],
    "additionalProperties": False,
}
_EXPAND_SCHEMA: Final = {
    "type": "object",
    "properties": {"id": {"type": "string", "description": "Id of a summary or of a message, or a `next` id."}},
    "required": ["id"],
    "additionalProperties": False,
}


def recall_tools(store: LosslessStore) -> tuple[Tool, ...]:
    """Return the tools. Their names and schemas are fixed."""
    return (
        Tool(
            name="context_search",
            description="Search everything that was said and done in this session before, in all agents. Returns"
            " excerpts with ids, the newest first; `context_expand` returns the whole message.",
            schema=_SEARCH_SCHEMA,
            call=_in_thread(store, _search),
        ),
        Tool(
            name="context_expand",
            description="Return what a summary was made from, or the whole text of a message, by its id.",
            schema=_EXPAND_SCHEMA,
            call=_in_thread(store, _expand),
        ),
    )


def _in_thread(
    store: LosslessStore, function: Callable[[LosslessStore, dict[str, Any]], dict[str, Any]]
) -> Callable[[Any], Any]:
    def answer(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return function(store, arguments)
        except MachineError as error:
            # Without the history nothing can be answered now. The next turn makes the database again.
            store.set_aside(error)
            raise

    async def call(arguments: Any) -> str:
        if not isinstance(arguments, dict):
            raise ValueError("the arguments are not an object")
        return canonical.encode(await anyio.to_thread.run_sync(answer, arguments)).decode()

    return call


def _text_of(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise ValueError(f"`{name}` is not a text")
    return valid_text(value)


# ── search ──


def _search(store: LosslessStore, arguments: dict[str, Any]) -> dict[str, Any]:
    query = _text_of(arguments, "query")
    limit = arguments.get("limit", _RESULTS)
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise ValueError("`limit` is not a number")
    limit = min(MOST_RESULTS, max(1, limit))
    words = [word.casefold() for word in query_words(query)]
    found = [_found(message, words) for message in search_entries(store, query, most=limit)]
    return {"results": found}


def search_entries(store: LosslessStore, query: str, *, most: int) -> list[Message]:
    """Return entries of the turns that have every word of the query, the newest first: those with most of the words."""
    words = [word.casefold() for word in query_words(query)]
    found: list[Message] = []
    for messages in store.search(query, most=most):
        counts = [sum(word in text for word in words) for text in (_folded(message) for message in messages)]
        best = max(counts)
        found += (message for message, count in reversed(list(zip(messages, counts, strict=True))) if count == best)
        if len(found) >= most:
            break
    return found[:most]


def _folded(message: Message) -> str:
    return searched_text(message).casefold()


def _found(message: Message, words: Sequence[str]) -> dict[str, Any]:
    text = searched_text(message)
    folded = text.casefold()
    at = min((found for word in words if (found := folded.find(word)) >= 0), default=0)
    excerpt = one_line(text[max(0, at - _EXCERPT_BYTES // 3) :], most_bytes=_EXCERPT_BYTES)
    return {**_described(message), "excerpt": excerpt}


# ── expand ──


def _expand(store: LosslessStore, arguments: dict[str, Any]) -> dict[str, Any]:
    wanted = _text_of(arguments, "id")
    found = _expanded(store, wanted, start=0)
    if found is None:
        id_, _, start = wanted.rpartition(":")
        found = _expanded(store, id_, start=int(start)) if start.isdecimal() and len(start) < 16 else None
    if found is None:
        raise ValueError("nothing has this id")
    return found


def _expanded(store: LosslessStore, id_: str, *, start: int) -> dict[str, Any] | None:
    known = store.summary(id_)
    if known is not None:
        return _expanded_summary(store, *known, start=start)
    messages = store.find(EntryId(id_))
    return None if messages is None else _expanded_entry(messages, EntryId(id_), start=start)


def _expanded_summary(
    store: LosslessStore, summary: Summary, children: Sequence[Summary], *, start: int
) -> dict[str, Any]:
    """Return what a summary covers, a part at a time: summaries, or entries with a line each."""
    if children:
        listed = [
            {"id": each.id, "entries": each.past - each.first, "text": valid_text(each.text), **_taint(each)}
            for each in children
        ]
        return {"id": summary.id, "covers": listed[start:]}
    entries = store.entries(first=summary.first + start, past=summary.past, most=_MOST_LISTED)
    covers = [{**_described(each), "line": one_line(whole_text(each), most_bytes=_LINE_BYTES)} for each in entries]
    end = start + len(entries)
    more = {"next": f"{summary.id}:{end}"} if summary.first + end < summary.past else {}
    return {"id": summary.id, "covers": covers, **more}


def _expanded_entry(messages: Sequence[Message], id_: EntryId, *, start: int) -> dict[str, Any]:
    [message] = [each for each in messages if each.id == id_]
    text = whole_text(message)
    end = start + _MOST_CHARS
    more = {"next": f"{id_}:{end}"} if end < len(text) else {}
    return {**_described(message), "text": valid_text(text[start:end]), **more}


def _described(message: Message) -> dict[str, Any]:
    place = {"id": valid_text(message.id), "role": valid_text(role_of(message)), "atMs": message.at_ms}
    return {**place, **_taint(message)}


def _taint(of: Message | Summary) -> dict[str, Any]:
    return {"isTainted": True} if of.is_tainted else {}
