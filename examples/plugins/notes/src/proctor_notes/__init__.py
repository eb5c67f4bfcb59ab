"""A context engine that reminds an agent of what it was asked before, and records the calls that it gets.

A note is the first line of a prompt. The notes of a session are in `notes.db`. What Proctor called, in which order, is
in `calls.jsonl`: one JSON object per line, with numbers and ids, and nothing of what was said.
"""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from proctor.context.budget import estimate_messages
from proctor.context.engine import (
    AssembleResult,
    CommitResult,
    CompactResult,
    CompactStatus,
    EngineContext,
    EngineInfo,
    EngineSetup,
    ForgetReason,
    MaintainReason,
    TurnCommit,
)
from proctor.context.history import History
from proctor.context.payload import json_text
from proctor.errors import InputError
from proctor.event.message import Message, SummaryPart, UserPart
from proctor.ids import EntryId

INFO: Final = EngineInfo(id="notes", name="Notes of what was asked", version="0.1.0")

DEFAULT_LINE_CHARS: Final = 100
MOST_CALLS: Final = 1_000

# Texts are stored as bytes: SQLite takes no lone surrogates, which a prompt may have.
_SCHEMA: Final = """
create table if not exists note (id text primary key, line blob not null, is_tainted integer not null) strict;
create table if not exists turn (key text primary key, sha256 text not null) strict;
"""


class NotesEngine:
    """Assembles one summary: the first lines of the newest prompts that fit, oldest first."""

    info = INFO

    def __init__(self, folder: Path, *, line_chars: int) -> None:
        self._database = folder / "notes.db"
        self._calls = folder / "calls.jsonl"
        self._line_chars = line_chars
        self._lock = threading.Lock()

    def bootstrap(self, ctx: EngineContext, history: History) -> None:
        self._record("bootstrap", entries=len(history))
        notes = []
        for message in history:
            if ctx.cancel.is_set:  # nothing is written if the session no longer waits
                return
            notes += self._notes_of([message])
        with self._transaction() as connection:
            _add_notes(connection, notes)

    def assemble(self, ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
        self._record("assemble", entries=len(history), prompt=prompt.id)
        with self._transaction() as connection:
            rows = connection.execute("select id, line, is_tainted from note").fetchall()
        # The history decides on the order, and on what belongs to it: a reset begins a new one.
        notes = [(history.position(EntryId(id_)), id_, line, is_tainted) for id_, line, is_tainted in rows]
        ordered = sorted((note for note in notes if note[0] is not None), reverse=True)
        summary: Message | None = None
        for count in range(1, len(ordered) + 1):
            longer = _summary(ordered[count - 1 :: -1])
            if estimate_messages([longer], ratio=ctx.ratio).tokens > ctx.budget.history:
                break
            summary = longer
        messages = () if summary is None else (summary,)
        tokens = estimate_messages(messages, ratio=ctx.ratio).tokens
        return AssembleResult(messages=messages, estimated_tokens=tokens)

    def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        said = json_text([[message.id, message.part, message.is_tainted] for message in turn.messages])
        sha256 = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
        with self._transaction() as connection:
            known = connection.execute("select sha256 from turn where key = ?", (turn.key,)).fetchone()
            if known is not None and known[0] != sha256:
                raise ValueError(f"turn {turn.key} was committed with other messages")
            if known is None:
                connection.execute("insert into turn values (?, ?)", (turn.key, sha256))
                _add_notes(connection, self._notes_of(turn.messages))
        answer: CommitResult = "committed" if known is None else "duplicate"
        self._record("commit_turn", key=turn.key, entries=len(turn.messages), answer=answer)
        return answer

    def maintain(self, ctx: EngineContext, reason: MaintainReason) -> None:
        self._record("maintain", reason=reason)
        with self._lock:
            calls = self._calls.read_text().splitlines(keepends=True)
            if len(calls) > MOST_CALLS:
                self._calls.write_text("".join(calls[-MOST_CALLS // 2 :]))

    def compact(
        self, ctx: EngineContext, *, force: bool, target: Literal["budget", "threshold"], focus: str | None
    ) -> CompactResult:
        return CompactResult(status=CompactStatus.NOT_NEEDED, reason="notes have one line each")

    def forget(self, ctx: EngineContext, reason: ForgetReason) -> None:
        # Deleted rows would stay in free pages of the file.
        for path in (self._database, self._calls):
            path.unlink(missing_ok=True)
        self._record("forget", reason=reason)

    def close(self) -> None:
        self._record("close")

    def _notes_of(self, messages: Iterable[Message]) -> list[tuple[str, bytes, bool]]:
        return [
            (message.id, _first_line(message.part.text, self._line_chars), message.is_tainted)
            for message in messages
            if isinstance(message.part, UserPart) and message.part.text.strip()
        ]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection. What is executed on it is on the disk when the block has ended, or not at all."""
        with closing(sqlite3.connect(self._database, isolation_level=None)) as connection:
            connection.execute("pragma synchronous = full")
            connection.executescript(_SCHEMA)
            connection.execute("begin immediate")
            yield connection
            connection.execute("commit")

    def _record(self, method: str, **facts: Any) -> None:
        with self._lock, self._calls.open("a") as file:
            file.write(json.dumps({"method": method, **facts}) + "\n")


def create(setup: EngineSetup) -> NotesEngine:
    """Create the engine. Its option `line_chars` is the length of a note; `citations` has no effect."""
    for name in setup.options:
        if name not in ("line_chars", "citations"):
            raise InputError("engine.options", f"unknown option `{name}`; the options are: line_chars, citations")
    line_chars = setup.options.get("line_chars", DEFAULT_LINE_CHARS)
    if not isinstance(line_chars, int) or line_chars < 1:
        raise InputError("engine.options", f"`line_chars` is {line_chars!r}, not a positive number")
    return NotesEngine(setup.folder, line_chars=line_chars)


def _add_notes(connection: sqlite3.Connection, notes: Iterable[tuple[str, bytes, bool]]) -> None:
    # An entry may arrive both by a bootstrap and by a commit. Its id is the same.
    connection.executemany("insert or ignore into note values (?, ?, ?)", notes)


def _first_line(text: str, most_chars: int) -> bytes:
    line = text.strip().splitlines()[0]
    return line[:most_chars].encode("utf-8", "surrogatepass")


def _summary(notes: Iterable[tuple[int | None, str, bytes, bool]]) -> Message:
    """Return the message with these notes. Its id and text depend on nothing else."""
    chosen = list(notes)
    lines = [line.decode("utf-8", "surrogatepass") for _, _, line, _ in chosen]
    sources = tuple(EntryId(id_) for _, id_, _, _ in chosen)
    return Message(
        id=EntryId("notes-" + hashlib.sha256("\n".join(sources).encode()).hexdigest()[:32]),
        at_ms=0,
        part=SummaryPart(text="\n".join(["The user asked before:", *(f"- {line}" for line in lines)]), sources=sources),
        is_tainted=any(is_tainted for _, _, _, is_tainted in chosen),
    )
