"""The state of a campaign: its trials, and of each trial its attempts and which of them counts."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import msgspec

from proctor.errors import EvidenceError
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import Expectation
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths, RunPaths
from proctor.evidence.reader import Finding
from proctor.evidence.summary import UNKNOWN, AttemptSummary
from proctor.ids import CampaignId, Digest, FlowId, MissionId, RunId, RuntimeId, TrialId
from proctor.ledger.reader import is_live, read_ledger
from proctor.ledger.schema import LedgerAttempt, LedgerContents, LedgerTrial, replaced_from
from proctor.plan.progress import RetryBudget, fold_attempts
from proctor.plan.recover import CUT_OFF
from proctor.report.classify import classify
from proctor.report.evidence_index import EvidenceIndex, FolderReading, with_code
from proctor.report.planned import PlanSummary, SnapshotIndex, read_frozen, read_plan
from proctor.report.row import AttemptRow, find_chain, sum_chain

if TYPE_CHECKING:
    from proctor.report.check_ledger import LedgerLimits

_NO_RETRIES = RetryBudget(retries=0)
"""For attempts without a readable plan."""


class TrialResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A trial with its attempts, oldest first."""

    id: TrialId | None
    """Id of the trial; None for an attempt that does not say which trial it belongs to."""
    mission: MissionId | None
    """Its mission; None if unknown."""
    flow: FlowId | None
    """Its flow; None if unknown."""
    repeat: int | None
    """Its repeat, from 1; None if unknown."""
    digest: Digest | None
    """Digest of everything that determines what runs; None if there is no ledger."""
    attempts: tuple[AttemptRow, ...] = ()
    """Its attempts."""
    counted_attempt: AttemptRow | None = None
    """The attempt that counts: the result, or else the last one. None if the trial was never tried."""
    result: str | None = None
    """What the result is (see `classify`); None if the trial has no result."""
    is_settled: bool = False
    """Whether the result is final, so that no run tries the trial again by itself."""
    first_attempt: AttemptRow | None = None
    """The attempt that counted before a replacement of the result was requested. None unless one was."""
    first_result: str | None = None
    """What its result is."""

    @property
    def last(self) -> AttemptRow | None:
        """The latest attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def chain(self) -> tuple[AttemptRow, ...]:
        """The attempts that the counted one continues after a wait, oldest first, and then that one."""
        counted = self.counted_attempt
        if counted is None or counted.continues is None:
            return () if counted is None else (counted,)
        return find_chain(counted, {row.attempt_id: row for row in self.attempts})

    @property
    def measured(self) -> AttemptRow | None:
        """The attempt that counts, with usage, cost and duration of its whole chain."""
        chain = self.chain
        return sum_chain(chain) if len(chain) > 1 else self.counted_attempt

    @property
    def is_scripted(self) -> bool:
        """Whether the scripted model answered in the attempt that counts. False if unknown."""
        return self.counted_attempt is not None and self.counted_attempt.is_scripted


@dataclass(frozen=True, kw_only=True)
class CampaignState:
    """A campaign, or the attempts of one folder, as its evidence shows it now."""

    campaign_id: CampaignId | None
    has_ledger: bool = False
    """Whether this comes from the campaign's ledger, and not from folders alone."""
    contents: LedgerContents = field(default_factory=LedgerContents)
    """The ledger; empty without one."""
    run_ids: tuple[RunId, ...] = ()
    plan: PlanSummary | None = None
    """None if it cannot be read."""
    frozen: SnapshotIndex = field(default_factory=SnapshotIndex)
    """The index of the frozen spec; empty if it cannot be read."""
    fold: "LedgerFold | None" = None
    """Folds the ledger's attempts into trials; None without a ledger."""
    folded: tuple[TrialResult, ...] = ()
    """The trials, if there is no ledger."""
    is_running: bool = False
    is_checked: bool = False
    """Whether the evidence of the attempts was examined."""
    findings: tuple[Finding, ...] = ()
    """What is wrong with evidence that belongs to no single attempt."""

    @cached_property
    def attempts(self) -> tuple[AttemptRow, ...]:
        """All attempts, in plan order."""
        return tuple(row for trial in self.trials for row in trial.attempts)

    @cached_property
    def trials(self) -> tuple[TrialResult, ...]:
        """All trials, in plan order."""
        return self.folded if self.fold is None else tuple(map(self.fold.trial, self.contents.trials))

    @cached_property
    def kinds(self) -> list[tuple[TrialResult, int]]:
        """The trials grouped by how they ended: the first of each group and their number.

        Few of ten thousand trials end differently, and a command that only counts them needs no other row.
        """
        if self.fold is None or self.is_checked:
            return _count_alike((_ending_key(each), each) for each in self.trials)
        return [(self.fold.trial(each), number) for each, number in _count_alike(self.fold.keys(self.contents.trials))]

    def count(self, is_wanted: Callable[[TrialResult], bool] = lambda _: True) -> int:
        """Count the trials that match. All trials of a kind do, or none."""
        return sum(number for each, number in self.kinds if is_wanted(each))

    def matching(self, is_wanted: Callable[[TrialResult], bool]) -> list[TrialResult]:
        """Return the trials that match, in plan order. All trials of a kind do, or none."""
        if not any(is_wanted(each) for each, _ in self.kinds):
            return []
        return [each for each in self.trials if is_wanted(each)]


