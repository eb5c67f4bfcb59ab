"""Read Codex's rollout file, in which Codex stores a persistent thread: usage, model, version and items."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor import decoding
from proctor.event.history_item import HistoryCall, HistoryItem
from proctor.event.model import Tokens
from proctor.event.usage import NO_TOKENS
from proctor.runtime.agent_files import read_lines
from proctor.runtime.base import ContextUse
from proctor.runtime.codex_exec.wire import Count

_KINDS: Final = {
    "UserMessage": "prompt",
    "AgentMessage": "message",
    "Plan": "message",
    "Reasoning": "reasoning",
    "CommandExecution": "tool",
    "FileChange": "tool",
    "McpToolCall": "tool",
    "DynamicToolCall": "tool",
    "CollabAgentToolCall": "tool",
    "WebSearch": "tool",
}


class _Native(msgspec.Struct, frozen=True):
    """Unknown fields are ignored."""


class _Breakdown(_Native, frozen=True):
    input_tokens: Count
    output_tokens: Count
    total_tokens: Count
    cached_input_tokens: Count | None = None
    cache_write_input_tokens: Count | None = None
    reasoning_output_tokens: Count | None = None

    @property
    def tokens(self) -> Tokens:
        return Tokens(
            input=self.input_tokens,
            output=self.output_tokens,
            total=self.total_tokens,
            cached_input=self.cached_input_tokens,
            cache_write=self.cache_write_input_tokens,
            reasoning_output=self.reasoning_output_tokens,
        )


class _Record(_Native, frozen=True):
    """A token_usage_record: the usage of a turn including the latest reply."""

    turn_id: str
    turn_token_usage: _Breakdown


class _Totals(_Native, frozen=True):
    total_token_usage: _Breakdown
    last_token_usage: _Breakdown | None = None
    model_context_window: Count | None = None


class _TokenCount(_Native, frozen=True):
    info: _Totals | None = None


class _StoredItem(_Native, frozen=True):
    item: dict[str, Any]


class _Context(_Native, frozen=True):
    turn_id: str
    model: str | None = None
    approval_policy: Any = None


class _Meta(_Native, frozen=True):
    id: str
    cli_version: str | None = None


class _Line(_Native, frozen=True):
    type: str
    payload: msgspec.Raw


class _Tagged(_Native, frozen=True):
    type: str


@dataclass(slots=True)
class Rollout:
    """The content of Codex's rollout file.

    `total` is the baseline for the usage that the next turn reports, and `turns` the usage of each turn. They may
    differ: a turn whose process was killed has a record but is not in the total (seen with 0.163). `context` is the
    context window as it was counted last.
    """

    total: Tokens = NO_TOKENS
    context: ContextUse = field(default_factory=ContextUse)
    turns: dict[str, Tokens] = field(default_factory=dict)
    items: list[HistoryItem] = field(default_factory=list)
    thread: str | None = None
    version: str | None = None
    model: str | None = None
    approvals: Any = None

    def take(self, line: bytes) -> None:
        """Add one line of the file. Raises msgspec.DecodeError if its structure is unknown."""
        row = decoding.decode(line, _Line)
        match row.type:
            case "session_meta":
                meta = decoding.decode(row.payload, _Meta)
                self.thread, self.version = meta.id, meta.cli_version
            case "turn_context":
                context = decoding.decode(row.payload, _Context)
                self.model, self.approvals = context.model, context.approval_policy
            case "token_usage_record":
                record = decoding.decode(row.payload, _Record)
                self.turns[record.turn_id] = record.turn_token_usage.tokens
            case "event_msg":
                self._take_event(row.payload)

    def _take_event(self, payload: msgspec.Raw) -> None:
        match decoding.decode(payload, _Tagged).type:
            case "token_count":
                counted = decoding.decode(payload, _TokenCount)
                if (info := counted.info) is not None:
                    self.total = info.total_token_usage.tokens
                    self.context = ContextUse(
                        window_tokens=info.model_context_window or None,
                        used_tokens=None if info.last_token_usage is None else info.last_token_usage.total_tokens,
                    )
            case "item_completed":
                self.items.append(_kept(decoding.decode(payload, _StoredItem).item))


def read_rollout(path: Path) -> Rollout | None:
    """Return the current content of the file, or None if it cannot be read. Unreadable lines are skipped."""
    rollout = Rollout()
    try:
        for line in read_lines(path):
            try:
                rollout.take(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    except OSError:
        return None
    return rollout


def _kept(item: dict[str, Any]) -> HistoryItem:
    """Return the item without its id, because the output of `codex exec` numbers items differently.

    >>> _kept({"type": "AgentMessage", "id": "msg_1", "content": [{"type": "Text", "text": "done"}]})
    HistoryItem(kind='message', id=None, text='done', digest=None, call=None)
    """
    kind = _KINDS.get(str(item.get("type")), "other")
    texts = (part for name in ("content", "summary_text", "raw_content") for part in _texts(item.get(name)))
    spoken = "\n".join(texts) if kind in ("prompt", "message", "reasoning") else None
    if (tool := _tool(item)) is not None:
        return HistoryItem(kind="tool", text=tool[0], call=tool[1])
    return decoding.convert({"kind": kind, "text": spoken}, HistoryItem)


def _tool(item: dict[str, Any]) -> tuple[str, HistoryCall] | None:
    """Return name and call of a tool item, as `codex exec` reports it. None if the item is not such a tool."""
    ok = item.get("status", "completed") == "completed" and item.get("exit_code") in (None, 0)
    match item:
        case {"type": "CommandExecution", "command": [*words]}:
            output = item.get("aggregated_output")
            command = {"command": shlex.join(map(str, words))}
            return "shell", HistoryCall(
                kind="command", input=command, output=output if isinstance(output, str) else None, ok=ok
            )
        case {"type": "FileChange"}:
            return "patch", HistoryCall(kind="patch", input={"changes": item.get("changes")}, ok=ok)
        case {"type": "McpToolCall"}:
            spoken = next((part for name in ("error", "result") if (part := item.get(name)) is not None), None)
            output = None if spoken is None else msgspec.json.encode(spoken).decode()
            name = f"{item.get('server')}/{item.get('tool')}"
            is_good = ok and item.get("error") is None
            return name, HistoryCall(kind="mcp", input=item.get("arguments"), output=output, ok=is_good)
        case {"type": "WebSearch"}:
            return "search", HistoryCall(kind="web", input={"query": item.get("query")}, ok=ok)
        case _:
            return None


def _texts(value: Any) -> Iterator[str]:
    """
    >>> list(_texts(["a", {"type": "text", "text": "b"}, 7])), list(_texts(None))
    (['a', 'b'], [])
    """
    for part in value if isinstance(value, list) else ():
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text
