"""Read a stored thread from the server, page by page."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor import decoding
from proctor.errors import PeerError
from proctor.ids import ThreadId
from proctor.runtime.codex_app_server import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredThread:
    """A stored thread as the server sent it: its turns in order, each with its items."""

    thread: Mapping[str, Any]
    turns: tuple[Mapping[str, Any], ...]


class _Page(wire.Native, frozen=True):
    data: tuple[dict[str, Any], ...]
    next_cursor: str | None = None


class _Read(wire.Native, frozen=True):
    thread: dict[str, Any]


async def read_thread(thread: ThreadId, call: Callable[[str, Mapping[str, Any]], Awaitable[bytes]]) -> StoredThread:
    """Return the complete thread. The items are not checked. Raises PeerError if a reply cannot be read."""
    turns: list[dict[str, Any]] = []
    cursor: str | None = None
    try:
        while True:
            # thread/read can return turns too, but then sends a deprecation notice.
            params = {"threadId": thread, "itemsView": "full", "sortDirection": "asc", "cursor": cursor}
            page = decoding.decode(await call(wire.READ_TURNS, params), _Page)
            turns += page.data
            # A cursor that does not advance would repeat the same page forever.
            if page.next_cursor is None or page.next_cursor == cursor:
                break
            cursor = page.next_cursor
        about = decoding.decode(await call("thread/read", {"threadId": thread}), _Read).thread
    except msgspec.DecodeError as error:
        raise PeerError("peer.wire", f"reading thread {thread}: {error}") from error
    return StoredThread(thread=about, turns=tuple(turns))