# ── from the ledger ──


def load_state(campaign: CampaignPaths, *, root: RootPaths, index: EvidenceIndex | None = None) -> CampaignState:
    """Load a campaign from its ledger. Raises EvidenceError if the ledger or the plan cannot be read."""
    state = load_ledger_state(campaign, root=root, index=index)
    for finding in state.findings:
        raise EvidenceError(finding.code, finding.detail, file=finding.file)
    return state


def load_ledger_state(campaign: CampaignPaths, *, root: RootPaths, index: EvidenceIndex | None = None) -> CampaignState:
    """Load a campaign from its ledger, with a finding if the plan cannot be read. Raises EvidenceError.

    Folders are opened only if the index checks them, or if the ledger does not say how an attempt ended.
    """
    is_running = is_live(campaign)  # asked first, so that what ends meanwhile is reported as running
    contents = read_ledger(campaign)
    findings: tuple[Finding, ...] = ()
    plan = None
    try:
        plan = read_plan(campaign)
    except EvidenceError as error:
        findings = (_plan_finding(error, is_early=not contents.attempts_of, is_running=is_running),)
    index = index or EvidenceIndex()
    state = CampaignState(
        campaign_id=CampaignId(campaign.folder.name),
        has_ledger=True,
        contents=contents,
        run_ids=tuple(run.id for run in contents.runs),
        plan=plan,
        frozen=read_frozen(campaign, read=index.read_file),
        is_running=is_running,
        is_checked=index.check is not None,
        findings=findings,
    )
    return _fold_ledger(state, root=root, index=index, limits=_read_limits(campaign, state, index))


def without_check(state: CampaignState, *, root: RootPaths, index: EvidenceIndex) -> CampaignState:
    """Return a campaign as its ledger alone describes it."""
    if not state.has_ledger:
        return state
    return _fold_ledger(replace(state, is_checked=False), root=root, index=index, limits=None)


def _fold_ledger(
    state: CampaignState, *, root: RootPaths, index: EvidenceIndex, limits: "LedgerLimits | None"
) -> CampaignState:
    plan, contents = state.plan, state.contents
    fold = LedgerFold(
        campaign_id=state.campaign_id or CampaignId(""),
        is_running=state.is_running,
        attempts_of=contents.attempts_of,
        retry_budget=_NO_RETRIES if plan is None else plan.retry_budget,
        runtimes={} if plan is None else {flow.id: flow.runtime for flow in plan.flows},
        attempt_folders={run_id: f"{root.run(run_id).folder}/attempts/" for run_id in state.run_ids},
        index=index,
        limits=limits,
        replaced_from=replaced_from(contents.replacements),
    )
    return replace(state, fold=fold)


