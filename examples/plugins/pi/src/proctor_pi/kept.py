"""The sessions that pi stores, each a file in its own folder: find, move to another workspace, and read them."""

# The agent can write everything in its session's folder, and nothing beside it. Files there are not trusted.

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Final

import msgspec

from proctor.errors import EvidenceError, RefusedError, disk_error
from proctor.event.history_item import HistoryItem
from proctor.evidence.disk import open_regular
from proctor.ids import ThreadId
from proctor_pi.wire import BROKEN_OFF, Block, Native

SOURCE: Final = "pi session file"
MAX_BYTES: Final = 64 * 1024 * 1024

_NAME: Final = re.compile(r"[0-9A-Za-z-]+")
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Part(Block, frozen=True, kw_only=True):
    id: str | None = None


class _Message(Native, frozen=True, kw_only=True):
    role: str
    content: tuple[_Part, ...] | str = ()
    stop_reason: str | None = None


class _Entry(Native, frozen=True, kw_only=True):
    type: str
    message: _Message | None = None


def new_folder(sessions: Path) -> Path:
    """Create the folder of one session, which may write there and not in the folders of others."""
    try:
        return Path(tempfile.mkdtemp(prefix="kept_", dir=sessions))
    except OSError as error:
        raise disk_error(error, path=sessions) from error


def enter(sessions: Path, thread: ThreadId, folder: Path) -> None:
    """Register the folder of a thread. Raises RefusedError if the thread belongs to another session."""
    _check_name(thread)
    try:
        (sessions / thread).symlink_to(folder.name)
    except FileExistsError as error:
        if folder_of(sessions, thread) != folder:
            raise RefusedError("peer.refused", f"the thread {thread} belongs to another session") from error
    except OSError as error:
        raise disk_error(error, path=sessions) from error


def folder_of(sessions: Path, thread: ThreadId) -> Path:
    """Return the folder of a thread. Raises RefusedError if the thread was not registered."""
    _check_name(thread)
    try:
        return sessions / (sessions / thread).readlink()
    except OSError as error:
        raise _not_stored(thread) from error


def find(folder: Path, thread: ThreadId) -> Path:
    """Return the file of a thread. Raises RefusedError if there is no such file.

    pi itself would begin an empty session under that name.
    """
    with suppress(OSError):
        for file in folder.glob("*.jsonl"):
            if file.stem.endswith(f"_{thread}"):
                status = file.lstat()
                if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_BYTES:
                    return file
    raise _not_stored(thread)


def move(file: Path, workspace: Path) -> bool:
    """Change the workspace of a stored session, because pi works where the session began. Return whether it changed."""
    header, _, rest = _read_file(file).partition(b"\n")
    try:
        fields = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
    except _UNREADABLE as error:
        raise RefusedError("peer.refused", f"the stored session cannot be read: {error}") from error
    here = msgspec.Raw(msgspec.json.encode(str(workspace)))
    if fields.get("cwd") == here:
        return False
    try:
        _replace(file, msgspec.json.encode(fields | {"cwd": here}) + b"\n" + rest)
    except OSError as error:
        raise disk_error(error, path=file) from error
    return True


def read(folder: Path, thread: ThreadId) -> tuple[HistoryItem, ...]:
    """Return all items of a session in order. Raises RefusedError if there is no file.

    A single last item counts the unreadable lines, so that a file of empty lines does not become as many items.
    """
    items: list[HistoryItem] = []
    unreadable = 0
    for line in BytesIO(_read_file(find(folder, thread))):
        try:
            items += _items(msgspec.json.decode(line, type=_Entry))
        except _UNREADABLE:
            unreadable += 1
    if unreadable:
        items.append(HistoryItem(kind="other", text=f"lines that cannot be read: {unreadable}"))
    return tuple(items)


def _not_stored(thread: ThreadId) -> RefusedError:
    return RefusedError("peer.refused", f"pi has no stored session {thread}")


def _check_name(thread: ThreadId) -> None:
    if _NAME.fullmatch(thread) is None:
        raise RefusedError("peer.refused", f"{thread!r} is not the id of a pi session")


def _read_file(file: Path) -> bytes:
    try:
        with open_regular(file) as opened:
            # Bounded whatever its size was when it was opened: the agent may continue to write.
            content = opened.read(MAX_BYTES + 1)
    except (EvidenceError, OSError) as error:
        raise RefusedError("peer.refused", f"the stored session cannot be read: {error}") from error
    if len(content) > MAX_BYTES:
        raise RefusedError("peer.refused", f"the stored session is larger than {MAX_BYTES} bytes")
    return content


def _replace(file: Path, content: bytes) -> None:
    # mkstemp always creates a new file. Under a predictable name, the agent could have placed a link.
    descriptor, draft = tempfile.mkstemp(prefix=".", suffix=".draft", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
        Path(draft).replace(file)
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise


def _items(entry: _Entry) -> Iterator[HistoryItem]:
    message = entry.message
    if message is None or message.role == "toolResult":
        return  # a result belongs to its call, which already is an item
    if message.stop_reason in BROKEN_OFF:
        yield HistoryItem(kind="other", text="a reply that broke off")
        return
    parts = message.content if isinstance(message.content, tuple) else (_Part(type="text", text=message.content),)
    for part in parts:
        match part.type:
            case "text":
                yield HistoryItem(kind="prompt" if message.role == "user" else "message", text=part.text)
            case "thinking":
                yield HistoryItem(kind="reasoning", text=part.thinking)
            case "toolCall":
                yield HistoryItem(kind="tool", id=part.id)
            case _:
                yield HistoryItem(kind="other", text=part.type)
