"""A campaign's ledger as a reader sees it: opened read-only; whatever is wrong with it is an EvidenceError."""

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from proctor.errors import EvidenceError
from proctor.event.outcome import Outcome
from proctor.evidence.database import address
from proctor.evidence.disk import open_descriptor
from proctor.evidence.layout import CampaignPaths
from proctor.ids import AttemptId, CellId, Digest, FlowId, MissionId, RunId, StrategyId
from proctor.plan.standing import Usd

KNOWN_VERSION = 2
"""Of ledgers: those of a newer Proctor are not read."""

_CELLS = "select id, mission, flow, repeat, digest from cell order by rowid"
# As they lie there: putting 10,000 in order takes SQLite longer than whoever sorts each cell's few.
_ATTEMPTS = """
select id, cell, n, run, state, claimed_at_ms, ended_at_ms, outcome, code, claimed, verified, met, tool_calls, tokens,
       duration_ms, {later}
from attempt
"""
# What version 1 did not keep is unknown.
_RUNS = {
    1: "select id, began_at_ms, ended_at_ms, null from run",
    2: "select id, began_at_ms, ended_at_ms, ended from run",
}
_LATER = {1: "null, null, null, null", 2: "strategy, retry_at_ms, usd, tally"}
_CAMPAIGN = "select file, spec, plan, began_at_ms from campaign"
_OUTCOMES = """
select strategy, outcome, code, count(*) from attempt where state = 'sealed' and strategy is not null group by 1, 2, 3
"""


Count = Annotated[int, msgspec.Meta(ge=0)]
Moment = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]
"""In milliseconds, until the end of the year 9999: what no clock tells, no Proctor wrote."""


