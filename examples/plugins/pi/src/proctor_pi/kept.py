"""The sessions that pi keeps: a folder and a file each, found by its id, taken up in another workspace, read back."""

# The agent can write all that is in such a folder, and nothing beside it: what is found there may be anything.

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
    """For one session, which may write here and not in those of others."""
    try:
        return Path(tempfile.mkdtemp(prefix="kept_", dir=sessions))
    except OSError as error:
        raise disk_error(error, path=sessions) from error


def enter(sessions: Path, thread: ThreadId, folder: Path) -> None:
    """From now on the thread is found there, and nowhere else. RefusedError where it is another session's."""
    _check_name(thread)
    try:
        (sessions / thread).symlink_to(folder.name)
    except FileExistsError as error:
        if folder_of(sessions, thread) != folder:
            raise RefusedError("peer.refused", f"the thread {thread} is that of another session") from error
    except OSError as error:
        raise disk_error(error, path=sessions) from error


def folder_of(sessions: Path, thread: ThreadId) -> Path:
    """RefusedError where no such thread was entered."""
    _check_name(thread)
    try:
        return sessions / (sessions / thread).readlink()
    except OSError as error:
        raise _nothing(thread) from error


def find(folder: Path, thread: ThreadId) -> Path:
    """RefusedError where there is no file. pi itself would begin an empty session under that name."""
    with suppress(OSError):
        for file in folder.glob("*.jsonl"):
            if file.stem.endswith(f"_{thread}"):
                found = file.lstat()
                if stat.S_ISREG(found.st_mode) and found.st_size <= MAX_BYTES:
                    return file
    raise _nothing(thread)


def move(file: Path, workspace: Path) -> bool:
    """pi works where a session began; one that is taken up elsewhere has to say so. Whether it did not already."""
    header, _, rest = _whole(file).partition(b"\n")
    try:
        fields = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
    except _UNREADABLE as error:
        raise RefusedError("peer.refused", f"the session that pi keeps cannot be read: {error}") from error
    here = msgspec.Raw(msgspec.json.encode(str(workspace)))
    if fields.get("cwd") == here:
        return False
    try:
        _replace(file, msgspec.json.encode(fields | {"cwd": here}) + b"\n" + rest)
    except OSError as error:
        raise disk_error(error, path=file) from error
    return True


def read(folder: Path, thread: ThreadId) -> tuple[HistoryItem, ...]:
    """All items of a session, in order, then how many lines cannot be read. RefusedError where there is no file.

    These are one item: a file of empty lines would else be as many.
    """
    items: list[HistoryItem] = []
    unreadable = 0
    for line in BytesIO(_whole(find(folder, thread))):
        try:
            items += _items(msgspec.json.decode(line, type=_Entry))
        except _UNREADABLE:
            unreadable += 1
    if unreadable:
        items.append(HistoryItem(kind="other", text=f"lines that cannot be read: {unreadable}"))
    return tuple(items)


def _nothing(thread: ThreadId) -> RefusedError:
    return RefusedError("peer.refused", f"pi keeps no session {thread}")


def _check_name(thread: ThreadId) -> None:
    if _NAME.fullmatch(thread) is None:
        raise RefusedError("peer.refused", f"{thread!r} is no name of a session of pi's")


def _whole(file: Path) -> bytes:
    try:
        with open_regular(file) as opened:
            # However large it was when it was opened: somebody may go on writing.
            whole = opened.read(MAX_BYTES + 1)
    except (EvidenceError, OSError) as error:
        raise RefusedError("peer.refused", f"the session that pi keeps cannot be read: {error}") from error
    if len(whole) > MAX_BYTES:
        raise RefusedError("peer.refused", f"the session that pi keeps is over {MAX_BYTES} bytes")
    return whole


def _replace(file: Path, content: bytes) -> None:
    # mkstemp opens a new file or none: under a name that can be guessed a link could wait.
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
        return  # a result belongs to the call that is there already
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
