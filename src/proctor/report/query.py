"""What there is under an evidence root. Whatever a ledger or a folder holds, the answer is rows and problems."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import msgspec

from proctor.errors import EvidenceError, advice
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import AttemptRecord, AttemptReport
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths, RunPaths
from proctor.evidence.reader import Problem, read_artifact
from proctor.ids import AttemptId, CampaignId, CellId, FlowId, RunId, StrategyId
from proctor.plan.recover import CUT_OFF
from proctor.plan.standing import Attempted, Patience, Tried
from proctor.report.cells import by_cell, speaker
from proctor.report.gates import Gate, gates_of
from proctor.report.ledger import LedgerAttempt, LedgerCell, LedgerContents, is_live, read_ledger
from proctor.report.planned import Planned, read_plan
from proctor.report.row import AttemptRow, Evidence, ReportRow
from proctor.report.standing import look_up, read_cells

STAMP_CHARS = len("YYYYMMDD-hhmmss-xxxxxx")
"""Of the time that ends a campaign's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Attempts, cells that were never tried, and what is wrong with what belongs to no single attempt."""

    campaign_id: CampaignId | None = None
    run_ids: tuple[RunId, ...] = ()
    rows: tuple[AttemptRow, ...] = ()
    missing_cells: tuple[CellId, ...] = ()
    gates: tuple[Gate, ...] = ()
    problems: tuple[Problem, ...] = ()


def campaigns_by_age(root: RootPaths) -> list[CampaignPaths]:
    """The oldest first, by the time that ends a campaign's id."""
    return sorted(root.campaigns(), key=lambda campaign: campaign.folder.name[-STAMP_CHARS:])


def find_all(root: RootPaths) -> Found:
    """Every attempt of a root. Folders are opened only where no ledger tells how an attempt ended."""
    rows: list[AttemptRow] = []
    problems: list[Problem] = []
    known: list[RunId] = []
    for campaign in campaigns_by_age(root):
        found = _from_ledger(root, campaign)
        if isinstance(found, Found):
            rows += found.rows
            known += found.run_ids
        else:
            problems.append(found)
    for run in root.runs():
        if run.folder.name not in known:
            found = find_run(run)
            rows += found.rows
            problems += found.problems
    return Found(run_ids=tuple(known), rows=tuple(rows), problems=tuple(problems))


def find_campaign(root: RootPaths, campaign: CampaignPaths) -> Found:
    """Every attempt of a campaign: from its ledger, or from the folders that name it where that cannot be read."""
    found = _from_ledger(root, campaign)
    if isinstance(found, Found):
        # Without a plan there are none to judge by, and whoever reads the plan says that it is gone.
        with suppress(EvidenceError):
            found = replace(found, gates=gates_of(read_cells(campaign, root=root)))
        return found
    campaign_id = CampaignId(campaign.folder.name)
    rows = superseding(row for run in root.runs() for row in find_run(run).rows if row.campaign_id == campaign_id)
    runs = tuple(dict.fromkeys(row.run_id for row in rows))
    return Found(campaign_id=campaign_id, run_ids=runs, rows=rows, problems=(found,))


def find_run(run: RunPaths) -> Found:
    """Every attempt of a run, from the folders themselves."""
    run_ids = (RunId(run.folder.name),)
    try:
        rows: Sequence[AttemptRow] = tuple(map(row_of_folder, run.attempts()))
    except OSError as error:
        problem = Problem(code="evidence.unreadable", file=run.folder.name, detail=os.strerror(error.errno or 0))
        return Found(run_ids=run_ids, problems=(problem,))
    rows = superseding(sorted(rows, key=lambda row: (row.cell or "", row.n or 0)))
    campaigns = {row.campaign_id for row in rows}
    return Found(campaign_id=campaigns.pop() if len(campaigns) == 1 else None, run_ids=run_ids, rows=rows)


_PATIENCE = Planned(flows=()).patience
"""Where no plan says how often a cell may fail."""


def superseding(rows: Iterable[AttemptRow]) -> tuple[AttemptRow, ...]:
    """All attempts of their cells, in order, each with whether a later one counts instead of it, by what their folders
    say.
    """
    told: list[AttemptRow] = []
    for tries in by_cell(rows):
        told += _superseded(tries, list(map(_tried, tries, count())), _PATIENCE)
    return tuple(told)


def _superseded(rows: Sequence[AttemptRow], tries: Sequence[Attempted], patience: Patience) -> Iterator[AttemptRow]:
    """The rows of a cell, where `tries` are the same attempts as the fold takes them."""
    counts = speaker(tries, patience=patience)
    for at, row in enumerate(rows):
        is_superseded = at < counts
        yield row if row.is_superseded is is_superseded else msgspec.structs.replace(row, is_superseded=is_superseded)