def _read_limits(campaign: CampaignPaths, state: CampaignState, index: EvidenceIndex) -> "LedgerLimits | None":
    if not state.is_checked:
        return None
    # Imported here because a command that checks nothing does not need it, and would start much slower.
    from proctor.report.check_ledger import read_limits

    return read_limits(campaign, state=state, read=index.read_file)


def _plan_finding(error: EvidenceError, *, is_early: bool, is_running: bool) -> Finding:
    """Return the finding for a plan that cannot be read. The plan is the last file of the set-up of a campaign."""
    finding = Finding.of(error)
    if not is_early or error.code != "evidence.missing-file":
        return finding
    return msgspec.structs.replace(finding, code="evidence.running" if is_running else "evidence.partial")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFold:
    """Folds the ledger's attempts of a campaign into trials with their rows."""

    campaign_id: CampaignId
    is_running: bool
    attempts_of: Mapping[TrialId, Sequence[LedgerAttempt]]
    retry_budget: RetryBudget
    runtimes: Mapping[FlowId, tuple[RuntimeId, ...]]
    attempt_folders: Mapping[RunId, str]  # joining paths for each of 10,000 rows would take longer than all the rest
    index: EvidenceIndex
    limits: "LedgerLimits | None"  # None if nothing is checked
    replaced_from: Mapping[TrialId, Collection[int]]

    def keys(self, trials: Iterable[LedgerTrial]) -> Iterator[tuple[object, LedgerTrial]]:
        """Yield each trial with a key that trials have in common only if they ended alike."""
        for trial in trials:
            attempt = self._only_result(trial)
            if attempt is not None and attempt.summary is not None:
                yield (attempt.code, _verdict_key(attempt.summary)), trial
            else:
                yield _ending_key(self.trial(trial)), trial

    def _only_result(self, trial: LedgerTrial) -> LedgerAttempt | None:
        """Return the attempt of a trial that ended well at once, as most of ten thousand do; None for any other."""
        attempts = self.attempts_of.get(trial.id, ())
        if len(attempts) != 1 or trial.id in self.replaced_from:
            return None
        [attempt] = attempts
        # Such an attempt settles its trial whatever the retry budget is: `fold_attempts` says the same.
        return attempt if attempt.outcome is Outcome.COMPLETED and attempt.state == "sealed" else None

    def rows(self, trials: Iterable[LedgerTrial]) -> Iterator[AttemptRow]:
        """Yield the attempts of trials."""
        for trial in trials:
            if (attempt := self._only_result(trial)) is not None:
                yield self._row(trial, attempt)
            else:
                yield from self.trial(trial).attempts

    def trial(self, trial: LedgerTrial) -> TrialResult:
        """Fold the trial's attempts as a resumed run does."""
        if (attempt := self._only_result(trial)) is not None:
            row = self._row(trial, attempt)
            return TrialResult(
                id=trial.id,
                mission=trial.mission,
                flow=trial.flow,
                repeat=trial.repeat,
                digest=trial.digest,
                attempts=(row,),
                counted_attempt=row,
                result=classify(row),
                is_settled=True,
            )
        attempts = self.attempts_of.get(trial.id, ())
        rows = [self._row(trial, each) for each in attempts]
        running = [each for each in attempts if each.state == "running"]
        endings = list(map(_ending_of, attempts, rows)) if running else attempts
        return _fold_trial(
            rows,
            endings,
            self.retry_budget,
            self.replaced_from.get(trial.id, ()),
            id=trial.id,
            mission=trial.mission,
            flow=trial.flow,
            repeat=trial.repeat,
            digest=trial.digest,
        )

    def _row(self, trial: LedgerTrial, attempt: LedgerAttempt) -> AttemptRow:
        row = AttemptRow(
            attempt_id=attempt.id,
            run_id=attempt.run,
            campaign_id=self.campaign_id,
            trial=trial.id,
            mission_id=trial.mission,
            flow_id=trial.flow,
            repeat=trial.repeat,
            n=attempt.n,
            runtime_id=attempt.runtime_id or self._only_runtime(trial.flow),
            state="sealed" if attempt.state == "sealed" else "partial" if attempt.code == CUT_OFF else "abandoned",
            summary=attempt.summary,
            tokens=attempt.tokens,
            usd=attempt.usd,
            dir=self.attempt_folders[attempt.run] + attempt.id,
        )
        # Most attempts have no code, and setting four fields to None for each takes as long as the rest.
        row = row if attempt.code is None else with_code(row, attempt.code)
        if attempt.state == "running":
            row = self._running_row(row)
        elif row.runtime_id is None:
            # An abandoned attempt: only its folder says which runtime of the chain it was.
            row = msgspec.structs.replace(row, runtime_id=self._folder(row).row.runtime_id)
        return row if self.limits is None else self._checked_row(row, attempt, self.limits)

    def _only_runtime(self, flow: FlowId) -> RuntimeId | None:
        chain = self.runtimes.get(flow, ())
        return chain[0] if len(chain) == 1 else None

    def _folder(self, row: AttemptRow) -> FolderReading:
        return self.index.read(AttemptPaths(Path(row.dir)))

    def _running_row(self, row: AttemptRow) -> AttemptRow:
        """Return what the folder says: the ledger does not know how the attempt ended."""
        found = self._folder(row).row
        return msgspec.structs.replace(
            found,
            campaign_id=row.campaign_id,
            trial=row.trial,
            mission_id=row.mission_id,
            flow_id=row.flow_id,
            repeat=row.repeat,
            n=row.n,
            state="running" if found.state == "partial" and self.is_running else found.state,
        )

    def _checked_row(self, row: AttemptRow, attempt: LedgerAttempt, limits: "LedgerLimits") -> AttemptRow:
        """Return what the folder says, with what is wrong with it and with the ledger's row."""
        from proctor.report.check_ledger import folder_findings

        # The ledger names an attempt before its folder exists.
        if row.state == "running" or (attempt.state != "sealed" and not os.path.lexists(row.dir)):
            return msgspec.structs.replace(row, evidence="partial")
        folder = self._folder(row)
        found = folder.row if row.state == "sealed" else row
        if row.state == "sealed" and found.state == "partial":
            found = msgspec.structs.replace(row, state="unreadable")
        wrong = tuple(folder_findings(row, attempt, folder, limits=limits))
        is_false = self.index.is_strict and any(finding.code == "evidence.ledger" for finding in wrong)
        is_invalid = is_false or folder.evidence == "invalid" or found.state == "unreadable"
        # Which attempt counts, and what it cost by the frozen prices, is in no file of the attempt.
        found = msgspec.structs.replace(
            found,
            usd=row.usd,
            evidence="invalid" if is_invalid else folder.evidence,
            findings=tuple(dict.fromkeys((*folder.findings, *wrong))),
        )
        if not is_invalid:
            return found
        # What invalid evidence says is unknown and never verified; mission, flow and tokens are known from the ledger.
        return msgspec.structs.replace(
            found,
            mission_id=row.mission_id,
            flow_id=row.flow_id,
            tokens=row.tokens,
            summary=_without_verdict(found.summary),
        )


