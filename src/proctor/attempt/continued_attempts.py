"""Finds the attempts that an attempt continues, and checks that it agrees with them."""

from collections.abc import Iterator

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord, ContinuedFrom, RunnerRef
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import ATTEMPT, RUNNER_REF, AttemptPaths, RootPaths
from proctor.evidence.reader import Finding, read_artifact
from proctor.evidence.seal import check_seal
from proctor.ids import AttemptId
from proctor.plan.continuation import WAITS
from proctor.plan.recover import remedy


def open_earlier(paths: AttemptPaths, record: AttemptRecord) -> Iterator[AttemptFiles]:
    """Yield the files of the attempts that an attempt continues, oldest first. Each is open until the next one.

    They are looked for in the runs beside its own. Raises EvidenceError if the record of one cannot be read.
    """
    chain: list[AttemptPaths] = []
    while record.continued_from is not None and record.n > 1:
        chain.append(_paths_before(paths, record, record.continued_from))
        before = read_artifact(chain[-1].attempt, AttemptRecord)
        if before.n >= record.n:
            raise EvidenceError("evidence.continuation", "it continues itself", file=ATTEMPT)
        record = before
    for each in reversed(chain):
        with AttemptFiles(each) as files:
            yield files


def _paths_before(paths: AttemptPaths, record: AttemptRecord, taken: ContinuedFrom) -> AttemptPaths:
    return RootPaths(paths.folder.parents[3]).run(taken.run_id).attempt(record.trial, n=record.n - 1)


def check_continuation(files: AttemptFiles, record: AttemptRecord, ref: RunnerRef | None) -> Iterator[Finding]:
    """Yield where an attempt contradicts itself about how it started, or the attempt that it continues.

    That attempt is looked for in the runs beside its own.
    """
    continues, taken = record.continues, record.continued_from
    if (continues is None) is not (taken is None):
        yield _finding("only one of continues and continuedFrom is present")
    elif record.n == 1 and (continues is not None or record.fresh_start is not None):
        yield _finding("it is the first of its trial, and says how it follows from another one")
    elif continues is None or taken is None:
        return
    elif record.fresh_start is not None:
        yield _finding(f"it continues {continues}, and says why it does not: {record.fresh_start}")
    elif continues != f"{record.trial}.{record.n - 1}":
        yield _finding(f"it continues {continues}, which is not the attempt of its trial before it")
    else:
        if ref is not None:
            yield from _check_thread(continues, taken, ref)
        yield from _check_earlier(files.paths, record, continues, taken)


def _check_thread(continues: AttemptId, taken: ContinuedFrom, ref: RunnerRef) -> Iterator[Finding]:
    # A thread that the agent did not have any more has no name here.
    if ref.is_fresh_session or ref.thread_id not in (None, taken.thread_id):
        detail = f"the session is not the thread {taken.thread_id!r} of {continues}, which the attempt continues"
        yield _finding(detail, file=RUNNER_REF)


def _check_earlier(
    paths: AttemptPaths, record: AttemptRecord, continues: AttemptId, taken: ContinuedFrom
) -> Iterator[Finding]:
    """Compare with the files of the attempt before."""
    where = f"{taken.run_id}/{continues}"
    try:
        with AttemptFiles(_paths_before(paths, record, taken)) as earlier:
            if not earlier.is_sealed or check_seal(earlier):
                yield _finding(f"it continues {where}, which has no intact seal")
                return
            wrong = list(_find_wrong(record, taken, earlier))
    except EvidenceError as error:
        yield _finding(f"it continues {where}, which cannot be read: {error.what}")
        return
    if wrong:
        yield _finding(f"not what {where} says, which it continues: {', '.join(wrong)}")


def _find_wrong(record: AttemptRecord, taken: ContinuedFrom, earlier: AttemptFiles) -> Iterator[str]:
    """Yield what an attempt says that the one before does not."""
    before, report, ref = earlier.record, earlier.report, earlier.runner_ref
    chain = before.continued_from
    used = report.metrics.total_tokens
    known = (used or 0) + (0 if chain is None else chain.tokens)
    unknown = (used is None) + (0 if chain is None else chain.tokens_unknown)
    pairs = {
        "campaign": (record.campaign_id, before.campaign_id),
        "run": (taken.run_id, before.run_id),
        "trial": (record.trial_digest, before.trial_digest),
        "runtime": (record.runtime_id, before.runtime_id),
        "thread": (taken.thread_id, ref.thread_id),
        "untouched workspace": (record.workspace_digest, before.workspace_digest),
        "workspace": (taken.workspace_digest, report.workspace_digest_after),
        "tokens": ((taken.tokens, taken.tokens_unknown), (known, unknown)),
    }
    yield from (name for name, (here, there) in pairs.items() if here != there)
    if remedy(report.outcome, report.code, has_begun=report.metrics.turns > 0) not in WAITS:
        yield "that it waited"


def _finding(detail: str, *, file: str = ATTEMPT) -> Finding:
    return Finding(code="evidence.continuation", file=file, detail=detail)
