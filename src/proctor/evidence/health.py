"""health.db: counts of starts and crashes of the agents' programs, over all runs of an evidence root."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from proctor import decoding
from proctor.errors import MachineError, disk_error
from proctor.evidence.database import Database
from proctor.ids import RuntimeId

DEGRADED_AFTER: Final = 3
"""Number of failed starts in a row after which a program counts as degraded."""
DEGRADED_FOR_MS: Final = 60 * 60 * 1000
"""Window in which those starts must lie, in milliseconds."""

VERSION: Final = 1

DATABASE: Final = Database(
    application=0x50524348,  # "PRCH"
    version=VERSION,
    schema="""
create table program (runtime_id text not null, sha256 text not null, starts integer not null,
                   failed_starts integer not null, crashes integer not null, last_code text,
                   last_at_ms integer not null, primary key (runtime_id, sha256)) strict, without rowid;
create table start (n integer primary key, runtime_id text not null, sha256 text not null, at_ms integer not null,
                    code text) strict;
create index start_program on start (runtime_id, sha256, n);
""",
    code="machine.health",
    # Losing the last counts in a power cut is acceptable.
    synchronous="normal",
)


_PROGRAMS: Final = """
select runtime_id, sha256, starts, failed_starts, crashes, last_code, last_at_ms from program order by 1, 2
"""


class ProgramKey(NamedTuple):
    """Key of the counts: a runtime together with the exact program it ran."""

    runtime_id: RuntimeId
    """Id of the runtime."""
    sha256: str
    """SHA-256 of the program file, as hex. Empty if the runtime has no program file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEvent:
    """One start of a program, or one crash after a start."""

    program: ProgramKey
    """The program."""
    at_ms: int
    """Wall-clock time, in milliseconds since the epoch."""
    code: str | None = None
    """Error code of a crash or of a failed start. Null for a good start."""
    is_crash: bool = False
    """Whether this is a crash rather than a start."""


class ProgramHealth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Counts of one program."""

    runtime_id: RuntimeId
    """Id of the runtime."""
    sha256: str
    """SHA-256 of the program file, as hex. Empty if the runtime has no program file."""
    starts: int
    """Number of times the program was started, failed starts included. Attempts that share a process share its start.
    """
    failed_starts: int
    """Number of failed starts."""
    crashes: int
    """Number of processes that crashed after their start."""
    last_code: str | None
    """Error code of the last failed start or crash. Null if there was none."""
    last_at_ms: int
    """Wall-clock time of the last start or crash, in milliseconds since the epoch."""
    failing_since_ms: int | None = None
    """If the last 3 starts all failed: wall-clock time of the first of them, in milliseconds since the epoch. Else
    null."""

    def is_degraded(self, *, now_ms: int) -> bool:
        """Whether the last `DEGRADED_AFTER` starts all failed within the last `DEGRADED_FOR_MS`."""
        return self.failing_since_ms is not None and self.failing_since_ms > now_ms - DEGRADED_FOR_MS


def read_health(path: Path) -> Mapping[ProgramKey, ProgramHealth]:
    """Return the counts of every program that ever started; none if the file is absent.

    Raises MachineError if the file cannot be read.
    """
    if not path.is_file():
        return {}
    with DATABASE.read(path) as connection:
        if not connection.execute("select count(*) from sqlite_master").fetchone()[0]:
            return {}
        programs = connection.execute(_PROGRAMS).fetchall()
        starts = connection.execute("select runtime_id, sha256, at_ms, code from start order by n").fetchall()
    try:
        # The file may have been written by another program, so every value is checked.
        return _fold(decoding.convert(programs, list[_Program]), decoding.convert(starts, list[_Start]))
    except msgspec.ValidationError as error:
        raise MachineError(DATABASE.code, str(error), file=str(path)) from error


class _Program(msgspec.Struct, frozen=True, array_like=True):
    runtime_id: RuntimeId
    sha256: str
    starts: int
    failed_starts: int
    crashes: int
    last_code: str | None
    last_at_ms: int


class _Start(msgspec.Struct, frozen=True, array_like=True):
    runtime_id: RuntimeId
    sha256: str
    at_ms: int
    code: str | None


def _fold(programs: Sequence[_Program], starts: Sequence[_Start]) -> Mapping[ProgramKey, ProgramHealth]:
    health: dict[ProgramKey, ProgramHealth] = {}
    for program in programs:
        last = [each for each in starts if (each.runtime_id, each.sha256) == (program.runtime_id, program.sha256)]
        is_failing = len(last) >= DEGRADED_AFTER and all(each.code is not None for each in last)
        since_ms = last[-DEGRADED_AFTER].at_ms if is_failing else None
        counts = msgspec.structs.asdict(program)
        health[ProgramKey(program.runtime_id, program.sha256)] = ProgramHealth(**counts, failing_since_ms=since_ms)
    return health


def write_health(path: Path, events: Sequence[ProgramEvent]) -> None:
    """Add events to the counts in one transaction. Several Proctor processes may do so at once.

    Raises MachineError if the file cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, path=path) from error
    programs: dict[ProgramKey, list[ProgramEvent]] = {}
    for each in events:
        programs.setdefault(each.program, []).append(each)
    with DATABASE.open(path) as connection:
        connection.execute("begin immediate")
        for program, program_events in programs.items():
            _add(connection, program, program_events)
        connection.execute("commit")


def _add(connection: sqlite3.Connection, program: ProgramKey, events: Sequence[ProgramEvent]) -> None:
    starts = [each for each in events if not each.is_crash]
    failed = [each for each in starts if each.code is not None]
    codes = [each.code for each in events if each.code is not None]
    connection.execute(
        """insert into program values (?, ?, ?, ?, ?, ?, ?) on conflict do update set
           starts = starts + excluded.starts, failed_starts = failed_starts + excluded.failed_starts,
           crashes = crashes + excluded.crashes, last_code = coalesce(excluded.last_code, last_code),
           last_at_ms = max(last_at_ms, excluded.last_at_ms)""",
        (
            *program,
            len(starts),
            len(failed),
            len(events) - len(starts),
            codes[-1] if codes else None,
            max(each.at_ms for each in events),
        ),
    )
    connection.executemany(
        "insert into start (runtime_id, sha256, at_ms, code) values (?, ?, ?, ?)",
        [(*program, each.at_ms, each.code) for each in starts[-DEGRADED_AFTER:]],
    )
    connection.execute(
        """delete from start where runtime_id = ? and sha256 = ? and n not in
           (select n from start where runtime_id = ? and sha256 = ? order by n desc limit ?)""",
        (*program, *program, DEGRADED_AFTER),
    )