def _without_verdict(summary: AttemptSummary | None) -> AttemptSummary | None:
    if summary is None:
        return None
    unknown = Expectation(met=None, keys={}, unmet=())
    return msgspec.structs.replace(
        summary,
        verified=None,
        judged=None,
        expectation=unknown,
        result=UNKNOWN,
        is_expected=None,
        unjudged=None,
        reasons=("its evidence is invalid",),
        reason_codes=(),
    )


def _ending_of(attempt: LedgerAttempt, row: AttemptRow) -> LedgerAttempt:
    """Return how an attempt ended, by its seal if the ledger still calls it running."""
    if attempt.state != "running" or row.state != "sealed" or row.summary is None:
        return attempt
    return attempt.rebuild(row.summary)


class _TrialKey(TypedDict):
    """The fields that identify a trial."""

    id: TrialId | None
    mission: MissionId | None
    flow: FlowId | None
    repeat: int | None
    digest: Digest | None


def _fold_trial(
    rows: Sequence[AttemptRow],
    endings: Sequence[LedgerAttempt],
    retry_budget: RetryBudget,
    replaced_from: Collection[int] = (),
    **trial: Unpack[_TrialKey],
) -> TrialResult:
    """Return a trial with its attempts. `endings` are the same attempts as the fold takes them."""
    if not rows:
        return TrialResult(**trial)
    progress = fold_attempts(endings, retry_budget=retry_budget, replaced_from=replaced_from)
    at = next((at for at, each in enumerate(endings) if each.n == progress.result), len(rows) - 1)
    first = None
    if replaced_from:
        first_n = fold_attempts(endings, retry_budget=retry_budget).result
        first = next((row for row, each in zip(rows, endings, strict=True) if each.n == first_n), None)
    if len(rows) > 1:
        rows = [row if n == at else msgspec.structs.replace(row, is_superseded=True) for n, row in enumerate(rows)]
    return TrialResult(
        **trial,
        attempts=tuple(rows),
        counted_attempt=rows[at],
        result=None if progress.result is None else classify(rows[at]),
        is_settled=progress.is_settled,
        first_attempt=first,
        first_result=None if first is None else classify(first),
    )


