"""The `codex_native_*` rows of a session log in the format of Claude Code, and a strict reader for them."""

import io
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from proctor import decoding
from proctor.evidence.disk import open_regular, unreadable
from proctor.evidence.reader import MAX_LINE_BYTES

STATUS = "codex_native_thread_status"
WARNING = "codex_native_warning"
SUMMARY = "codex_native_execution_summary"


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """The fields that every row has."""

    parent_uuid: str | None = None
    """The row that a message follows; null for the first message and for system rows."""
    is_sidechain: bool
    """Whether the row belongs to a side conversation; false in an export."""
    user_type: str
    """`external` in an export."""
    cwd: str
    """Folder in which the agent worked."""
    session_id: str
    """The session, or the attempt if no session began."""
    version: str
    """Version of the agent."""
    git_branch: str
    """Empty in an export: Proctor does not record it."""
    type: Literal["system", "assistant"]
    """Whether the row is a message."""
    uuid: str
    """Id of the row, the same each time an attempt is exported."""
    timestamp: str
    """Time of the row, ISO 8601 in UTC."""


class SystemRow(Row, frozen=True, kw_only=True):
    """A row that is not a message. `subtype` names its kind."""

    subtype: str
    """Kind of the row, one of `SYSTEM_ROWS`."""
    level: str
    """`info` or `warning`."""
    is_meta: bool = False
    """False in an export."""
    content: str
    """The row as a sentence."""


class StatusRow(SystemRow, frozen=True, kw_only=True):
    """The thread started or ended."""

    codex_native_thread_status: str
    """State of the thread: `running`, `completed`, `interrupted`, `abandoned` or `failed`."""
    codex_native_thread_id: str
    """The agent's id of the thread; empty if none began."""


class WarningRow(SystemRow, frozen=True, kw_only=True):
    """A warning of the agent."""

    codex_native_warning_source: str
    """What warned."""
    codex_native_thread_id: str | msgspec.UnsetType = msgspec.UNSET
    """The agent's id of the thread; absent if none began."""


class SummaryRow(SystemRow, frozen=True, kw_only=True):
    """The summary at the end of an attempt.

    `proctor_history_completeness` is an addition with the exact value that Proctor recorded; other readers ignore it.
    """

    codex_native_thread_id: str
    """The agent's id of the thread; empty if none began."""
    codex_native_completion_policy: str
    """Whether the agent kept the thread."""
    codex_native_history_completeness: str
    """How complete the history is, in the values of this format."""
    codex_native_final_usage_authority: str
    """Who reported the tokens."""
    codex_native_executable_path: str | msgspec.UnsetType = msgspec.UNSET
    """Path of the program; absent in an export."""
    codex_native_executable_source: str
    """How the program was found."""
    codex_native_executable_version: str | None
    """Version of the program; null if unknown."""
    proctor_history_completeness: str | msgspec.UnsetType = msgspec.UNSET
    """How complete the history is, as Proctor recorded it."""


class TextBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One block of a message."""

    type: Literal["text"] = "text"
    """Kind of the block."""
    text: str
    """The text."""


class MessageUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a message. Unlike in Proctor's own files, `input_tokens` excludes cached input."""

    input_tokens: int
    """Input that was not cached."""
    cache_read_input_tokens: int
    """Input that was read from the cache."""
    output_tokens: int
    """Output."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the assistant."""

    role: Literal["assistant"] = "assistant"
    """Author of the message."""
    model: str
    """The model; `<unknown>` if not known."""
    id: str
    """Id of the message."""
    type: Literal["message"] = "message"
    """Kind of the object."""
    stop_reason: str | None = "end_turn"
    """Why the message ended."""
    stop_sequence: str | None = None
    """Null in an export."""
    usage: MessageUsage | msgspec.UnsetType = msgspec.UNSET
    """Tokens of the whole attempt, on its last message."""
    content: tuple[TextBlock, ...]
    """The text, as one block."""


class AssistantRow(Row, frozen=True, kw_only=True):
    """A row with one message of the assistant."""

    request_id: str
    """Id of the request that the message answers."""
    message: Message
    """The message."""


SYSTEM_ROWS: dict[str, type[SystemRow]] = {STATUS: StatusRow, WARNING: WarningRow, SUMMARY: SummaryRow}

_SHOWN_CHARS = 60


class SkippedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is not a valid row."""

    line: int
    """Number of the line, counted from 1."""
    reason: str
    """What is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexNative:
    """The content of a file of `codex_native_*` rows."""

    rows: tuple[Row, ...]
    skipped: tuple[SkippedLine, ...]


def read_codex_native(path: Path) -> CodexNative:
    """Return every valid row, and for every other line its number and what is wrong with it.

    Raises EvidenceError if the file cannot be read.
    """
    rows: list[Row] = []
    skipped: list[SkippedLine] = []
    try:
        with open_regular(path) as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                try:
                    if not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES:
                        _skip_line(file)
                        raise ValueError(f"longer than {MAX_LINE_BYTES} bytes")
                    rows.append(_decode_row(line))
                except (ValueError, RecursionError) as error:
                    skipped.append(SkippedLine(line=number, reason=str(error)))
    except OSError as error:
        raise unreadable(error, path=path) from error
    return CodexNative(rows=tuple(rows), skipped=tuple(skipped))


def _skip_line(file: io.BufferedReader) -> None:
    """Read the rest of a line without keeping it."""
    while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def _decode_row(line: bytes) -> Row:
    """Decode one line. Raises ValueError, of which msgspec's errors are subclasses, if it is not a valid row."""
    if not line.strip():
        raise ValueError("empty")
    try:
        value = decoding.decode(line)
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8") from error
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    kind, subtype = value.get("type"), value.get("subtype")
    row: Row
    if kind == "assistant":
        row = decoding.convert(value, AssistantRow)
    elif kind == "system" and isinstance(subtype, str) and subtype in SYSTEM_ROWS:
        row = decoding.convert(value, SYSTEM_ROWS[subtype])
    else:
        raise ValueError(f"not a codex_native row: type {_shown(kind)}, subtype {_shown(subtype)}")
    if not row.uuid:
        raise ValueError("no uuid")
    try:
        datetime.fromisoformat(row.timestamp)
    except ValueError as error:
        raise ValueError(f"timestamp {_shown(row.timestamp)} is not a time") from error
    return row


def _shown(value: object) -> str:
    return repr(value)[:_SHOWN_CHARS]
