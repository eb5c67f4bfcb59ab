"""What there is under an evidence root. Whatever a ledger or a folder holds, the answer is rows and findings."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import msgspec

from proctor.errors import EvidenceError, advice
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Expectation
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths, RunPaths
from proctor.evidence.reader import Finding, read_artifact
from proctor.evidence.summary import AttemptSummary, summarize
from proctor.ids import AttemptId, CampaignId, FlowId, RunId, RuntimeId, TrialId
from proctor.ledger.reader import is_live, read_ledger
from proctor.ledger.schema import LedgerAttempt, LedgerContents, LedgerTrial
from proctor.plan.progress import AttemptEnding, RetryBudget
from proctor.plan.recover import CUT_OFF
from proctor.report.campaign_state import look_up, read_trials
from proctor.report.gates import Gate, gates_of
from proctor.report.planned import PlanSummary, read_plan
from proctor.report.row import AttemptRow, Evidence
from proctor.report.trials import by_trial, speaker

STAMP_CHARS = len("YYYYMMDD-hhmmss-xxxxxx")
"""Of the time that ends a campaign's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptQuery:
    """Attempts, trials that were never tried, and what is wrong with what belongs to no single attempt."""

    campaign_id: CampaignId | None = None
    run_ids: tuple[RunId, ...] = ()
    rows: tuple[AttemptRow, ...] = ()
    missing_trials: tuple[TrialId, ...] = ()
    gates: tuple[Gate, ...] = ()
    findings: tuple[Finding, ...] = ()


def campaigns_by_age(root: RootPaths) -> list[CampaignPaths]:
    """The oldest first, by the time that ends a campaign's id."""
    return sorted(root.campaigns(), key=lambda campaign: campaign.folder.name[-STAMP_CHARS:])


def find_all(root: RootPaths) -> AttemptQuery:
    """Every attempt of a root. Folders are opened only where no ledger tells how an attempt ended."""
    rows: list[AttemptRow] = []
    findings: list[Finding] = []
    known: list[RunId] = []
    for campaign in campaigns_by_age(root):
        found = _from_ledger(root, campaign)
        if isinstance(found, AttemptQuery):
            rows += found.rows
            known += found.run_ids
        else:
            findings.append(found)
    for run in root.runs():
        if run.folder.name not in known:
            found = find_run(run)
            rows += found.rows
            findings += found.findings
    return AttemptQuery(run_ids=tuple(known), rows=tuple(rows), findings=tuple(findings))


def find_campaign(root: RootPaths, campaign: CampaignPaths) -> AttemptQuery:
    """Every attempt of a campaign: from its ledger, or from the folders that name it where that cannot be read."""
    found = _from_ledger(root, campaign)
    if isinstance(found, AttemptQuery):
        # Without a plan there are none to judge by, and whoever reads the plan says that it is gone.
        with suppress(EvidenceError):
            found = replace(found, gates=gates_of(read_trials(campaign, root=root)))
        return found
    campaign_id = CampaignId(campaign.folder.name)
    rows = superseding(row for run in root.runs() for row in find_run(run).rows if row.campaign_id == campaign_id)
    runs = tuple(dict.fromkeys(row.run_id for row in rows))
    return AttemptQuery(campaign_id=campaign_id, run_ids=runs, rows=rows, findings=(found,))


def find_run(run: RunPaths) -> AttemptQuery:
    """Every attempt of a run, from the folders themselves."""
    run_ids = (RunId(run.folder.name),)
    try:
        rows: Sequence[AttemptRow] = tuple(map(row_of_folder, run.attempts()))
    except OSError as error:
        finding = Finding(code="evidence.unreadable", file=run.folder.name, detail=os.strerror(error.errno or 0))
        return AttemptQuery(run_ids=run_ids, findings=(finding,))
    rows = superseding(sorted(rows, key=lambda row: (row.trial or "", row.n or 0)))
    campaigns = {row.campaign_id for row in rows}
    return AttemptQuery(campaign_id=campaigns.pop() if len(campaigns) == 1 else None, run_ids=run_ids, rows=rows)


_PATIENCE = RetryBudget(retries=0)
"""Where no plan says how often a trial may fail."""


def superseding(rows: Iterable[AttemptRow]) -> tuple[AttemptRow, ...]:
    """All attempts of their trials, in order, each with whether a later one counts instead of it, by what their folders
    say.
    """
    told: list[AttemptRow] = []
    for tries in by_trial(rows):
        told += _superseded(tries, list(map(_tried, tries, count())), _PATIENCE)
    return tuple(told)


