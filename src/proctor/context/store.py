"""session.db: the mirror, the turns and the thread of one session. The holder of the session's lock writes it."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from proctor import decoding
from proctor.context.model import (
    Binding,
    RecordedTurn,
    SessionSetup,
    SessionTurn,
    Sitting,
    SittingState,
    TurnState,
)
from proctor.context.thread_fold import HeldChange
from proctor.context.word_query import fts_query
from proctor.errors import EngineError, EvidenceError, MachineError
from proctor.event.message import CallPart, Message, Part, ResultPart, SummaryPart, UserPart
from proctor.event.model import TurnCommitted
from proctor.event.row import CommitStatus
from proctor.evidence.database import REFUSALS, Database, transaction
from proctor.ids import EntryId

VERSION: Final = 1

DATABASE: Final = Database(
    application=0x50524353,  # "PRCS"
    version=VERSION,
    # Numbers of turns and entries follow the order of the record. The index of words stores no text a second time,
    # and no positions of words, which would be two thirds of it.
    schema="""
create table session (one integer primary key check (one = 1), setup blob not null, binding blob,
                      revision integer not null default 0) strict;
create table sitting (n integer primary key, run_id text not null, attempt_id text not null, sitting blob not null,
                      unique (run_id, attempt_id)) strict;
create table turn (n integer primary key, id text not null unique, turn blob not null) strict;
create table entry (n integer primary key, id text not null unique, turn integer not null references turn,
                    message blob not null) strict;
create index entry_turn on entry (turn);
create virtual table entry_words using fts5 (words, content = '', detail = none, columnsize = 0);
create table replacement (id text primary key, message blob not null) strict, without rowid;
create table held (id text primary key) strict, without rowid;
create table turn_commit (turn integer primary key references turn, engine text not null, state text not null,
                          failures integer not null default 0, detail text) strict;
