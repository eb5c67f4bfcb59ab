"""The sessions that pi keeps: a file each, found by its id, taken up in another folder, read back."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.errors import RefusedError, disk_refusal
from proctor.event.model import KeptItem
from proctor.ids import ThreadId
from proctor_pi.wire import BROKEN_OFF, Block, Native

SOURCE = "pi session file"


class _Part(Block, frozen=True, kw_only=True):
    id: str | None = None


class _Message(Native, frozen=True, kw_only=True):
    role: str
    content: tuple[_Part, ...] | str = ()
    stop_reason: str | None = None


class _Entry(Native, frozen=True, kw_only=True):
    type: str
    message: _Message | None = None


def find(folder: Path, thread: ThreadId) -> Path:
    """RefusedError where there is none. pi itself would begin an empty session under that name."""
    for file in folder.glob("*.jsonl"):
        if file.stem.endswith(f"_{thread}"):
            return file
    raise RefusedError("peer.refused", f"pi keeps no session {thread}")


def move(file: Path, workspace: Path) -> bool:
    """pi works where a session began; one that is taken up elsewhere has to say so. Whether it did not already."""
    try:
        header, _, rest = file.read_bytes().partition(b"\n")
        fields = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        here = msgspec.Raw(msgspec.json.encode(str(workspace)))
        if fields.get("cwd") == here:
            return False
        draft = file.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(fields | {"cwd": here}) + b"\n" + rest)
        draft.replace(file)
    except msgspec.DecodeError as error:
        raise RefusedError("peer.refused", f"the session that pi keeps cannot be read: {error}") from error
    except OSError as error:
        raise disk_refusal(error, path=file) from error
    return True


def read(file: Path) -> tuple[KeptItem, ...]:
    """All items of a session, in order. RefusedError where there is no such file."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise RefusedError("peer.refused", f"the session that pi keeps cannot be read: {error.strerror}") from error
    return tuple(item for line in lines for item in _items(line))


def _items(line: bytes) -> Iterator[KeptItem]:
    try:
        entry = msgspec.json.decode(line, type=_Entry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        yield KeptItem(kind="other", text="a line that cannot be read")
        return
    message = entry.message
    if message is None or message.role == "toolResult":
        return  # a result belongs to the call that is there already
    if message.stop_reason in BROKEN_OFF:
        yield KeptItem(kind="other", text="a reply that broke off")
        return
    parts = message.content if isinstance(message.content, tuple) else (_Part(type="text", text=message.content),)
    for part in parts:
        match part.type:
            case "text":
                yield KeptItem(kind="prompt" if message.role == "user" else "message", text=part.text)
            case "thinking":
                yield KeptItem(kind="reasoning", text=part.thinking)
            case "toolCall":
                yield KeptItem(kind="tool", id=part.id)
            case _:
                yield KeptItem(kind="other", text=part.type)