def _superseded(
    rows: Sequence[AttemptRow], tries: Sequence[AttemptEnding], retry_budget: RetryBudget
) -> Iterator[AttemptRow]:
    """The rows of a trial, where `tries` are the same attempts as the fold takes them."""
    counts = speaker(tries, retry_budget=retry_budget)
    for at, row in enumerate(rows):
        is_superseded = at < counts
        yield row if row.is_superseded is is_superseded else msgspec.structs.replace(row, is_superseded=is_superseded)


def _tried(row: AttemptRow, at: int) -> LedgerAttempt:
    """What was sealed and can no longer be read was a result too."""
    is_gone = row.state == "unreadable"
    return LedgerAttempt(
        id=row.attempt_id,
        trial=row.trial or TrialId(""),
        n=at,
        run=row.run_id,
        state="sealed" if is_gone or row.state == "sealed" else "abandoned",
        started_at_ms=0,
        outcome=Outcome.UNKNOWN if is_gone else row.outcome,
        code="evidence.unreadable" if is_gone else row.code,
    )


def row_of_folder(paths: AttemptPaths) -> AttemptRow:
    """Read an attempt's folder, whatever it contains."""
    findings: list[Finding] = []
    record, report = None, None
    is_sealed = os.path.lexists(paths.seal)
    try:
        record = read_artifact(paths.attempt, AttemptRecord)
    except EvidenceError as error:
        # A cut-off attempt may lack any file; a sealed one has them all.
        if is_sealed or error.code != "evidence.missing-file":
            findings.append(Finding.of(error))
    if is_sealed:
        try:
            report = read_artifact(paths.report, AttemptReport)
        except EvidenceError as error:
            findings.append(Finding.of(error))
    row = AttemptRow(
        attempt_id=AttemptId(paths.folder.name),
        run_id=RunId(paths.folder.absolute().parent.parent.name),
        state="unreadable" if findings else "sealed" if is_sealed else "partial",
        dir=str(paths.folder),
        findings=tuple(findings),
    )
    if record is None:
        return row
    row = msgspec.structs.replace(
        row,
        campaign_id=record.campaign_id,
        trial=record.trial,
        mission_id=record.mission_id,
        flow_id=record.flow_id,
        repeat=record.repeat,
        n=record.n,
        runtime_id=record.runtime_id,
    )
    return row if report is None else _with_summary(row, summarize(record, report))


def report_row(row: AttemptRow, *, evidence: Evidence = "unchecked", findings: tuple[Finding, ...] = ()) -> AttemptRow:
    """Compare a row of the ledger with the attempt's folder, and return what the folder says.

    `evidence` and `findings` are the result of a check of the folder, if there was one.
    """
    found = row
    known = list(dict.fromkeys((*row.findings, *findings)))
    if row.state == "sealed":
        found = row_of_folder(AttemptPaths(Path(row.dir)))
        if found.state == "partial":
            gone = Finding(code="evidence.missing-file", file="seal.json", detail="the ledger says that it was sealed")
            found = msgspec.structs.replace(row, state="unreadable", findings=(gone,))
        known += [finding for finding in found.findings if finding not in known]
        if found.state == "sealed" and (found.summary, found.tokens) != (row.summary, row.tokens):
            detail = "its summary is not that of the sealed files"
            known.append(Finding(code="evidence.ledger", file="ledger.db", detail=detail))
    is_invalid = evidence == "invalid" or found.state == "unreadable"
    # Which attempt counts, and what it cost by the frozen prices, is in no file of the attempt.
    found = msgspec.structs.replace(
        found,
        is_superseded=row.is_superseded,
        usd=row.usd,
        evidence="invalid" if is_invalid else evidence,
        findings=tuple(known),
    )
    if not is_invalid:
        return found
    # What invalid evidence says is unknown and never verified; mission and flow are known from the ledger.
    return msgspec.structs.replace(
        found, mission_id=row.mission_id, flow_id=row.flow_id, summary=_without_verdict(found.summary)
    )


def _without_verdict(summary: AttemptSummary | None) -> AttemptSummary | None:
    if summary is None:
        return None
    unknown = Expectation(met=None, misses=())
    return msgspec.structs.replace(summary, verified=None, expectation=unknown, reasons=("its evidence is invalid",))


