"""proofs.db: the results of conformance cases, which prove or refute a runtime's declared capabilities."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from proctor.evidence.database import Database
from proctor.evidence.disk import make_folder
from proctor.ids import RuntimeId

NAME: Final = "proofs.db"
VERSION: Final = 1

DATABASE: Final = Database(
    application=0x50524350,  # "PRCP"
    version=VERSION,
    schema="""
create table proof (runtime_id text not null, transport text not null, isolation text not null, subject text not null,
                    version text, "case" text not null, result text not null, what text, at_ms integer not null,
                    proctor text not null) strict;
create index proof_subject on proof (runtime_id, transport, subject);
""",
    code="machine.proofs",
    synchronous="full",
)


class Result(StrEnum):
    """The result of one case."""

    PASSED = "passed"
    FAILED = "failed"
    REFUSED = "refused"
    """The runtime does not declare the capability. A request for it, where possible, was refused with a typed error."""
    NOT_APPLICABLE = "not applicable"
    """The case cannot be run on this runtime. This is never a pass."""


class ProofRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of one conformance case."""

    runtime_id: RuntimeId
    """Id of the runtime."""
    transport: str
    """Transport that was tested."""
    isolation: str
    """Isolation mode that was tested. Empty if unknown."""
    subject: str
    """SHA-256 of the program that was tested, or of whatever identifies the runtime instead. Empty if unknown."""
    version: str | None
    """Version that the program reports. Null if it reports none."""
    case: str
    """Name of the case."""
    result: str
    """`passed`, `failed`, `refused` or `not applicable`."""
    what: str | None
    """Explanation of the result. Null if it needs none."""
    at_ms: int
    """Wall-clock time of the test, in milliseconds since the epoch."""
    proctor: str
    """Version of Proctor that ran the case."""


_COLUMNS = ", ".join(f'"{name}"' for name in ProofRow.__struct_fields__)
_PLACES = ", ".join("?" for _ in ProofRow.__struct_fields__)


def add_proofs(folder: Path, rows: Iterable[ProofRow]) -> None:
    """Append rows to proofs.db in a folder, in one transaction. It belongs in the user's state folder.

    Raises MachineError if they cannot be written.
    """
    if not folder.is_dir():
        make_folder(folder)
    with DATABASE.open(folder / NAME) as connection:
        connection.execute("begin immediate")
        values = [msgspec.structs.astuple(row) for row in rows]
        connection.executemany(f"insert into proof ({_COLUMNS}) values ({_PLACES})", values)  # noqa: S608
        connection.execute("commit")


def read_proofs(folder: Path) -> tuple[ProofRow, ...]:
    """Return all rows in the order in which they were added; none if the file is absent.

    Raises MachineError if the file cannot be read.
    """
    path = folder / NAME
    if not path.exists():
        return ()
    with DATABASE.read(path) as connection:
        if not connection.execute("select count(*) from sqlite_master").fetchone()[0]:
            return ()
        rows = connection.execute(f"select {_COLUMNS} from proof order by rowid").fetchall()  # noqa: S608
    return tuple(ProofRow(**dict(zip(ProofRow.__struct_fields__, row, strict=True))) for row in rows)
