"""Brings the ledger up to date with the evidence: attempts that never ended in it, and attempts missing from it."""

import re
from collections.abc import Iterable, Iterator
from functools import partial

from proctor.attempt.recheck import derive_again
from proctor.campaign.spending import UsdOf
from proctor.errors import EvidenceError, ProctorError
from proctor.event.model import Tokens
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import AttemptPaths, RootPaths
from proctor.evidence.reader import read_artifact
from proctor.evidence.seal import check_seal
from proctor.evidence.summary import summarize
from proctor.evidence.unlisted_attempts import attempt_names, find_unlisted_attempts, owners_of_runs
from proctor.ids import AttemptId, CampaignId, RunId, TrialId
from proctor.ledger import writer
from proctor.ledger.schema import LedgerAttempt
from proctor.ledger.writer import Ledger, Statement
from proctor.plan.model import Plan
from proctor.plan.recover import CUT_OFF, LATER, remedy

# The number of an attempt: larger than any real one, and small enough for the database.
_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


def adopt(ledger: Ledger, plan: Plan, *, root: RootPaths, campaign_id: CampaignId, at_ms: int) -> Iterator[Statement]:
    """Yield a running row for each attempt that is on disk but not in the ledger; `reconcile` then settles it.

    This keeps their numbers from being used again. An attempt whose number another one already has in the ledger is
    left alone; `validate` reports it.
    """
    named: dict[RunId, set[str]] = {run_id: set() for run_id in ledger.runs()}
    known: set[tuple[str, int]] = set()
    for each in ledger.attempts():
        named.setdefault(each.run, set()).add(each.id)
        known.add((each.trial, each.n))
    trials = {trial.id for trial in plan.trials}
    on_disk = partial(attempt_names, root)
    for run_id, name in find_unlisted_attempts(campaign_id, named=named, owners=owners_of_runs(root), on_disk=on_disk):
        trial, _, n = name.rpartition(".")
        if trial not in trials or _NUMBER.fullmatch(n) is None or (trial, int(n)) in known:
            continue
        paths = root.run(run_id).attempt(TrialId(trial), n=int(n))
        began_at_ms = _began_at_ms(paths, campaign_id=campaign_id, at_ms=at_ms)
        if began_at_ms is not None:
            known.add((trial, int(n)))
            yield writer.restore_run(run_id, at_ms=began_at_ms)
            yield writer.start_attempt(AttemptId(name), trial=TrialId(trial), n=int(n), run=run_id, at_ms=began_at_ms)


def _began_at_ms(paths: AttemptPaths, *, campaign_id: CampaignId, at_ms: int) -> int | None:
    """Return when an attempt began; None if it belongs to another campaign.

    An attempt without a record, because it was cut off early, belongs to the run whose folder it is in.
    """
    try:
        record = read_artifact(paths.attempt, AttemptRecord)
    except EvidenceError:
        return at_ms
    return record.created_at_ms if record.campaign_id == campaign_id else None


def reconcile(running: Iterable[LedgerAttempt], *, root: RootPaths, at_ms: int, usd_of: UsdOf) -> Iterator[Statement]:
    """Yield the ledger updates that seal or abandon the running attempts.

    The caller must hold the campaign's lock, so that no process still works on them.
    """
    folders = [(each, root.run(each.run).attempt(each.trial, n=each.n)) for each in running]
    heard_ms: dict[RunId, int] = {}
    for each, paths in folders:
        heard_ms[each.run] = max(heard_ms.get(each.run, 0), _grown_at_ms(paths))
    for each, paths in folders:
        # Until the last sign of life of its run: the time until a resume counts towards no limit.
        ended_at_ms = max(each.started_at_ms, min(at_ms, heard_ms[each.run]))
        with AttemptFiles(paths) as files:
            statement = _settle(each, files, at_ms=at_ms, cut_off_at_ms=ended_at_ms, usd_of=usd_of)
        yield statement


def _grown_at_ms(paths: AttemptPaths) -> int:
    """Return when the frames of an attempt were last written; 0 if there are none."""
    try:
        return paths.frames.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0


def reported_tokens(paths: AttemptPaths) -> Tokens | None:
    """Return the tokens that an attempt without a seal used, from the frames it left; None if they are not known."""
    with AttemptFiles(paths) as files:
        return _count_tokens(files)


def _count_tokens(files: AttemptFiles) -> Tokens | None:
    try:
        again = derive_again(files)
    except ProctorError:
        return None
    is_sound = all(finding.code == "evidence.torn" for finding in again.findings)
    usage = again.derived.metrics.usage
    return usage.tokens if is_sound and usage is not None else None


def _settle(tried: LedgerAttempt, files: AttemptFiles, *, at_ms: int, cut_off_at_ms: int, usd_of: UsdOf) -> Statement:
    if findings := check_seal(files):
        code = next((each.code for each in findings if each.code != "evidence.partial"), CUT_OFF)
        code = code if files.paths.seal.exists() else CUT_OFF
        return _abandon(tried, files, code=code, at_ms=cut_off_at_ms, usd_of=usd_of)
    try:
        report, record = files.report, files.record
    except EvidenceError as error:
        return _abandon(tried, files, code=error.code, at_ms=cut_off_at_ms, usd_of=usd_of)
    if (record.attempt_id, record.run_id, report.attempt_id) != (tried.id, tried.run, tried.id):
        # A copy of another attempt, which is no evidence for this one.
        return writer.abandon_attempt(tried.id, code="evidence.ids", at_ms=cut_off_at_ms)
    # When the attempt itself ended, not when Proctor was killed or resumed.
    ended_at_ms = min(at_ms, tried.started_at_ms + report.duration_ms)
    summary = summarize(record, report)
    usd = usd_of(record.flow_id, summary.tokens)
    after = remedy(summary.outcome, summary.code, has_begun=summary.has_begun)
    pause_ms = summary.retry_after_ms if after in LATER else None
    retry_at_ms = None if pause_ms is None else ended_at_ms + pause_ms
    return writer.seal_attempt(tried.id, summary, at_ms=ended_at_ms, retry_at_ms=retry_at_ms, usd=usd)


def _abandon(tried: LedgerAttempt, files: AttemptFiles, *, code: str, at_ms: int, usd_of: UsdOf) -> Statement:
    tokens = _count_tokens(files)
    if tokens is None:
        return writer.abandon_attempt(tried.id, code=code, at_ms=at_ms)
    usd = usd_of(files.record.flow_id, tokens)
    return writer.abandon_attempt(tried.id, code=code, at_ms=at_ms, tokens=tokens.total, usd=usd)
