"""The `codex_native_*` rows of a Claude-style session log, and a strict reader of them."""

import io
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from proctor.evidence.disk import open_regular, unreadable
from proctor.evidence.reader import MAX_LINE_BYTES

STATUS = "codex_native_thread_status"
WARNING = "codex_native_warning"
SUMMARY = "codex_native_execution_summary"


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """The envelope that all rows have."""

    parent_uuid: str | None = None
    is_sidechain: bool
    user_type: str
    cwd: str
    session_id: str
    version: str
    git_branch: str
    type: Literal["system", "assistant"]
    uuid: str
    timestamp: str


class System(Row, frozen=True, kw_only=True):
    subtype: str
    level: str
    is_meta: bool = False
    content: str


class StatusRow(System, frozen=True, kw_only=True):
    codex_native_thread_status: str
    codex_native_thread_id: str


class WarningRow(System, frozen=True, kw_only=True):
    codex_native_warning_source: str
    codex_native_thread_id: str | msgspec.UnsetType = msgspec.UNSET


class SummaryRow(System, frozen=True, kw_only=True):
    """`proctor_history_completeness` is our own word, which says more; other readers pass over it."""

    codex_native_thread_id: str
    codex_native_completion_policy: str
    codex_native_history_completeness: str
    codex_native_final_usage_authority: str
    codex_native_executable_path: str | msgspec.UnsetType = msgspec.UNSET
    codex_native_executable_source: str
    codex_native_executable_version: str | None
    proctor_history_completeness: str | msgspec.UnsetType = msgspec.UNSET


class Text(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["text"] = "text"
    text: str


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What is read from the cache is not a part of the input here."""

    input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class Message(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    model: str
    id: str
    type: Literal["message"] = "message"
    stop_reason: str | None = "end_turn"
    stop_sequence: str | None = None
    usage: Spent | msgspec.UnsetType = msgspec.UNSET
    content: tuple[Text, ...]


class AssistantRow(Row, frozen=True, kw_only=True):
    request_id: str
    message: Message


SYSTEM_ROWS: dict[str, type[System]] = {STATUS: StatusRow, WARNING: WarningRow, SUMMARY: SummaryRow}

_SHOWN_CHARS = 60


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A line that gives no row, and why."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexNative:
    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]


def read_codex_native(path: Path) -> CodexNative:
    """Every row that is good, and of every other line its number and what is wrong. EvidenceError for no such file."""
    rows: list[Row] = []
    skipped: list[Skipped] = []
    try:
        with open_regular(path) as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                try:
                    if not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES:
                        _pass_over(file)
                        raise ValueError(f"longer than {MAX_LINE_BYTES} bytes")
                    rows.append(_row(line))
                except (ValueError, RecursionError) as error:
                    skipped.append(Skipped(line=number, reason=str(error)))
    except OSError as error:
        raise unreadable(error, path=path) from error
    return CodexNative(rows=tuple(rows), skipped=tuple(skipped))


def _pass_over(file: io.BufferedReader) -> None:
    while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def _row(line: bytes) -> Row:
    """ValueError, of which msgspec's are, with what is wrong."""
    if not line.strip():
        raise ValueError("empty")
    try:
        value = msgspec.json.decode(line)
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8") from error
    if not isinstance(value, dict):
        raise ValueError(f"not an object but {type(value).__name__}")
    kind, subtype = value.get("type"), value.get("subtype")
    row: Row
    if kind == "assistant":
        row = msgspec.convert(value, AssistantRow)
    elif kind == "system" and isinstance(subtype, str) and subtype in SYSTEM_ROWS:
        row = msgspec.convert(value, SYSTEM_ROWS[subtype])
    else:
        raise ValueError(f"no row of these: type {_shown(kind)}, subtype {_shown(subtype)}")
    if not row.uuid:
        raise ValueError("no uuid")
    try:
        datetime.fromisoformat(row.timestamp)
    except ValueError as error:
        raise ValueError(f"timestamp {_shown(row.timestamp)} is no time") from error
    return row


def _shown(value: object) -> str:
    return repr(value)[:_SHOWN_CHARS]
