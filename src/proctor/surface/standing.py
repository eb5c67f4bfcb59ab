"""How a campaign stands, in a few numbers that its ledger adds up: cells, attempts, outcomes, and what is left."""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Literal

import msgspec

from proctor.campaign.recover import Remedy, remedy
from proctor.errors import EvidenceError, advice
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import AttemptReport
from proctor.evidence.database import address
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.live import Live
from proctor.evidence.reader import read_artifact
from proctor.ids import AttemptId, CampaignId, CellId, RunId, StrategyId
from proctor.report.ledger import is_live
from proctor.report.row import ReportRow
from proctor.report.verdict import WORDS, judge_all

_LAST = """
select count(*), state, outcome, code, verified, met, {retry} is not null from attempt
where n = (select max(n) from attempt other where other.cell = attempt.cell)
group by 2, 3, 4, 5, 6, 7
"""
_RUN = "select id, began_at_ms, ended_at_ms, {ended} from run order by began_at_ms, id"
_PACE = "select count(*), max(ended_at_ms) from attempt where run = ? and ended_at_ms is not null"
_CLAIMED = "select cell, n, run from attempt where state = 'claimed'"
_OUTCOMES = """
select strategy, outcome, code, count(*) from attempt where state = 'sealed' and strategy is not null group by 1, 2, 3
"""
_COST = "select count(*), count({usd}), sum({usd}) from attempt where state = 'sealed'"


