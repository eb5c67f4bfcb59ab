"""proofs.db: what a runtime has shown of its claims, on which program, when, and to which Proctor."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from proctor.errors import MachineError
from proctor.evidence.disk import make_folder
from proctor.ids import StrategyId

NAME = "proofs.db"
VERSION = 1
# "PRCP": how the file says whose it is.
APPLICATION = 0x50524350
BUSY_S = 10.0

_SCHEMA = f"""
begin;
create table proof (strategy text not null, transport text not null, isolation text not null, subject text not null,
                    version text, "case" text not null, result text not null, what text, at_ms integer not null,
                    proctor text not null) strict;
create index proof_subject on proof (strategy, transport, subject);
pragma application_id = {APPLICATION};
pragma user_version = {VERSION};
commit;
"""


class ProofRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of one case. `subject` is the sha256 of the program, or of what stands for it."""

    strategy: StrategyId
    transport: str
    isolation: str
    subject: str
    version: str | None
    case: str
    result: str
    what: str | None
    at_ms: int
    proctor: str


_COLUMNS = ", ".join(f'"{name}"' for name in ProofRow.__struct_fields__)
_PLACES = ", ".join("?" for _ in ProofRow.__struct_fields__)


def add_proofs(root: Path, rows: Iterable[ProofRow]) -> None:
    """All of them or none, below that evidence root. MachineError where they cannot be kept."""
    path = root / NAME
    if not root.is_dir():
        make_folder(root)
    with _open(path) as connection:
        if not connection.execute("select count(*) from sqlite_master").fetchone()[0]:
            connection.executescript(_SCHEMA)
        connection.execute("begin immediate")
        values = [msgspec.structs.astuple(row) for row in rows]
        connection.executemany(f"insert into proof ({_COLUMNS}) values ({_PLACES})", values)  # noqa: S608
        connection.execute("commit")


def read_proofs(root: Path) -> tuple[ProofRow, ...]:
    """In the order in which they were made; none where there never was one."""
    path = root / NAME
    if not path.exists():
        return ()
    with _open(path) as connection:
        rows = connection.execute(f"select {_COLUMNS} from proof order by rowid").fetchall()  # noqa: S608
    return tuple(ProofRow(**dict(zip(ProofRow.__struct_fields__, row, strict=True))) for row in rows)


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)) as connection:
            _refuse_others(connection, path)
            yield connection
    except sqlite3.Error as error:
        raise MachineError("machine.proofs", str(error), file=str(path)) from error


def _refuse_others(connection: sqlite3.Connection, path: Path) -> None:
    """Looked at before anything is changed: it may be somebody else's."""
    [tables] = connection.execute("select count(*) from sqlite_master").fetchone()
    [application] = connection.execute("pragma application_id").fetchone()
    [version] = connection.execute("pragma user_version").fetchone()
    if tables and application != APPLICATION:
        raise MachineError("machine.proofs", "a database of something else", file=str(path))
    if version > VERSION:
        raise MachineError("machine.proofs", f"of version {version}; this Proctor knows {VERSION}", file=str(path))