def _tried(row: AttemptRow, at: int) -> Tried:
    """What was sealed and can no longer be read was a result too."""
    is_gone = row.state == "unreadable"
    return Tried(
        id=row.attempt_id,
        cell=row.cell or CellId(""),
        n=at,
        run=row.run_id,
        state="sealed" if is_gone or row.state == "sealed" else "abandoned",
        claimed_at_ms=0,
        outcome=Outcome.UNKNOWN if is_gone else row.outcome,
        code="evidence.unreadable" if is_gone else row.code,
    )


def row_of_folder(paths: AttemptPaths) -> AttemptRow:
    """What an attempt's own folder says, whatever is in it."""
    return _read_folder(paths)[0]


def report_row(row: AttemptRow, *, evidence: Evidence = "unchecked", problems: tuple[Problem, ...] = ()) -> ReportRow:
    """The row with what its evidence says; where ledger and evidence disagree the evidence is believed, and told.

    `evidence` and `problems` are what a check of the folder found, if there was one.
    """
    found, report = row, None
    told = list(dict.fromkeys((*row.problems, *problems)))
    if row.state == "sealed":
        found, report = _read_folder(AttemptPaths(Path(row.dir)))
        if found.state == "partial":
            gone = Problem(code="evidence.missing-file", file="seal.json", detail="the ledger says that it was sealed")
            found = msgspec.structs.replace(row, state="unreadable", problems=(gone,))
        told += [problem for problem in found.problems if problem not in told]
        if report is not None and _ending(found) != _ending(row):
            detail = "it tells another ending than the sealed report"
            told.append(Problem(code="evidence.ledger", file="ledger.db", detail=detail))
    # What stands in no folder of its own: which attempt counts, and what it cost by the frozen prices.
    found = msgspec.structs.replace(found, is_superseded=row.is_superseded, usd=row.usd)
    is_invalid = evidence == "invalid" or found.state == "unreadable"
    same = {name: getattr(found, name) for name in AttemptRow.__struct_fields__ if name != "problems"}
    whole = ReportRow(
        **same,
        problems=tuple(told),
        detail=None if report is None else report.detail,
        reasons=() if report is None else report.reasons,
        misses=() if report is None else report.expectation.misses,
        evidence="invalid" if is_invalid else evidence,
    )
    if not is_invalid:
        return whole
    # What damaged evidence says is not known, and never verified; whose it is, the ledger may still tell.
    return msgspec.structs.replace(
        whole,
        mission_id=row.mission_id,
        flow_id=row.flow_id,
        verified=None,
        expectation_met=None,
        reasons=("its evidence is invalid",),
        misses=(),
    )


def _read_folder(paths: AttemptPaths) -> tuple[AttemptRow, AttemptReport | None]:
    problems: list[Problem] = []
    record, report = None, None
    is_sealed = os.path.lexists(paths.seal)
    try:
        record = read_artifact(paths.attempt, AttemptRecord)
    except EvidenceError as error:
        # A cut-off attempt may lack any file; a sealed one has them all.
        if is_sealed or error.code != "evidence.missing-file":
            problems.append(Problem.of(error))
    if is_sealed:
        try:
            report = read_artifact(paths.report, AttemptReport)
        except EvidenceError as error:
            problems.append(Problem.of(error))
    row = AttemptRow(
        attempt_id=AttemptId(paths.folder.name),
        run_id=RunId(paths.folder.absolute().parent.parent.name),
        state="unreadable" if problems else "sealed" if is_sealed else "partial",
        dir=str(paths.folder),
        problems=tuple(problems),
    )
    if record is not None:
        row = msgspec.structs.replace(
            row,
            campaign_id=record.campaign_id,
            cell=record.cell,
            mission_id=record.mission_id,
            flow_id=record.flow_id,
            repeat=record.repeat,
            n=record.n,
            runtime=record.strategy,
        )
    return (row if report is None else _with_report(row, report)), report


def _from_ledger(root: RootPaths, campaign: CampaignPaths) -> Found | Problem:
    try:
        contents, plan = read_ledger(campaign), _plan(campaign)
        is_open = any(each.state == "claimed" for tries in contents.tries.values() for each in tries)
        source = _Source(
            campaign_id=CampaignId(campaign.folder.name),
            is_running=is_open and is_live(campaign),
            chains={flow.id: flow.runtime for flow in plan.flows},
            places={run.id: f"{root.run(run.id).folder}/attempts/" for run in contents.runs},
        )
        return Found(
            campaign_id=source.campaign_id,
            run_ids=tuple(run.id for run in contents.runs),
            rows=tuple(_rows(source, contents, plan, root=root)),
            missing_cells=tuple(cell.id for cell in contents.cells if cell.id not in contents.tries),
        )
    except EvidenceError as error:
        return Problem(code=error.code, file=f"{campaign.folder.name}/{error.file}", detail=error.what)


