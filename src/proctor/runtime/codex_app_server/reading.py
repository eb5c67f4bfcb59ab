"""What the server keeps of a thread, read back page by page."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.errors import PeerError
from proctor.ids import ThreadId
from proctor.runtime.codex_app_server import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadKept:
    """In the server's own words, turns from the first to the last, each with its items."""

    thread: Mapping[str, Any]
    turns: tuple[Mapping[str, Any], ...]


class _Page(wire.Native, frozen=True):
    data: tuple[dict[str, Any], ...]
    next_cursor: str | None = None


class _Read(wire.Native, frozen=True):
    thread: dict[str, Any]


async def read_thread(thread: ThreadId, call: Callable[[str, Mapping[str, Any]], Awaitable[bytes]]) -> ThreadKept:
    """Whole. That there was a reply says nothing of the items in it: whoever relies on them must look."""
    turns: list[dict[str, Any]] = []
    cursor: str | None = None
    try:
        while True:
            # thread/read would give turns too, at the cost of a deprecation notice.
            asks = {"threadId": thread, "itemsView": "full", "sortDirection": "asc", "cursor": cursor}
            page = msgspec.json.decode(await call(wire.READ_TURNS, asks), type=_Page)
            turns += page.data
            # A cursor that does not move would lead round in circles.
            if page.next_cursor is None or page.next_cursor == cursor:
                break
            cursor = page.next_cursor
        about = msgspec.json.decode(await call("thread/read", {"threadId": thread}), type=_Read).thread
    except msgspec.DecodeError as error:
        raise PeerError("peer.wire", f"reading thread {thread}: {error}") from error
    return ThreadKept(thread=about, turns=tuple(turns))