# ── from folders ──


def load_folders(
    folders: Iterable[AttemptPaths],
    *,
    index: EvidenceIndex,
    campaign_id: CampaignId | None = None,
    findings: tuple[Finding, ...] = (),
) -> CampaignState:
    """Load attempts from their folders alone. With `campaign_id`, only those of that campaign."""
    rows = [_checked_folder(index.read(paths)) for paths in folders]
    if campaign_id is not None:
        rows = [row for row in rows if row.campaign_id == campaign_id]
    rows.sort(key=lambda row: (row.trial or "", row.n or 0))
    campaigns = {row.campaign_id for row in rows}
    return CampaignState(
        campaign_id=campaign_id or (campaigns.pop() if len(campaigns) == 1 else None),
        run_ids=tuple(dict.fromkeys(row.run_id for row in rows)),
        folded=fold_rows(rows),
        is_checked=index.check is not None,
        findings=findings,
    )


def load_run(run: RunPaths, *, index: EvidenceIndex) -> CampaignState:
    """Load the attempts of a run from its folder."""
    run_ids = (RunId(run.folder.name),)
    try:
        return replace(load_folders(run.attempts(), index=index), run_ids=run_ids)
    except OSError as error:
        finding = Finding(code="evidence.unreadable", file=run.folder.name, detail=os.strerror(error.errno or 0))
        return CampaignState(campaign_id=None, run_ids=run_ids, findings=(finding,))


def fold_rows(rows: Iterable[AttemptRow]) -> tuple[TrialResult, ...]:
    """Group attempts, oldest first, into trials. One that does not name its trial is alone."""
    trials: dict[object, list[AttemptRow]] = {}
    for row in rows:
        # A new object is equal to nothing else.
        trials.setdefault(object() if row.trial is None else row.trial, []).append(row)
    return tuple(map(_fold_rows_of_trial, trials.values()))


def _checked_folder(folder: FolderReading) -> AttemptRow:
    row = folder.row
    findings = tuple(dict.fromkeys((*row.findings, *folder.findings)))
    row = msgspec.structs.replace(row, evidence=folder.evidence, findings=findings)
    if not row.is_invalid:
        return row
    return msgspec.structs.replace(row, evidence="invalid", tokens=None, summary=_without_verdict(row.summary))