insert into session (one, setup) values (1, x'7b7d')
""",
    code="session.damaged",
    # A turn that was reported as kept must survive a power cut.
    synchronous="full",
)

# A commit that is not acknowledged is stored apart from the turn, which is as the record shows it.
_TURNS: Final = (
    "select turn.turn, turn_commit.state, turn_commit.detail from turn left join turn_commit on turn_commit.turn = n"
)
# SQLite takes at least 999 values in one statement.
_MOST_VALUES: Final = 900

_encode = msgspec.json.Encoder().encode
_setup = decoding.json_decoder(SessionSetup)
_binding = decoding.json_decoder(Binding)
_sitting = decoding.json_decoder(Sitting)
_turn = decoding.json_decoder(SessionTurn)
_message = decoding.json_decoder(Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedTurn:
    """A completed turn that the context engine does not have yet."""

    n: int
    id: EntryId
    engine: str
    failures: int


class SessionStore:
    """The tables of one session.db. Every method is one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    # ── the session ──

    @property
    def setup(self) -> SessionSetup:
        setup, _, _ = self._session()
        return _setup(setup)

    def write_setup(self, setup: SessionSetup) -> None:
        self._connection.execute("update session set setup = ?", (_encode(setup),))

    @property
    def binding(self) -> tuple[Binding | None, int]:
        """What is known of the native thread, and its revision, which every change increases."""
        _, binding, revision = self._session()
        return None if binding is None else _binding(binding), revision

    def _session(self) -> tuple[bytes, bytes | None, int]:
        row: tuple[bytes, bytes | None, int] | None = self._connection.execute(
            "select setup, binding, revision from session"
        ).fetchone()
        if row is None:
            raise MachineError(DATABASE.code, "the row of the session is missing")
        return row

    def bind(self, binding: Binding | None, *, revision: int, changes: Iterable[HeldChange] = ()) -> int:
        """Replace the binding of this revision, change what its thread holds, and return the new revision.

        Raises MachineError if another change came first: a stale holder must not overwrite its successor's binding.
        """
        with transaction(self._connection):
            self._bind(binding, revision=revision)
            for change in changes:
                self._hold(change)
        return revision + 1

    def held_of(self, ids: Iterable[EntryId]) -> frozenset[EntryId]:
        """Return which of these entries the native thread holds."""
        wanted = list(dict.fromkeys(ids))
        found: set[EntryId] = set()
        for at in range(0, len(wanted), _MOST_VALUES):
            some = wanted[at : at + _MOST_VALUES]
            marks = ",".join("?" * len(some))
            rows = self._connection.execute(f"select id from held where id in ({marks})", some)  # noqa: S608
            found.update(EntryId(id_) for (id_,) in rows)
        return frozenset(found)

    def _hold(self, change: HeldChange) -> None:
        match change.do:
            case "clear":
                self._connection.execute("delete from held")
            case "add":
                self._connection.executemany(
                    "insert or ignore into held (id) values (?)", ((id_,) for id_ in change.entries)
                )
            case "keep-prompts":
                kept = list(self._newest_prompts(change.most_tokens))
                self._connection.execute("delete from held")
                self._connection.executemany("insert into held (id) values (?)", ((id_,) for id_ in kept))

    def _newest_prompts(self, most_tokens: int | None) -> Iterator[str]:
        """Yield the prompts and steers that the thread holds, the newest first, until the next would be cut."""
        rows = self._connection.execute(
            "select entry.id, message from entry join held on held.id = entry.id"
            " where json_extract(cast(message as text), '$.part.type') = ? order by n desc",
            (UserPart.__struct_config__.tag,),
        )
        tokens = 0
        for id_, row in rows:
            tokens += -(-len(words_of(_message(row)).encode("utf-8", "surrogatepass")) // 4)
            if most_tokens is not None and tokens > most_tokens:
                return
            yield id_

    def reset(self, *, ending: Sitting | None = None) -> None:
        """Begin a new history: earlier turns stay in the mirror, but neither the engine nor an agent gets them.

        `ending` is the sitting that is open, if any. It is closed in the same change: settled after a crash, its record
        would bring its thread back.
        """
        with transaction(self._connection):
            _, revision = self.binding
            self._bind(None, revision=revision)
            self._hold(HeldChange(do="clear"))
            self.write_setup(replace(self.setup, history_after=self._last("turn")))
            if ending is not None:
                self.close_sitting(ending)

    def _bind(self, binding: Binding | None, *, revision: int) -> None:
        done = self._connection.execute(
            "update session set binding = ?, revision = revision + 1 where revision = ?",
            (None if binding is None else _encode(binding), revision),
        )
        if done.rowcount != 1:
            raise MachineError("session.stale", "another holder has changed the session's thread since it was read")

    # ── sittings ──

    def begin_sitting(self, sitting: Sitting) -> None:
        """Add a sitting, which is open."""
        self._connection.execute(
            "insert into sitting (n, run_id, attempt_id, sitting) values (?, ?, ?, ?)",
            (sitting.n, sitting.run_id, sitting.attempt_id, _encode(sitting)),
        )

    def close_sitting(self, sitting: Sitting) -> None:
        """Note that a sitting is over and that its turns are settled."""
        closed = replace(sitting, state=SittingState.CLOSED)
        self._connection.execute("update sitting set sitting = ? where n = ?", (_encode(closed), sitting.n))

    def take_over_sittings(self) -> None:
        """Mark all sittings as those of the session that this one was forked from."""
        with transaction(self._connection):
            for each in self.sittings():
                foreign = replace(each, is_foreign=True, state=SittingState.CLOSED)
                self._connection.execute("update sitting set sitting = ? where n = ?", (_encode(foreign), each.n))

    def sittings(self) -> tuple[Sitting, ...]:
        """Return all sittings, oldest first."""
        return tuple(_sitting(row) for (row,) in self._connection.execute("select sitting from sitting order by n"))

    def next_sitting(self) -> int:
        return self._last("sitting") + 1

    def next_turn(self) -> int:
        return self._last("turn") + 1

    def _last(self, table: str) -> int:
        [last] = self._connection.execute(f"select coalesce(max(n), 0) from {table}").fetchone()  # noqa: S608
        return int(last)

    # ── turns ──

    def admit(self, turn: RecordedTurn, *, sitting: Sitting) -> None:
        """Note a turn that is about to be requested from the agent. Its ending does not count yet."""
        with transaction(self._connection):
            self._insert_turn(turn, TurnState.ADMITTED, sitting)

    def settle(self, turn: RecordedTurn, *, sitting: Sitting) -> bool:
        """Write how a turn ended, and its entries if it completed. Returns False if it was settled before."""
        with transaction(self._connection):
            known = self.turn(turn.id)
            if known is not None and known.state is not TurnState.ADMITTED:
                return False
            state = turn.state
            if known is None:
                n = self._insert_turn(turn, state, sitting)
            else:
                n = known.n
                row = turn_row(turn, n, state, sitting)
                self._connection.execute("update turn set turn = ? where n = ?", (_encode(row), n))
            if state is not TurnState.DISCARDED:
                self._insert_entries(turn.messages, n)
                if turn.context is not None and turn.kind == "prompt":
                    self._connection.execute(
                        "insert into turn_commit (turn, engine, state) values (?, ?, ?)",
                        (n, turn.context.engine, TurnState.ACCEPTED),
                    )
        return True

    def turn(self, id_: EntryId) -> SessionTurn | None:
        """Return the turn with this id."""
        row = self._connection.execute(f"{_TURNS} where id = ?", (id_,)).fetchone()
        return None if row is None else _committed(*row)

    def turns(self) -> tuple[SessionTurn, ...]:
        """Return all turns, oldest first."""
        return tuple(_committed(*row) for row in self._connection.execute(f"{_TURNS} order by n"))

    def has_history(self) -> bool:
        """Return whether something was said since the session was created or reset."""
        after = self.setup.history_after
        return self._connection.execute("select 1 from entry where turn > ? limit 1", (after,)).fetchone() is not None

    # ── what the context engine has ──

    def uncommitted(self, *, most: int) -> tuple[QueuedTurn, ...]:
        """Return the completed turns that an engine was to take in and has not, oldest first, without blocked ones."""
        rows = self._connection.execute(
            "select n, id, engine, failures from turn_commit join turn on turn.n = turn_commit.turn"
            " where state in (?, ?) order by n limit ?",
            (TurnState.ACCEPTED, TurnState.READY, most),
        )
        return tuple(
            QueuedTurn(n=n, id=EntryId(id_), engine=engine, failures=failures) for n, id_, engine, failures in rows
        )

    def note_commit(self, n: int, state: TurnState, *, failures: int = 0, detail: str | None = None) -> None:
        """Note how far the commit of a completed turn has come."""
        self._connection.execute(
            "update turn_commit set state = ?, failures = ?, detail = ? where turn = ?", (state, failures, detail, n)
        )

    def queue_blocked(self, engine: str) -> None:
        """Queue the turns again that an engine failed to take in."""
        self._connection.execute(
            "update turn_commit set state = ?, failures = 0, detail = null where state = ? and engine = ?",
            (TurnState.READY, TurnState.BLOCKED, engine),
        )

    def note_recorded_commits(self, commits: Iterable[TurnCommitted]) -> None:
        """Note what the record of a sitting says of commits."""
        states = {"committed": TurnState.ACKNOWLEDGED, "blocked": TurnState.BLOCKED}
        with transaction(self._connection):
            for commit in commits:
                turn = self.turn(commit.turn)
                if turn is not None and commit.status in states:
                    self.note_commit(turn.n, states[commit.status], detail=commit.detail)

    # ── rewriting ──

    def replace_entries(self, replacements: Mapping[EntryId, Message]) -> int:
        """Store what an engine sees in place of entries, which themselves never change. Returns how many there are.

        Raises EngineError for a replacement of another kind than its entry; then none is stored.
        """
        with transaction(self._connection):
            return sum(self._replace(id_, message) for id_, message in replacements.items())

    def _replace(self, id_: EntryId, message: Message) -> bool:
        row = self._connection.execute("select message from entry where id = ?", (id_,)).fetchone()
        if row is None:
            return False
        entry = _message(row[0])
        if replace(message.part, **_free_fields(message.part)) != replace(entry.part, **_free_fields(entry.part)):
            raise EngineError(
                "engine.bad-result", f"the replacement of {id_} is another kind of message than the entry"
            )
        # The origin of what it replaces stays: it may be quoted, and never trusted more.
        kept = replace(message, at_ms=entry.at_ms, is_tainted=message.is_tainted or entry.is_tainted)
        self._connection.execute("insert or replace into replacement (id, message) values (?, ?)", (id_, _encode(kept)))
        return True

    def _insert_turn(self, turn: RecordedTurn, state: TurnState, sitting: Sitting) -> int:
        n = self.next_turn()
        row = turn_row(turn, n, state, sitting)
        self._connection.execute("insert into turn (n, id, turn) values (?, ?, ?)", (n, turn.id, _encode(row)))
        return n

    def _insert_entries(self, messages: Sequence[Message], turn: int) -> None:
        first = self._last("entry") + 1
        rows = list(enumerate(messages, first))
        self._connection.executemany(
            "insert into entry (n, id, turn, message) values (?, ?, ?, ?)",
            ((n, message.id, turn, _encode(message)) for n, message in rows),
        )
        self._connection.executemany(
            "insert into entry_words (rowid, words) values (?, ?)", ((n, words_of(message)) for n, message in rows)
        )

    # ── the mirror ──

    def messages(self, *, after_turn: int = 0, turn: int | None = None) -> Iterator[Message]:
        """Yield the entries, oldest first: of the turns after `after_turn`, or of one turn."""
        if turn is not None:
            rows = self._connection.execute("select message from entry where turn = ? order by n", (turn,))
        else:
            rows = self._connection.execute("select message from entry where turn > ? order by n", (after_turn,))
        for (row,) in rows:
            yield _message(row)

    def search(self, query: str, *, most: int) -> tuple[tuple[int, Message], ...]:
        """Return the entries that have every word of the query, newest first, each with the number of its turn."""
        words = fts_query(query)
        if not words:
            return ()
        rows = self._connection.execute(
            "select turn, message from entry_words join entry on entry.n = entry_words.rowid"
            " where entry_words match ? order by entry_words.rowid desc limit ?",
            (words, most),
        )
        return tuple((turn, _message(row)) for turn, row in rows)

    def entries_without_turn(self) -> tuple[tuple[int, EntryId], ...]:
        """Return the turn and the id of each entry of a turn that is not stored or did not complete."""
        complete = {turn.n for turn in self.turns() if turn.state.is_completed}
        rows = self._connection.execute("select turn, id from entry order by n")
        return tuple((turn, EntryId(id_)) for turn, id_ in rows if turn not in complete)

    def check_replacements(self) -> None:
        """Read everything that an engine sees in place of entries. Raises msgspec.DecodeError."""
        for (row,) in self._connection.execute("select message from replacement"):
            _message(row)

    # ── copies ──

    def copy_to(self, path: Path) -> None:
        """Copy the whole database to a file that does not exist yet. Raises sqlite3.Error."""
        target = sqlite3.connect(path, isolation_level=None)
        try:
            self._connection.backup(target)
        finally:
            target.close()


def _committed(row: bytes, state: str | None, detail: str | None) -> SessionTurn:
    """Return a stored turn, with how far its commit has come."""
    turn = _turn(row)
    if state is None or turn.context is None:
        return turn
    now = decoding.convert(state, TurnState)
    status: CommitStatus = "committed" if now is TurnState.ACKNOWLEDGED else "queued"
    status = "blocked" if now is TurnState.BLOCKED else status
    return replace(turn, state=now, context=replace(turn.context, commit=status, commit_detail=detail))


def _free_fields(part: Part) -> dict[str, Any]:
    """Return the fields that a replacement may change, blank. A call keeps its tool, and a result its call."""
    match part:
        case CallPart():
            return {"input": None}
        case ResultPart():
            return {"output": None, "cut_bytes": 0}
        case SummaryPart():
            return {"text": "", "sources": ()}
        case _:
            return {"text": ""}


def words_of(message: Message) -> str:
    """Return the text by which an entry is found."""
    match message.part:
        case CallPart(name=name, input=input_):
            return f"{name} {_encode(input_).decode()}"
        case ResultPart(output=output):
            return output or ""
        case part:
            return part.text


def turn_row(turn: RecordedTurn, n: int, state: TurnState, sitting: Sitting) -> SessionTurn:
    """Return a turn as it is stored."""
    is_over = state is not TurnState.ADMITTED
    has_outcome = is_over and turn.kind != "import"
    return SessionTurn(
        n=n,
        id=turn.id,
        sitting=sitting.n,
        runtime_id=sitting.runtime_id,
        kind=turn.kind,
        state=state,
        asked_at_ms=turn.asked_at_ms,
        outcome=turn.ending.outcome if has_outcome else None,
        code=turn.ending.code if has_outcome else None,
        detail=turn.ending.detail if has_outcome else None,
        entries=len(turn.messages) if state is TurnState.ACCEPTED else 0,
        context=turn.context,
    )


@contextmanager
def open_store(path: Path) -> Iterator[SessionStore]:
    """Open or create a session.db for writing. The caller holds the session's lock. Raises as `refusing_damage`."""
    with refusing_damage(path), DATABASE.open(path) as connection:
        yield SessionStore(connection)


@contextmanager
def read_store(path: Path) -> Iterator[SessionStore]:
    """Open an existing session.db for reading, also while it is held. Raises as `refusing_damage`."""
    refuse_missing(path)
    with refusing_damage(path), DATABASE.read(path) as connection:
        yield SessionStore(connection)


def refuse_missing(path: Path) -> None:
    """Raise EvidenceError if there is no session.db, which only a rebuild may replace."""
    if not path.exists():
        raise EvidenceError(DATABASE.code, "it does not exist", file=str(path))


@contextmanager
def refusing_damage(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into MachineErrors, or into an EvidenceError if the file is damaged or no session.db."""
    try:
        yield
    except (*REFUSALS, MachineError, msgspec.DecodeError) as error:
        if isinstance(error, msgspec.DecodeError):
            raise EvidenceError(DATABASE.code, f"a row cannot be read: {error}", file=str(path)) from error
        refusal = error if isinstance(error, MachineError) else DATABASE.refusal(error, path)
        if refusal.code != DATABASE.code:
            raise refusal from error
        raise EvidenceError(DATABASE.code, refusal.what, file=str(path)) from error