def _from_ledger(root: RootPaths, campaign: CampaignPaths) -> AttemptQuery | Finding:
    try:
        contents, plan = read_ledger(campaign), _plan(campaign)
        retry_budget = _PATIENCE if plan is None else plan.retry_budget
        is_open = any(each.state == "running" for tries in contents.attempts_of.values() for each in tries)
        source = _Source(
            campaign_id=CampaignId(campaign.folder.name),
            is_running=is_open and is_live(campaign),
            chains={} if plan is None else {flow.id: flow.runtime for flow in plan.flows},
            places={run.id: f"{root.run(run.id).folder}/attempts/" for run in contents.runs},
        )
        return AttemptQuery(
            campaign_id=source.campaign_id,
            run_ids=tuple(run.id for run in contents.runs),
            rows=tuple(_rows(source, contents, retry_budget, root=root)),
            missing_trials=tuple(trial.id for trial in contents.trials if trial.id not in contents.attempts_of),
        )
    except EvidenceError as error:
        return Finding(code=error.code, file=f"{campaign.folder.name}/{error.file}", detail=error.what)


def _plan(campaign: CampaignPaths) -> PlanSummary | None:
    try:
        return read_plan(campaign)
    except EvidenceError:  # check_campaign reports it
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What the rows of a campaign have in common."""

    campaign_id: CampaignId
    is_running: bool
    chains: Mapping[FlowId, tuple[RuntimeId, ...]]
    places: Mapping[RunId, str]  # joining paths for each of 10,000 rows would take longer than all the rest

    def row(self, trial: LedgerTrial, attempt: LedgerAttempt) -> AttemptRow:
        name, place = f"{attempt.trial}.{attempt.n}", self.places.get(attempt.run)
        if place is None or "/" in name or name.startswith("."):
            raise EvidenceError("evidence.ledger", f"no attempt can lie at {attempt.run}/{name}", file="ledger.db")
        folder, runtime_id = place + name, attempt.runtime_id or self._only(trial.flow)
        if attempt.state != "running" and runtime_id is None:
            # An abandoned attempt: only its folder says which runtime of the chain it was.
            runtime_id = row_of_folder(AttemptPaths(Path(folder))).runtime_id
        row = _ledger_row(attempt, trial, self.campaign_id, runtime_id=runtime_id, folder=folder)
        return _unsettled(row, is_running=self.is_running) if attempt.state == "running" else row

    def _only(self, flow: FlowId) -> RuntimeId | None:
        chain = self.chains.get(flow, ())
        return chain[0] if len(chain) == 1 else None


def _rows(
    source: _Source, contents: LedgerContents, retry_budget: RetryBudget, *, root: RootPaths
) -> Iterator[AttemptRow]:
    """Of every attempt in the order of the plan, with whether another counts instead."""
    known = look_up(contents, root=root)
    for trial in contents.trials:
        rows = [source.row(trial, each) for each in contents.attempts_of.get(trial.id, ())]
        yield from rows if len(rows) < 2 else _superseded(rows, known.attempts_of[trial.id], retry_budget)


def _unsettled(row: AttemptRow, *, is_running: bool) -> AttemptRow:
    """The ledger was not told how it ended; only its folder can say."""
    found = row_of_folder(AttemptPaths(Path(row.dir)))
    return msgspec.structs.replace(
        found,
        campaign_id=row.campaign_id,
        trial=row.trial,
        mission_id=row.mission_id,
        flow_id=row.flow_id,
        repeat=row.repeat,
        n=row.n,
        state="running" if found.state == "partial" and is_running else found.state,
    )


def _ledger_row(
    attempt: LedgerAttempt, trial: LedgerTrial, campaign_id: CampaignId, *, runtime_id: RuntimeId | None, folder: str
) -> AttemptRow:
    row = AttemptRow(
        attempt_id=attempt.id,
        run_id=attempt.run,
        campaign_id=campaign_id,
        trial=trial.id,
        mission_id=trial.mission,
        flow_id=trial.flow,
        repeat=trial.repeat,
        n=attempt.n,
        runtime_id=runtime_id,
        state="sealed" if attempt.state == "sealed" else "partial" if attempt.code == CUT_OFF else "abandoned",
        summary=attempt.summary,
        tokens=attempt.tokens,
        usd=attempt.usd,
        dir=folder,
    )
    # Most attempts have no code, and setting four fields to None for each takes as long as the rest.
    return row if attempt.code is None else _with_code(row, attempt.code, attempt.summary)


def _with_summary(row: AttemptRow, summary: AttemptSummary) -> AttemptRow:
    tokens = None if summary.tokens is None else summary.tokens.total
    return _with_code(msgspec.structs.replace(row, summary=summary, tokens=tokens), summary.code, summary)


def _with_code(row: AttemptRow, code: str | None, summary: AttemptSummary | None) -> AttemptRow:
    return msgspec.structs.replace(row, code=code, **advice(code), detail=None if summary is None else summary.detail)
