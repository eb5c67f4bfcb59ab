"""What Claude Code itself keeps of a session: a file of lines, read back in our words."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from proctor.errors import RefusedError
from proctor.event.history_item import HistoryItem
from proctor.runtime.agent_files import read_lines
from proctor.runtime.claude_code import wire
from proctor.runtime.claude_code.results import text_of


class _Entry(wire.Native, frozen=True):
    type: str = ""
    message: wire.Message | None = None
    is_sidechain: bool = msgspec.field(default=False, name="isSidechain")
    is_meta: bool = msgspec.field(default=False, name="isMeta")


_DECODER = msgspec.json.Decoder(_Entry)
_ID: Final = re.compile(r"[0-9A-Za-z-]+")


def session_file(config: Path, thread: str) -> Path | None:
    """The folder above is named by the working directory, in a way of the program's own."""
    if not _ID.fullmatch(thread):
        return None  # it would be a pattern, and lead elsewhere
    return next(iter((config / "projects").glob(f"*/{thread}.jsonl")), None)


def read_session(config: Path, thread: str) -> tuple[HistoryItem, ...]:
    """RefusedError where nothing is kept."""
    file = session_file(config, thread)
    if file is None:
        raise RefusedError("peer.refused", f"Claude Code keeps nothing of session {thread}")
    try:
        return tuple(items_in(read_lines(file)))
    except OSError as error:
        raise RefusedError("peer.refused", f"what Claude Code keeps cannot be read: {error.strerror}") from error


def items_in(lines: Iterable[bytes]) -> Iterator[HistoryItem]:
    """Prompts, messages, thoughts and calls in their order; what is of another kind is no item of a conversation.

    >>> line = b'{"type":"user","message":{"role":"user","content":"Go"}}'
    >>> list(items_in([line, b"{torn"]))
    [HistoryItem(kind='prompt', id=None, text='Go', digest=None)]
    """
    counts: dict[str, int] = {}
    for line in lines:
        try:
            entry = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # a line of another shape, or one that is still being written
        if entry.message is None or entry.is_sidechain or entry.is_meta or entry.type not in ("user", "assistant"):
            continue
        for block in entry.message.blocks:
            if entry.type == "user":
                if block.type == "text":
                    yield HistoryItem(kind="prompt", text=block.text)
                continue
            id_ = entry.message.id
            index = counts.get(id_, 0)
            counts[id_] = index + 1
            match block.type:
                case "text":
                    yield HistoryItem(kind="message", id=f"{id_}/{index}", text=block.text)
                case "thinking":
                    yield HistoryItem(kind="reasoning", id=f"{id_}/{index}", text=block.thinking)
                case "tool_use":
                    yield HistoryItem(kind="tool", id=block.id, text=block.name)
                case _:
                    yield HistoryItem(kind="other", id=block.id, text=text_of(block.content))