def _fold_rows_of_trial(rows: Sequence[AttemptRow]) -> TrialResult:
    first = rows[0]
    return _fold_trial(
        rows,
        list(map(_ending, rows, count())),
        _NO_RETRIES,
        id=first.trial,
        mission=first.mission_id,
        flow=first.flow_id,
        repeat=first.repeat,
        digest=None,
    )


def _ending(row: AttemptRow, at: int) -> LedgerAttempt:
    """Return how an attempt ended, as its folder says. One that was sealed and cannot be read was a result too."""
    is_unreadable = row.state == "unreadable"
    return LedgerAttempt(
        id=row.attempt_id,
        trial=row.trial or TrialId(""),
        n=at,
        run=row.run_id,
        state="sealed" if is_unreadable or row.state == "sealed" else "abandoned",
        started_at_ms=0,
        outcome=Outcome.UNKNOWN if is_unreadable else row.outcome,
        code="evidence.unreadable" if is_unreadable else row.code,
    )


# ── everything under a root ──

STAMP_CHARS = len("YYYYMMDD-hhmmss-xxxxxx")
"""Length of the time that ends a campaign's id."""


def campaigns_by_age(root: RootPaths) -> list[CampaignPaths]:
    """Return the campaigns under a root, oldest first, by the time that ends their ids."""
    return sorted(root.campaigns(), key=lambda campaign: campaign.folder.name[-STAMP_CHARS:])


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptList:
    """Every attempt under an evidence root, oldest first."""

    rows: tuple[AttemptRow, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What is wrong with ledgers and runs."""


def list_attempts(root: RootPaths) -> AttemptList:
    """List every attempt of a root. Folders are opened only if no ledger says how an attempt ended."""
    rows: list[AttemptRow] = []
    findings: list[Finding] = []
    known: set[RunId] = set()
    index = EvidenceIndex()
    for campaign in campaigns_by_age(root):
        try:
            state = load_ledger_state(campaign, root=root, index=index)
        except EvidenceError as error:
            findings.append(ledger_finding(campaign, error))
            continue
        rows += () if state.fold is None else state.fold.rows(state.contents.trials)
        known.update(state.run_ids)
    for run in root.runs():
        if run.folder.name not in known:
            state = load_run(run, index=index)
            rows += state.attempts
            findings += state.findings
    return AttemptList(rows=tuple(rows), findings=tuple(findings))


def ledger_finding(campaign: CampaignPaths, error: EvidenceError) -> Finding:
    """Return the finding for a ledger that cannot be read."""
    return Finding(code=error.code, file=f"{campaign.folder.name}/{error.file}", detail=error.what)


# ── counting ──


T = TypeVar("T")


def _count_alike(keyed: Iterable[tuple[object, T]]) -> list[tuple[T, int]]:
    """Group what has the same key: the first of each group and their number."""
    groups: dict[object, list[T]] = {}
    for key, each in keyed:
        # Looked up once: hashing a key takes longer than anything else here.
        if (group := groups.get(key)) is None:
            group = groups[key] = []
        group.append(each)
    return [(group[0], len(group)) for group in groups.values()]


def _ending_key(trial: TrialResult) -> tuple[object, ...] | None:
    """Return everything about the end of a trial that a report counts or selects by."""
    counted, last = trial.counted_attempt, trial.last
    if counted is None or last is None:
        return None
    verdict = () if counted.summary is None else _verdict_key(counted.summary)
    return (trial.result, trial.is_settled, counted.state, counted.evidence, counted.code, last.state, verdict)


def _verdict_key(summary: AttemptSummary) -> tuple[object, ...]:
    return (
        summary.outcome,
        summary.claimed,
        summary.verified,
        summary.judged,
        summary.expectation.met,
        summary.result,
        summary.is_expected,
        summary.unjudged,
        summary.required_probes > 0,
        summary.is_scripted,
        summary.continues is not None,
    )
