"""Read Claude Code's own session file, and convert it to history items."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from proctor import decoding
from proctor.errors import RefusedError
from proctor.event.history_item import HistoryCall, HistoryItem
from proctor.runtime.agent_files import read_lines
from proctor.runtime.claude_code import wire
from proctor.runtime.claude_code.results import text_of, tool_result, tool_use


class _Entry(wire.Native, frozen=True):
    type: str = ""
    uuid: str = ""
    message: wire.Message | None = None
    prompt: str | None = msgspec.field(default=None, name="promptId")
    is_sidechain: bool = msgspec.field(default=False, name="isSidechain")
    is_meta: bool = msgspec.field(default=False, name="isMeta")


_decode = decoding.json_decoder(_Entry)
_ID: Final = re.compile(r"[0-9A-Za-z-]+")


def session_file(config: Path, thread: str) -> Path | None:
    """Return Claude Code's file of a session, or None if there is no such file.

    The folder that contains it is named after the working directory, in the program's own encoding.
    """
    if not _ID.fullmatch(thread):
        return None  # the glob would take it as a pattern or a path
    return next(iter((config / "projects").glob(f"*/{thread}.jsonl")), None)


def find_home(home: Path, thread: str) -> Path | None:
    """Return the home, among those of the sessions of a host, in which a thread is stored. None if it is in none."""
    homes = sorted(home.glob("sessions/*"))
    return next((each for each in homes if session_file(each / "claude", thread) is not None), None)


def read_session(config: Path, thread: str) -> tuple[HistoryItem, ...]:
    """Return the items of a session. Raises RefusedError if Claude Code has not stored it."""
    file = session_file(config, thread)
    if file is None:
        raise RefusedError("peer.refused", f"Claude Code has no stored session {thread}")
    try:
        return tuple(items_in(read_lines(file)))
    except OSError as error:
        raise RefusedError("peer.refused", f"Claude Code's session file cannot be read: {error.strerror}") from error


def last_reply(config: Path, thread: str, turn: str) -> str:
    """Return the id of the last message of the agent in a turn. Raises RefusedError if the file has no such message."""
    file = session_file(config, thread)
    try:
        found = None if file is None else last_reply_in(read_lines(file), turn)
    except OSError as error:
        raise RefusedError("peer.refused", f"Claude Code's session file cannot be read: {error.strerror}") from error
    if found is None:
        raise RefusedError("peer.refused", f"Claude Code's session {thread} has no reply in the turn {turn}")
    return found


def last_reply_in(lines: Iterable[bytes], turn: str) -> str | None:
    """Return the id of the last message of the agent in a turn, which is named by the id of its prompt.

    The prompt and the tool results of a turn share one id.
    """
    prompt: str | None = None
    found: str | None = None
    for line in lines:
        try:
            entry = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if entry.is_sidechain:
            continue
        if entry.type == "user":
            if entry.uuid == turn:
                prompt = entry.prompt
            elif prompt is not None and entry.prompt != prompt:
                break
        elif entry.type == "assistant" and prompt is not None:
            found = entry.uuid
    return found


def items_in(lines: Iterable[bytes]) -> Iterator[HistoryItem]:
    """Yield prompts, messages, reasoning and tool calls in order, each call with its result. Other lines are skipped.

    >>> line = b'{"type":"user","message":{"role":"user","content":"Go"}}'
    >>> list(items_in([line, b"{torn"]))
    [HistoryItem(kind='prompt', id=None, text='Go', digest=None, call=None)]
    """
    counts: dict[str, int] = {}
    entries = list(_entries_in(lines))
    results = {
        block.tool_use_id: block
        for _, message in entries
        for block in message.blocks
        if block.type.endswith("tool_result") and block.tool_use_id is not None
    }
    for type_, message in entries:
        for block in message.blocks:
            if type_ == "user":
                if block.type == "text":
                    yield HistoryItem(kind="prompt", text=block.text)
                continue
            id_ = message.id
            index = counts.get(id_, 0)
            counts[id_] = index + 1
            match block.type:
                case "text":
                    yield HistoryItem(kind="message", id=f"{id_}/{index}", text=block.text)
                case "thinking":
                    yield HistoryItem(kind="reasoning", id=f"{id_}/{index}", text=block.thinking)
                case "tool_use":
                    yield _tool(block, results.get(block.id or ""))
                case _:
                    yield HistoryItem(kind="other", id=block.id, text=text_of(block.content))


def _entries_in(lines: Iterable[bytes]) -> Iterator[tuple[str, wire.Message]]:
    """Yield who said each message of the conversation, and the message."""
    for line in lines:
        try:
            entry = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # a line of unknown shape, or one that is still being written
        if entry.message is None or entry.is_sidechain or entry.is_meta or entry.type not in ("user", "assistant"):
            continue
        yield entry.type, entry.message


def _tool(block: wire.Block, result: wire.Block | None) -> HistoryItem:
    use = tool_use(block.name or "", block.input)
    end = None if result is None else tool_result(use.kind, result)
    call = HistoryCall(
        kind=use.kind,
        input=use.input,
        output=None if end is None else end.output,
        ok=None if end is None else end.ok,
    )
    return HistoryItem(kind="tool", id=block.id, text=use.name, call=call)