def _plan(campaign: CampaignPaths) -> Planned:
    try:
        return read_plan(campaign)
    except EvidenceError:
        return Planned(flows=())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What the rows of a campaign have in common."""

    campaign_id: CampaignId
    is_running: bool
    chains: Mapping[FlowId, tuple[StrategyId, ...]]
    places: Mapping[RunId, str]  # joining paths for each of 10,000 rows would take longer than all the rest

    def row(self, cell: LedgerCell, attempt: LedgerAttempt) -> AttemptRow:
        name, place = f"{attempt.cell}.{attempt.n}", self.places.get(attempt.run)
        if place is None or "/" in name or name.startswith("."):
            raise EvidenceError("evidence.ledger", f"no attempt can lie at {attempt.run}/{name}", file="ledger.db")
        folder, runtime = place + name, attempt.strategy or self._only(cell.flow)
        if attempt.state != "claimed" and runtime is None:
            # Which of the chain it was stands only in the folder, where the ledger was not told.
            runtime = row_of_folder(AttemptPaths(Path(folder))).runtime
        row = _ledger_row(attempt, cell, self.campaign_id, runtime=runtime, folder=folder)
        return _unsettled(row, is_running=self.is_running) if attempt.state == "claimed" else row

    def _only(self, flow: FlowId) -> StrategyId | None:
        chain = self.chains.get(flow, ())
        return chain[0] if len(chain) == 1 else None


def _rows(source: _Source, contents: LedgerContents, plan: Planned, *, root: RootPaths) -> Iterator[AttemptRow]:
    """Of every attempt in the order of the plan, with whether another counts instead."""
    known = look_up(contents, root=root)
    for cell in contents.cells:
        rows = [source.row(cell, each) for each in contents.tries.get(cell.id, ())]
        yield from rows if len(rows) < 2 else _superseded(rows, known.tries[cell.id], plan.patience)


def _unsettled(row: AttemptRow, *, is_running: bool) -> AttemptRow:
    """The ledger was not told how it ended; only its folder can say."""
    found = row_of_folder(AttemptPaths(Path(row.dir)))
    return msgspec.structs.replace(
        found,
        campaign_id=row.campaign_id,
        cell=row.cell,
        mission_id=row.mission_id,
        flow_id=row.flow_id,
        repeat=row.repeat,
        n=row.n,
        state="running" if found.state == "partial" and is_running else found.state,
    )


def _ledger_row(
    attempt: LedgerAttempt, cell: LedgerCell, campaign_id: CampaignId, *, runtime: StrategyId | None, folder: str
) -> AttemptRow:
    row = AttemptRow(
        attempt_id=attempt.id,
        run_id=attempt.run,
        campaign_id=campaign_id,
        cell=cell.id,
        mission_id=cell.mission,
        flow_id=cell.flow,
        repeat=cell.repeat,
        n=attempt.n,
        runtime=runtime,
        state="sealed" if attempt.state == "sealed" else "partial" if attempt.code == CUT_OFF else "abandoned",
        outcome=attempt.outcome,
        code=attempt.code,
        claimed=attempt.claimed,
        verified=attempt.verified,
        expectation_met=attempt.met,
        tool_calls=attempt.tool_calls,
        tokens=attempt.tokens,
        usd=attempt.usd,
        duration_ms=attempt.duration_ms,
        dir=folder,
    )
    # Most have no code, and handing over what nobody says takes as long as the rest.
    return row if row.code is None else msgspec.structs.replace(row, **advice(row.code))


def _with_report(row: AttemptRow, report: AttemptReport) -> AttemptRow:
    return msgspec.structs.replace(
        row,
        outcome=report.outcome,
        code=report.code,
        **advice(report.code),
        claimed=report.claimed,
        verified=report.verified,
        expectation_met=report.expectation.met,
        tool_calls=report.metrics.tool_calls,
        tokens=report.metrics.total_tokens,
        duration_ms=report.duration_ms,
    )


def _ending(row: AttemptRow) -> tuple[object, ...]:
    return (
        *(row.outcome, row.code, row.claimed, row.verified, row.expectation_met),
        *(row.tool_calls, row.tokens, row.duration_ms),
    )
