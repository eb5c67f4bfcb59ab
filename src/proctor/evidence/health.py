"""How the agents' programs started and crashed, counted over all runs of an evidence root."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from proctor.errors import MachineError, disk_refusal
from proctor.evidence.database import Database
from proctor.ids import StrategyId

DEGRADED_AFTER: Final = 3
DEGRADED_FOR_MS: Final = 60 * 60 * 1000

VERSION: Final = 1

DATABASE: Final = Database(
    application=0x50524348,  # "PRCH"
    version=VERSION,
    schema="""
create table lane (strategy text not null, sha256 text not null, starts integer not null,
                   failed_starts integer not null, crashes integer not null, last_code text,
                   last_at_ms integer not null, primary key (strategy, sha256)) strict, without rowid;
create table start (n integer primary key, strategy text not null, sha256 text not null, at_ms integer not null,
                    code text) strict;
create index start_lane on start (strategy, sha256, n);
""",
    code="machine.health",
    # A count that a power cut took with it is no loss.
    synchronous="normal",
)


class LaneKey(NamedTuple):
    """A strategy with the very program it ran; an empty digest where it has none."""

    strategy: StrategyId
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One start of a lane, or one crash after it. Without a code the start was good."""

    lane: LaneKey
    at_ms: int
    code: str | None = None
    is_crash: bool = False


class LaneHealth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A lane's counts. `failing_since_ms` is the first of its last few starts, where all of them failed."""

    strategy: StrategyId
    sha256: str
    starts: int
    failed_starts: int
    crashes: int
    last_code: str | None
    last_at_ms: int
    failing_since_ms: int | None = None

    def is_degraded(self, *, now_ms: int) -> bool:
        """Whether its last starts all failed, and all of them within the hour."""
        return self.failing_since_ms is not None and self.failing_since_ms > now_ms - DEGRADED_FOR_MS


def read_health(path: Path) -> Mapping[LaneKey, LaneHealth]:
    """Every lane that ever started. MachineError where the file cannot be read; one that is absent holds nothing."""
    if not path.is_file():
        return {}
    with DATABASE.read(path) as connection:
        if not connection.execute("select count(*) from sqlite_master").fetchone()[0]:
            return {}
        lanes = connection.execute(f"select {', '.join(_Lane.__struct_fields__)} from lane order by 1, 2").fetchall()  # noqa: S608
        starts = connection.execute("select strategy, sha256, at_ms, code from start order by n").fetchall()
    try:
        # What is in the file is checked here: one that somebody else made may hold anything.
        return _folded(msgspec.convert(lanes, list[_Lane]), msgspec.convert(starts, list[_Start]))
    except msgspec.ValidationError as error:
        raise MachineError(DATABASE.code, str(error), file=str(path)) from error


class _Lane(msgspec.Struct, frozen=True, array_like=True):
    strategy: StrategyId
    sha256: str
    starts: int
    failed_starts: int
    crashes: int
    last_code: str | None
    last_at_ms: int


class _Start(msgspec.Struct, frozen=True, array_like=True):
    strategy: StrategyId
    sha256: str
    at_ms: int
    code: str | None


def _folded(lanes: Sequence[_Lane], starts: Sequence[_Start]) -> Mapping[LaneKey, LaneHealth]:
    found: dict[LaneKey, LaneHealth] = {}
    for lane in lanes:
        last = [each for each in starts if (each.strategy, each.sha256) == (lane.strategy, lane.sha256)]
        is_failing = len(last) >= DEGRADED_AFTER and all(each.code is not None for each in last)
        since_ms = last[-DEGRADED_AFTER].at_ms if is_failing else None
        counts = msgspec.structs.asdict(lane)
        found[LaneKey(lane.strategy, lane.sha256)] = LaneHealth(**counts, failing_since_ms=since_ms)
    return found


def write_health(path: Path, happenings: Sequence[Happening]) -> None:
    """Add to the counts, all in one transaction; several Proctors may do so at once."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise disk_refusal(error, path=path) from error
    lanes: dict[LaneKey, list[Happening]] = {}
    for each in happenings:
        lanes.setdefault(each.lane, []).append(each)
    with DATABASE.open(path) as connection:
        connection.execute("begin immediate")
        for lane, its in lanes.items():
            _add(connection, lane, its)
        connection.execute("commit")


def _add(connection: sqlite3.Connection, lane: LaneKey, happenings: Sequence[Happening]) -> None:
    starts = [each for each in happenings if not each.is_crash]
    failed = [each for each in starts if each.code is not None]
    troubles = [each.code for each in happenings if each.code is not None]
    connection.execute(
        """insert into lane values (?, ?, ?, ?, ?, ?, ?) on conflict do update set
           starts = starts + excluded.starts, failed_starts = failed_starts + excluded.failed_starts,
           crashes = crashes + excluded.crashes, last_code = coalesce(excluded.last_code, last_code),
           last_at_ms = max(last_at_ms, excluded.last_at_ms)""",
        (
            *lane,
            len(starts),
            len(failed),
            len(happenings) - len(starts),
            troubles[-1] if troubles else None,
            max(each.at_ms for each in happenings),
        ),
    )
    connection.executemany(
        "insert into start (strategy, sha256, at_ms, code) values (?, ?, ?, ?)",
        [(*lane, each.at_ms, each.code) for each in starts[-DEGRADED_AFTER:]],
    )
    connection.execute(
        """delete from start where strategy = ? and sha256 = ? and n not in
           (select n from start where strategy = ? and sha256 = ? order by n desc limit ?)""",
        (*lane, *lane, DEGRADED_AFTER),
    )
