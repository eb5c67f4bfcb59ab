"""What nobody saw the end of, as the next run finds it."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from proctor.campaign import ledger
from proctor.campaign.ledger import SCHEMA, Ledger
from proctor.campaign.reconcile import reconcile
from proctor.event.outcome import Outcome
from proctor.evidence.layout import RootPaths
from proctor.ids import AttemptId, CellId, RunId
from proctor.plan.recover import CUT_OFF
from proctor.plan.standing import Patience, Tried, fold_cells

HOUR_MS = 3_600_000
CLAIMED = Tried(AttemptId("m.f.r1.1"), CellId("m.f.r1"), 1, RunId("run"), "claimed", HOUR_MS)


@pytest.fixture
def book() -> Iterator[Ledger]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(SCHEMA)
        yield Ledger(connection)


def resumed(book: Ledger, root: Path, *, at_ms: int) -> Tried:
    """The attempt after a run that was killed with it, resumed then."""
    book.apply(
        [
            ("insert into cell values ('m.f.r1', 'm', 'f', 1, 'sha256:0')", ()),
            ("insert into run (id, began_at_ms) values ('run', ?)", (HOUR_MS,)),
            ledger.claim(CLAIMED.id, cell=CLAIMED.cell, n=1, run=CLAIMED.run, at_ms=HOUR_MS),
        ]
    )
    statements = reconcile(book.tried(state="claimed"), root=RootPaths(root), at_ms=at_ms, usd_of=lambda *_: None)
    book.apply([*statements])
    [tried] = book.tried()
    return tried


def write_frames(root: Path, *, grown_at_ms: int) -> None:
    frames = RootPaths(root).run(CLAIMED.run).attempt(CLAIMED.cell, n=1).frames
    frames.parent.mkdir(parents=True)
    frames.write_bytes(b"")
    os.utime(frames, ns=(0, grown_at_ms * 1_000_000))


@pytest.mark.requirement("campaign.resume")
def test_the_night_between_a_kill_and_its_resume_counts_for_no_limit(book: Ledger, tmp_path: Path) -> None:
    write_frames(tmp_path, grown_at_ms=HOUR_MS + 5000)
    tried = resumed(book, tmp_path, at_ms=9 * HOUR_MS)
    assert (tried.state, tried.outcome, tried.code, tried.took_ms) == ("abandoned", Outcome.UNKNOWN, CUT_OFF, 5000)
    assert book.took_ms() == 5000
    patience = Patience(retries=0, mission_ms=60_000)
    assert patience.left_ms(fold_cells([tried], patience=patience)[CLAIMED.cell].took_ms) == 55_000


def test_one_that_was_silent_took_as_long_as_its_run_was_heard_of(book: Ledger, tmp_path: Path) -> None:
    write_frames(tmp_path, grown_at_ms=HOUR_MS + 5000)
    silent = Tried(AttemptId("m.f.r2.1"), CellId("m.f.r2"), 1, CLAIMED.run, "claimed", HOUR_MS + 1000)
    claims = [CLAIMED, silent, Tried(AttemptId("m.f.r3.1"), CellId("m.f.r3"), 1, RunId("other"), "claimed", HOUR_MS)]
    found = reconcile(claims, root=RootPaths(tmp_path), at_ms=9 * HOUR_MS, usd_of=lambda *_: None)
    assert [values[0] for _, values in found] == [HOUR_MS + 5000, HOUR_MS + 5000, HOUR_MS]


def test_an_attempt_that_left_no_record_took_no_time(book: Ledger, tmp_path: Path) -> None:
    assert resumed(book, tmp_path, at_ms=9 * HOUR_MS).took_ms == 0


def test_a_record_from_the_future_took_no_longer_than_until_now(book: Ledger, tmp_path: Path) -> None:
    write_frames(tmp_path, grown_at_ms=99 * HOUR_MS)
    assert resumed(book, tmp_path, at_ms=2 * HOUR_MS).took_ms == HOUR_MS