class LedgerCell(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A cell of the plan, field for field."""

    id: CellId
    mission: MissionId
    flow: FlowId
    repeat: int
    digest: Digest


class LedgerAttempt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row as it is selected. Claimed by a run and, unless that is its state still, ended. Unknown is None.

    Bounded is what we count ourselves: how many tokens it was, and when to come back, others say.
    """

    id: AttemptId
    cell: CellId
    n: Count
    run: RunId
    state: Literal["claimed", "sealed", "abandoned"]
    claimed_at_ms: Moment
    ended_at_ms: Moment | None = None
    outcome: Outcome | None = None
    code: str | None = None
    claimed: bool | None = None
    verified: bool | None = None
    met: bool | None = None
    tool_calls: Count | None = None
    tokens: int | None = None
    duration_ms: Count | None = None
    strategy: StrategyId | None = None
    retry_at_ms: int | None = None
    usd: Usd | None = None
    tally: str | None = None

    @property
    def took_ms(self) -> int:
        return 0 if self.ended_at_ms is None else max(0, self.ended_at_ms - self.claimed_at_ms)


class LedgerRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One execution. `how` it ended is None where it was killed, still runs, or nobody wrote that down."""

    id: RunId
    began_at_ms: Moment
    ended_at_ms: Moment | None
    how: str | None


class LedgerCampaign(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the campaign was made from."""

    file: str
    spec: Digest
    plan: Digest
    began_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerContents:
    """Cells in the order of the plan, and of each that was tried its attempts by number. What the campaign was made
    from, version 1 did not keep.
    """

    campaign: LedgerCampaign | None = None
    runs: tuple[LedgerRun, ...] = ()
    cells: tuple[LedgerCell, ...] = ()
    tries: Mapping[CellId, Sequence[LedgerAttempt]] = field(default_factory=dict)

    @property
    def attempts(self) -> list[LedgerAttempt]:
        """All, in the order of the plan."""
        return [each for cell in self.cells for each in self.tries.get(cell.id, ())]


class LedgerOutcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How many attempts on a strategy were sealed with that ending."""

    strategy: StrategyId
    outcome: Outcome | None
    code: str | None
    number: int


def read_ledger(campaign: CampaignPaths) -> LedgerContents:
    with _reading(campaign) as (connection, version):
        return _read(connection, version)


def read_run_ids(campaign: CampaignPaths) -> tuple[RunId, ...]:
    """Of its runs, where nothing else of it is wanted."""
    with _reading(campaign) as (connection, _):
        rows = msgspec.convert(connection.execute("select id from run").fetchall(), list[tuple[RunId]])
        return tuple(id_ for (id_,) in rows)


def read_outcomes(campaign: CampaignPaths) -> tuple[LedgerOutcome, ...]:
    """Added up by the ledger itself. Version 1 did not keep who was asked."""
    with _reading(campaign) as (connection, version):
        rows = connection.execute(_OUTCOMES).fetchall() if version > 1 else []
        return msgspec.convert(rows, tuple[LedgerOutcome, ...])


@contextmanager
def _reading(campaign: CampaignPaths) -> Iterator[tuple[sqlite3.Connection, int]]:
    """As of one moment, with its version. What is in the file is checked: a damaged one may hold anything anywhere."""
    path = campaign.ledger
    if not path.is_file():
        # The plan is the last file of the set-up.
        code = "evidence.ledger" if os.path.lexists(campaign.plan) else "evidence.partial"
        raise EvidenceError(code, "absent", file=path.name)
    try:
        with closing(sqlite3.connect(address(path), uri=True, timeout=5.0)) as connection:
            # Before the first statement that needs a lock.
            connection.execute("begin")
            [version] = connection.execute("pragma user_version").fetchone()
            if version > KNOWN_VERSION:
                what = f"of version {version}; this Proctor knows up to {KNOWN_VERSION}"
                raise EvidenceError("evidence.ledger", what, file=path.name)
            yield connection, version
    except (sqlite3.Error, msgspec.ValidationError, UnicodeError, OverflowError) as error:
        # Killed while it was being made, before the plan, it may have no tables yet.
        code = "evidence.ledger" if os.path.lexists(campaign.plan) else "evidence.partial"
        raise EvidenceError(code, str(error), file=path.name) from error


def _read(connection: sqlite3.Connection, version: int) -> LedgerContents:
    kept = _LATER.get(version, _LATER[1])
    runs = _RUNS.get(version, _RUNS[1])
    campaign = connection.execute(_CAMPAIGN).fetchone() if version > 1 else None
    cells = msgspec.convert(connection.execute(_CELLS).fetchall(), tuple[LedgerCell, ...])
    attempts = msgspec.convert(
        connection.execute(_ATTEMPTS.format(later=kept)).fetchall(), list[LedgerAttempt], strict=False
    )
    made = msgspec.convert(connection.execute(f"{runs} order by began_at_ms, id").fetchall(), tuple[LedgerRun, ...])
    _check_names(attempts, cells={cell.id for cell in cells}, runs={run.id for run in made})
    return LedgerContents(
        campaign=None if campaign is None else msgspec.convert(campaign, LedgerCampaign),
        runs=made,
        cells=cells,
        tries=_by_cell(attempts),
    )


def _check_names(attempts: Iterable[LedgerAttempt], *, cells: set[CellId], runs: set[RunId]) -> None:
    for each in attempts:
        if each.cell not in cells or each.run not in runs or each.id != f"{each.cell}.{each.n}":
            what = f"{each.id} is no attempt {each.n} of a cell {each.cell} in a run {each.run} that are known"
            raise EvidenceError("evidence.ledger", what, file="ledger.db")


def _by_cell(attempts: Iterable[LedgerAttempt]) -> dict[CellId, list[LedgerAttempt]]:
    tries: dict[CellId, list[LedgerAttempt]] = {}
    several: list[list[LedgerAttempt]] = []
    for each in attempts:
        if (of_cell := tries.get(each.cell)) is None:
            tries[each.cell] = [each]
        else:
            of_cell.append(each)
            if len(of_cell) == 2:
                several.append(of_cell)
    for of_cell in several:
        of_cell.sort(key=lambda tried: tried.n)
    return tries


def is_live(campaign: CampaignPaths) -> bool:
    """Whether some Proctor holds the campaign's lock now. The kernel drops a dead owner's."""
    try:
        file = open_descriptor(campaign.folder / "lock")
    except EvidenceError:
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