class Left(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Cells without a result: never tried, at work, cut off, or to be tried again."""

    untried: int
    running: int
    cut_off: int
    again: int

    @property
    def total(self) -> int:
        return self.untried + self.running + self.cut_off + self.again


class Standing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A campaign in numbers. `outcomes` and `codes` are of each cell's last attempt; unknown is null.

    `perMinute` is how many attempts ended a minute in the last run; `live` is there while one runs.
    """

    campaign_id: CampaignId
    kind: Literal["campaign", "canary"]
    dir: str
    file: str | None
    is_live: bool
    is_pinned: bool
    runs: int
    run_id: RunId | None
    began_at_ms: int | None
    ended_at_ms: int | None
    ended: str | None
    cells: int
    settled: int
    left: Left
    attempts: dict[str, int]
    outcomes: dict[str, int]
    codes: dict[str, int]
    met: int
    not_met: int
    verdict: str
    usd: float | None
    per_minute: float | None
    live: Live | None = None


class _Plan(msgspec.Struct, frozen=True, rename="camel"):
    is_canary: bool = False


class _PlanFile(msgspec.Struct, frozen=True):
    plan: _Plan


class _Group(msgspec.Struct, frozen=True, array_like=True):
    """Cells whose last attempts ended alike."""

    cells: int
    state: Literal["claimed", "sealed", "abandoned"]
    outcome: Outcome | None = None
    code: str | None = None
    verified: bool | None = None
    met: bool | None = None
    is_retried: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether the result stands: nothing is to follow it, or what was to has been tried often enough."""
        if self.state != "sealed" or self.outcome is None or self.is_retried:
            return False
        return remedy(self.outcome, self.code) in (Remedy.NONE, Remedy.AGAIN)

    def row(self) -> ReportRow:
        """As one attempt, for whoever judges."""
        return ReportRow(
            attempt_id=AttemptId(""),
            run_id=RunId(""),
            state="partial" if self.state == "claimed" else self.state,
            outcome=self.outcome,
            code=self.code,
            **advice(self.code),
            verified=self.verified,
            expectation_met=self.met,
            dir="",
        )


class _Run(msgspec.Struct, frozen=True, array_like=True):
    id: RunId
    began_at_ms: int
    ended_at_ms: int | None
    ended: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    file: str | None
    runs: tuple[_Run, ...]
    cells: int
    groups: tuple[_Group, ...]
    claimed: tuple[tuple[str, int, str], ...]
    attempts: dict[str, int]
    usd: float | None
    ended_attempts: int
    last_at_ms: int | None


def stand(campaign: CampaignPaths) -> Standing:
    """EvidenceError where its ledger cannot be read."""
    # Asked first: a run that ends meanwhile is then told as running, and never as one that was cut off.
    live = is_live(campaign)
    numbers = _read(campaign)
    groups = numbers.groups if live else (*_found(campaign, numbers),)
    counts: Counter[str] = Counter()
    for group in groups:
        counts[_place(group, live=live)] += group.cells
    run = numbers.runs[-1] if numbers.runs else None
    untried = numbers.cells - sum(group.cells for group in groups)
    verdict = judge_all((group.row() for group in groups), missing=untried)
    return Standing(
        campaign_id=CampaignId(campaign.folder.name),
        kind="canary" if _is_canary(campaign) else "campaign",
        dir=str(campaign.folder),
        file=numbers.file,
        is_live=live,
        is_pinned=os.path.lexists(campaign.pin),
        runs=len(numbers.runs),
        run_id=None if run is None else run.id,
        began_at_ms=numbers.runs[0].began_at_ms if numbers.runs else None,
        ended_at_ms=None if run is None else run.ended_at_ms,
        ended=None if run is None else run.ended,
        cells=numbers.cells,
        settled=counts["settled"],
        left=Left(untried=untried, running=counts["running"], cut_off=counts["cut off"], again=counts["again"]),
        attempts=numbers.attempts,
        outcomes=_counted((group.outcome, group.cells) for group in groups),
        codes=_counted((group.code, group.cells) for group in groups),
        met=sum(group.cells for group in groups if group.met),
        not_met=sum(group.cells for group in groups if group.met is False),
        verdict="running" if live else WORDS[verdict],
        usd=numbers.usd,
        per_minute=_per_minute(run, numbers),
        live=_picture(campaign) if live else None,
    )


def _found(campaign: CampaignPaths, numbers: _Numbers) -> Iterator[_Group]:
    """The groups, where a killed run was sealing what the ledger still has as claimed: the seal is the truth."""
    root, cut_off = RootPaths(campaign.folder.parent.parent), len(numbers.claimed)
    for cell, n, run in numbers.claimed:
        with suppress(EvidenceError):
            paths = root.run(RunId(run)).attempt(CellId(cell), n=n)
            if os.path.lexists(paths.seal):
                report = read_artifact(paths.report, AttemptReport)
                yield _Group(
                    state="sealed",
                    outcome=report.outcome,
                    code=report.code,
                    verified=report.verified,
                    met=report.expectation.met,
                    cells=1,
                )
                cut_off -= 1
    yield from (group for group in numbers.groups if group.state != "claimed")
    if cut_off:
        yield _Group(state="claimed", cells=cut_off)


def _place(group: _Group, *, live: bool) -> str:
    if group.state == "claimed":
        return "running" if live else "cut off"
    return "settled" if group.is_settled else "again"


def _counted(pairs: Iterator[tuple[str | None, int]]) -> dict[str, int]:
    """The most frequent first."""
    counts: Counter[str] = Counter()
    for name, number in pairs:
        if name is not None:
            counts[str(name)] += number
    return dict(counts.most_common())


def _per_minute(run: _Run | None, numbers: _Numbers) -> float | None:
    if run is None or numbers.last_at_ms is None or numbers.last_at_ms <= run.began_at_ms:
        return None
    return round(numbers.ended_attempts * 60_000 / (numbers.last_at_ms - run.began_at_ms), 2)


def _read(campaign: CampaignPaths) -> _Numbers:
    path = campaign.ledger
    # The plan is the last file of the set-up.
    damaged = "evidence.ledger" if os.path.lexists(campaign.plan) else "evidence.partial"
    if not path.is_file():
        raise EvidenceError(damaged, "absent", file=f"{campaign.folder.name}/{path.name}")
    try:
        with closing(sqlite3.connect(address(path), uri=True, timeout=5.0)) as connection:
            return _add_up(connection)
    except (sqlite3.Error, msgspec.ValidationError, UnicodeError, OverflowError, TypeError, ValueError) as error:
        raise EvidenceError(damaged, str(error), file=f"{campaign.folder.name}/{path.name}") from error


def _add_up(connection: sqlite3.Connection) -> _Numbers:
    # What was kept by a Proctor that had no such columns is unknown.
    has_all = connection.execute("pragma user_version").fetchone()[0] >= 2
    retry, usd, ended = ("retry_at_ms", "usd", "ended") if has_all else ("null", "null", "null")
    runs = msgspec.convert(connection.execute(_RUN.format(ended=ended)).fetchall(), tuple[_Run, ...])
    groups = connection.execute(_LAST.format(retry=retry)).fetchall()
    number, last_at_ms = connection.execute(_PACE, (runs[-1].id if runs else "",)).fetchone()
    sealed, priced, sum_usd = connection.execute(_COST.format(usd=usd)).fetchone()
    file = connection.execute("select file from campaign").fetchone() if has_all else None
    return _Numbers(
        file=None if file is None else str(file[0]),
        runs=runs,
        cells=int(connection.execute("select count(*) from cell").fetchone()[0]),
        groups=msgspec.convert(groups, tuple[_Group, ...], strict=False),
        claimed=msgspec.convert(connection.execute(_CLAIMED).fetchall(), tuple[tuple[str, int, str], ...]),
        attempts=dict(connection.execute("select state, count(*) from attempt group by state")),
        usd=float(sum_usd) if sealed and sealed == priced else None,
        ended_attempts=int(number),
        last_at_ms=last_at_ms,
    )


def _is_canary(campaign: CampaignPaths) -> bool:
    with suppress(EvidenceError):
        return read_artifact(campaign.plan, _PlanFile).plan.is_canary
    return False


def _picture(campaign: CampaignPaths) -> Live | None:
    """What is at work now, as the one that runs it tells; None where it has not told yet."""
    with suppress(EvidenceError):
        return read_artifact(campaign.live, Live)
    return None


def count_outcomes(root: RootPaths) -> dict[StrategyId, dict[str, int]]:
    """How the sealed attempts of every campaign ended, by strategy; the most frequent first. What cannot be read is
    left out.
    """
    counts: dict[StrategyId, Counter[str]] = {}
    for campaign in root.campaigns():
        if campaign.ledger.is_file():
            with (
                suppress(sqlite3.Error, UnicodeError),
                closing(sqlite3.connect(address(campaign.ledger), uri=True, timeout=5.0)) as connection,
            ):
                for strategy, outcome, code, number in connection.execute(_OUTCOMES):
                    name = str(outcome) if code is None else f"{outcome} ({code})"
                    counts.setdefault(StrategyId(str(strategy)), Counter())[name] += number
    return {strategy: dict(each.most_common()) for strategy, each in counts.items()}
