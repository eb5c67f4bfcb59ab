"""What nobody saw the end of, as the next run finds it."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from proctor.campaign.reconcile import reconcile
from proctor.event.outcome import Outcome
from proctor.evidence.layout import RootPaths
from proctor.ids import AttemptId, RunId, TrialId
from proctor.ledger import writer
from proctor.ledger.schema import DATABASE, LedgerAttempt
from proctor.ledger.writer import Ledger
from proctor.plan.progress import RetryBudget, fold_trials
from proctor.plan.recover import CUT_OFF

HOUR_MS = 3_600_000
RUNNING = LedgerAttempt(AttemptId("m.f.r1.1"), TrialId("m.f.r1"), 1, RunId("run"), "running", HOUR_MS)


@pytest.fixture
def book() -> Iterator[Ledger]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(DATABASE.schema)
        yield Ledger(connection)


def resumed(book: Ledger, root: Path, *, at_ms: int) -> LedgerAttempt:
    """The attempt after a run that was killed with it, resumed then."""
    book.apply(
        [
            ("insert into trial values ('m.f.r1', 'm', 'f', 1, 'sha256:0')", ()),
            ("insert into run (id, began_at_ms) values ('run', ?)", (HOUR_MS,)),
            writer.start_attempt(RUNNING.id, trial=RUNNING.trial, n=1, run=RUNNING.run, at_ms=HOUR_MS),
        ]
    )
    statements = reconcile(book.attempts(state="running"), root=RootPaths(root), at_ms=at_ms, usd_of=lambda *_: None)
    book.apply([*statements])
    [tried] = book.attempts()
    return tried


def write_frames(root: Path, *, grown_at_ms: int) -> None:
    frames = RootPaths(root).run(RUNNING.run).attempt(RUNNING.trial, n=1).frames
    frames.parent.mkdir(parents=True)
    frames.write_bytes(b"")
    os.utime(frames, ns=(0, grown_at_ms * 1_000_000))


@pytest.mark.requirement("campaign.resume")
def test_the_night_between_a_kill_and_its_resume_counts_for_no_limit(book: Ledger, tmp_path: Path) -> None:
    write_frames(tmp_path, grown_at_ms=HOUR_MS + 5000)
    tried = resumed(book, tmp_path, at_ms=9 * HOUR_MS)
    assert (tried.state, tried.outcome, tried.code, tried.took_ms) == ("abandoned", Outcome.UNKNOWN, CUT_OFF, 5000)
    assert book.took_ms() == 5000
    retry_budget = RetryBudget(retries=0, mission_ms=60_000)
    assert retry_budget.left_ms(fold_trials([tried], retry_budget=retry_budget)[RUNNING.trial].took_ms) == 55_000


def test_one_that_was_silent_took_as_long_as_its_run_was_heard_of(book: Ledger, tmp_path: Path) -> None:
    write_frames(tmp_path, grown_at_ms=HOUR_MS + 5000)
    silent = LedgerAttempt(AttemptId("m.f.r2.1"), TrialId("m.f.r2"), 1, RUNNING.run, "running", HOUR_MS + 1000)
    running = [
        RUNNING,
        silent,
        LedgerAttempt(AttemptId("m.f.r3.1"), TrialId("m.f.r3"), 1, RunId("other"), "running", HOUR_MS),
    ]
    found = reconcile(running, root=RootPaths(tmp_path), at_ms=9 * HOUR_MS, usd_of=lambda *_: None)
    assert [values[0] for _, values in found] == [HOUR_MS + 5000, HOUR_MS + 5000, HOUR_MS]


def test_an_attempt_that_left_no_record_took_no_time(book: Ledger, tmp_path: Path) -> None:
    assert resumed(book, tmp_path, at_ms=9 * HOUR_MS).took_ms == 0


def test_a_record_from_the_future_took_no_longer_than_until_now(book: Ledger, tmp_path: Path) -> None:
    write_frames(tmp_path, grown_at_ms=99 * HOUR_MS)
    assert resumed(book, tmp_path, at_ms=2 * HOUR_MS).took_ms == HOUR_MS
