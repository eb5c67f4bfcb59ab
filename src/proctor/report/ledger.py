"""A campaign's ledger as a reader sees it: opened read-only; whatever is wrong with it is an EvidenceError."""

import fcntl
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

import msgspec

from proctor.errors import EvidenceError
from proctor.event.outcome import Outcome
from proctor.evidence.database import address
from proctor.evidence.layout import CampaignPaths
from proctor.ids import AttemptId, CellId, Digest, FlowId, MissionId, RunId

_CELLS = "select id, mission, flow, repeat, digest from cell order by rowid"
_RUNS = "select id from run order by began_at_ms, id"
_ATTEMPTS = """
select attempt.id, attempt.cell, attempt.n, attempt.run, attempt.state, cell.mission, cell.flow, attempt.outcome,
       attempt.code, attempt.claimed, attempt.verified, attempt.met, attempt.tool_calls, attempt.tokens,
       attempt.duration_ms
from attempt join cell on cell.id = attempt.cell order by cell.rowid, attempt.n
"""


class LedgerCell(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A cell of the plan, field for field."""

    id: CellId
    mission: MissionId
    flow: FlowId
    repeat: int
    digest: Digest


class LedgerAttempt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row as it is selected. Claimed by a run and, unless that is its state still, ended. Unknown is None."""

    id: AttemptId
    cell: CellId
    n: int
    run: RunId
    state: Literal["claimed", "sealed", "abandoned"]
    mission: MissionId
    flow: FlowId
    outcome: Outcome | None
    code: str | None
    claimed: bool | None
    verified: bool | None
    met: bool | None
    tool_calls: int | None
    tokens: int | None
    duration_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerContents:
    """In the order of the plan."""

    runs: tuple[RunId, ...] = ()
    cells: tuple[LedgerCell, ...] = ()
    attempts: tuple[LedgerAttempt, ...] = ()


def read_ledger(campaign: CampaignPaths) -> LedgerContents:
    path = campaign.ledger
    if not path.is_file():
        # The plan is the last file of the set-up.
        code = "evidence.ledger" if os.path.lexists(campaign.plan) else "evidence.partial"
        raise EvidenceError(code, "absent", file=path.name)
    try:
        with closing(sqlite3.connect(address(path), uri=True, timeout=5.0)) as connection:
            # What is in the file is checked here: a damaged one may hold anything anywhere.
            return LedgerContents(
                runs=tuple(RunId(str(run)) for (run,) in connection.execute(_RUNS)),
                cells=msgspec.convert(connection.execute(_CELLS).fetchall(), tuple[LedgerCell, ...]),
                attempts=msgspec.convert(
                    connection.execute(_ATTEMPTS).fetchall(), tuple[LedgerAttempt, ...], strict=False
                ),
            )
    except (sqlite3.Error, msgspec.ValidationError, UnicodeError, OverflowError) as error:
        # Killed while it was being made, before the plan, it may have no tables yet.
        code = "evidence.ledger" if os.path.lexists(campaign.plan) else "evidence.partial"
        raise EvidenceError(code, str(error), file=path.name) from error


def is_live(campaign: CampaignPaths) -> bool:
    """Whether some Proctor holds the campaign's lock now. The kernel drops a dead owner's."""
    try:
        file = os.open(campaign.folder / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False
