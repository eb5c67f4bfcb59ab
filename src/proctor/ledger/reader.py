"""Read a campaign's ledger, read-only. Every defect of the file is an EvidenceError."""

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from proctor import decoding
from proctor.errors import EvidenceError
from proctor.event.outcome import Outcome
from proctor.evidence.database import address
from proctor.evidence.disk import open_descriptor
from proctor.evidence.layout import CampaignPaths
from proctor.ids import FlowId, RunId, RuntimeId, TrialId
from proctor.ledger.schema import (
    ATTEMPTS,
    CAMPAIGN,
    DATABASE,
    REPLACEMENTS,
    RUNS,
    TRIALS,
    VERSION,
    LedgerAttempt,
    LedgerCampaign,
    LedgerContents,
    LedgerReplacement,
    LedgerRun,
    LedgerTrial,
    decode_attempts,
)

_OUTCOMES = "select runtime, outcome, code, count(*) from attempt where state = 'sealed' group by 1, 2, 3"
_COSTS = """
select count(usd), coalesce(sum(usd), 0.0) from attempt join trial on trial.id = attempt.trial
where flow = ? and state = 'sealed'
"""


class LedgerOutcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How many attempts on a runtime were sealed with one ending."""

    runtime_id: RuntimeId
    outcome: Outcome | None
    code: str | None
    number: int


def read_ledger(campaign: CampaignPaths) -> LedgerContents:
    """Read the whole ledger as of one moment."""
    with _open(campaign) as connection:
        row = connection.execute(CAMPAIGN).fetchone()
        origin = None if row is None else decoding.convert(row, LedgerCampaign)
        trials = decoding.convert(connection.execute(TRIALS).fetchall(), tuple[LedgerTrial, ...])
        # Not ordered by SQL: sorting the few attempts of each trial is faster than sorting 10,000 rows.
        attempts = decode_attempts(connection.execute(ATTEMPTS))
        runs = decoding.convert(connection.execute(RUNS).fetchall(), tuple[LedgerRun, ...])
        replacements = decoding.convert(connection.execute(REPLACEMENTS).fetchall(), tuple[LedgerReplacement, ...])
    known_trials, known_runs = {trial.id for trial in trials}, {run.id for run in runs}
    for each in replacements:
        if each.trial not in known_trials or each.run not in known_runs:
            what = f"a replacement in an unknown trial ({each.trial}) or run ({each.run})"
            raise EvidenceError("evidence.ledger", what, file="ledger.db")
    return LedgerContents(
        campaign=origin,
        runs=runs,
        trials=trials,
        attempts_of=_by_trial(attempts, trials=known_trials, runs=known_runs),
        replacements=replacements,
    )


def read_origin(path: Path) -> LedgerCampaign | None:
    """Read what a campaign was started with, to resume it; None if set-up was cut off before that.

    Raises MachineError, as everything that runs a campaign does.
    """
    with DATABASE.read(path) as connection:
        [tables] = connection.execute("select count(*) from sqlite_master where name = 'campaign'").fetchone()
        row = connection.execute(CAMPAIGN).fetchone() if tables else None
        return None if row is None else decoding.convert(row, LedgerCampaign)


def has_runs(path: Path) -> bool:
    """Whether there is a ledger with at least one run. Creates nothing. Raises MachineError."""
    if not path.is_file():
        return False
    with DATABASE.read(path) as connection:
        [tables] = connection.execute("select count(*) from sqlite_master").fetchone()
        return bool(tables) and connection.execute("select 1 from run").fetchone() is not None


def read_run_ids(campaign: CampaignPaths) -> tuple[RunId, ...]:
    """Read the ids of the campaign's runs."""
    with _open(campaign) as connection:
        rows = decoding.convert(connection.execute("select id from run").fetchall(), list[tuple[RunId]])
        return tuple(id_ for (id_,) in rows)


def read_outcomes(campaign: CampaignPaths) -> tuple[LedgerOutcome, ...]:
    """Count the sealed attempts by runtime, outcome and code."""
    with _open(campaign) as connection:
        return decoding.convert(connection.execute(_OUTCOMES).fetchall(), tuple[LedgerOutcome, ...])


def read_costs(path: Path, *, flow: FlowId) -> tuple[int, float]:
    """Return how many sealed attempts of a flow have a known cost, and their sum in US dollars. Raises MachineError."""
    with DATABASE.read(path) as connection:
        count, usd = connection.execute(_COSTS, (flow,)).fetchone()
        return count, usd


@contextmanager
def _open(campaign: CampaignPaths) -> Iterator[sqlite3.Connection]:
    path = campaign.ledger
    # The plan is the last file of the set-up: a ledger without one was cut off while it was made.
    code = "evidence.ledger" if os.path.lexists(campaign.plan) else "evidence.partial"
    if not os.path.lexists(path):
        raise EvidenceError(code, "absent", file=path.name)
    if path.is_symlink() or not path.is_file():
        raise EvidenceError("evidence.containment", "not a regular file", file=path.name)
    try:
        with closing(sqlite3.connect(address(path), uri=True, timeout=5.0)) as connection:
            # Before the first statement that needs a lock, so that all statements see one state.
            connection.execute("begin")
            [application] = connection.execute("pragma application_id").fetchone()
            if application != DATABASE.application:
                raise EvidenceError(code, "not a ledger of Proctor", file=path.name)
            [version] = connection.execute("pragma user_version").fetchone()
            if version != VERSION:
                what = f"schema version is {version}; this Proctor reads only {VERSION}"
                raise EvidenceError("evidence.version", what, file=path.name)
            yield connection
    except (sqlite3.Error, msgspec.ValidationError, UnicodeError, OverflowError) as error:
        raise EvidenceError(code, str(error), file=path.name) from error


def _by_trial(
    attempts: Iterable[LedgerAttempt], *, trials: set[TrialId], runs: set[RunId]
) -> dict[TrialId, list[LedgerAttempt]]:
    """Group attempts by trial, oldest first.

    Raises EvidenceError if the trial or the run does not exist, or if no folder can have the name of the attempt.
    """
    grouped: dict[TrialId, list[LedgerAttempt]] = {}
    retried: list[list[LedgerAttempt]] = []
    for each in attempts:
        trial = each.trial
        if trial not in trials or each.run not in runs or each.id != f"{trial}.{each.n}":
            what = f"{each.id} is not attempt {each.n} of a known trial ({trial}) in a known run ({each.run})"
            raise EvidenceError("evidence.ledger", what, file="ledger.db")
        if "/" in trial or trial[:1] in ("", "."):
            raise EvidenceError("evidence.ledger", f"no attempt can lie at {each.run}/{each.id}", file="ledger.db")
        if (group := grouped.get(trial)) is None:
            grouped[trial] = [each]
        else:
            group.append(each)
            if len(group) == 2:
                retried.append(group)
    for group in retried:
        group.sort(key=lambda attempt: attempt.n)
    return grouped


def is_live(campaign: CampaignPaths) -> bool:
    """Whether a running Proctor holds the campaign's lock. The kernel releases the lock of a dead one."""
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
