"""proofs.db: what a runtime has shown of its claims, on which program, when, and to which Proctor."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from proctor.evidence.database import Database
from proctor.evidence.disk import make_folder
from proctor.ids import StrategyId

NAME: Final = "proofs.db"
VERSION: Final = 1

DATABASE: Final = Database(
    application=0x50524350,  # "PRCP"
    version=VERSION,
    schema="""
create table proof (strategy text not null, transport text not null, isolation text not null, subject text not null,
                    version text, "case" text not null, result text not null, what text, at_ms integer not null,
                    proctor text not null) strict;
create index proof_subject on proof (strategy, transport, subject);
""",
    code="machine.proofs",
    synchronous="full",
)


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
    if not root.is_dir():
        make_folder(root)
    with DATABASE.open(root / NAME) as connection:
        connection.execute("begin immediate")
        values = [msgspec.structs.astuple(row) for row in rows]
        connection.executemany(f"insert into proof ({_COLUMNS}) values ({_PLACES})", values)  # noqa: S608
        connection.execute("commit")


def read_proofs(root: Path) -> tuple[ProofRow, ...]:
    """In the order in which they were made; none where there never was one."""
    path = root / NAME
    if not path.exists():
        return ()
    with DATABASE.read(path) as connection:
        if not connection.execute("select count(*) from sqlite_master").fetchone()[0]:
            return ()
        rows = connection.execute(f"select {_COLUMNS} from proof order by rowid").fetchall()  # noqa: S608
    return tuple(ProofRow(**dict(zip(ProofRow.__struct_fields__, row, strict=True))) for row in rows)
