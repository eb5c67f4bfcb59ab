"""health.db: counts that add up however they are batched, and when a runtime counts as degraded."""

import sqlite3
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import MachineError
from proctor.evidence.health import (
    DEGRADED_FOR_MS,
    VERSION,
    ProgramEvent,
    ProgramHealth,
    ProgramKey,
    read_health,
    write_health,
)
from proctor.ids import RuntimeId

CODEX, CLAUDE = ProgramKey(RuntimeId("codex"), "aa"), ProgramKey(RuntimeId("claude"), "bb")
HANGUP = "peer.hangup"


def starts(*codes: str | None, program: ProgramKey = CODEX, from_ms: int = 0) -> list[ProgramEvent]:
    return [ProgramEvent(program=program, at_ms=from_ms + at, code=code) for at, code in enumerate(codes)]


events = st.lists(
    st.builds(
        ProgramEvent,
        program=st.sampled_from([CODEX, CLAUDE]),
        at_ms=st.integers(0, 10),
        code=st.sampled_from([None, HANGUP, "peer.deadline"]),
        is_crash=st.booleans(),
    ),
    max_size=6,
)


def told(batches: Sequence[Sequence[ProgramEvent]]) -> list[ProgramHealth]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "health.db"
        for batch in batches:
            write_health(path, batch)
        return list(read_health(path).values())


@pytest.mark.requirement("ops.doctor")
@settings(max_examples=12)
@given(first=events, second=events)
def test_what_is_counted_does_not_depend_on_how_it_was_batched(
    first: list[ProgramEvent], second: list[ProgramEvent]
) -> None:
    assert told([first, second]) == told([[each] for each in (*first, *second)])


@pytest.mark.requirement("ops.doctor")
def test_starts_failures_and_crashes_are_counted_for_each_runtime_and_program(tmp_path: Path) -> None:
    path = tmp_path / "new" / "health.db"
    other = ProgramKey(CODEX.runtime_id, "cc")
    crash = ProgramEvent(program=CODEX, at_ms=7, code="peer.killed", is_crash=True)
    write_health(path, [*starts(None, HANGUP, None), crash, *starts(None, program=other, from_ms=9)])
    assert read_health(path) == {
        CODEX: ProgramHealth(
            runtime_id=CODEX.runtime_id,
            sha256="aa",
            starts=3,
            failed_starts=1,
            crashes=1,
            last_code="peer.killed",
            last_at_ms=7,
        ),
        other: ProgramHealth(
            runtime_id=CODEX.runtime_id,
            sha256="cc",
            starts=1,
            failed_starts=0,
            crashes=0,
            last_code=None,
            last_at_ms=9,
        ),
    }


@pytest.mark.requirement("runtime.strategy.fallback")
@pytest.mark.parametrize(
    ("codes", "is_degraded"),
    [
        ((HANGUP, HANGUP), False),
        ((None, HANGUP, HANGUP, HANGUP), True),
        ((HANGUP, HANGUP, HANGUP, None), False),
        ((HANGUP, HANGUP, None, HANGUP, HANGUP), False),
    ],
)
@pytest.mark.requirement("ops.doctor")
def test_a_runtime_is_degraded_while_its_last_three_starts_failed_within_the_hour(
    tmp_path: Path, codes: tuple[str | None, ...], is_degraded: bool
) -> None:
    path = tmp_path / "health.db"
    write_health(path, starts(*codes, from_ms=1000))
    its = read_health(path)[CODEX]
    assert its.is_degraded(now_ms=2000) is is_degraded
    assert not its.is_degraded(now_ms=1000 + len(codes) - 3 + DEGRADED_FOR_MS)


def test_several_who_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "health.db"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: write_health(path, starts(None, HANGUP)), range(16)))
    its = read_health(path)[CODEX]
    assert (its.starts, its.failed_starts) == (32, 16)


def test_reading_makes_nothing_and_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "health.db"
    assert read_health(path) == {}
    assert list(tmp_path.iterdir()) == []
    write_health(path, starts(None))
    read_health(path)
    assert [each.name for each in tmp_path.iterdir()] == ["health.db"]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"pragma user_version = {VERSION + 1}")
    newer = path.read_bytes()
    path.with_name("other.db").write_bytes(b"no database at all, but long enough to be looked at" * 100)
    with closing(sqlite3.connect(path.with_name("theirs.db"))) as connection:
        connection.execute("create table mine (a)")
    for name, says in (
        ("health.db", "schema version is 2; this Proctor reads only 1"),
        ("other.db", "file is not a database"),
        ("theirs.db", "not a Proctor database of this kind"),
    ):
        for touch in (read_health, lambda file: write_health(file, starts(None))):
            with pytest.raises(MachineError) as refused:
                touch(tmp_path / name)
            assert (refused.value.code, refused.value.what) == ("machine.health", says)
    assert path.read_bytes() == newer


@pytest.mark.requirement("ops.doctor")
@pytest.mark.parametrize(
    "change",
    [
        "drop table start",
        "alter table program rename column crashes to falls",
        """drop table program; create table program (runtime_id, sha256, starts, failed_starts, crashes, last_code,
        last_at_ms);
           insert into program values ('codex', 'aa', 'many', 0, 0, null, 0)""",
    ],
)
def test_a_file_of_another_shape_is_refused_by_its_own_code(tmp_path: Path, change: str) -> None:
    path = tmp_path / "health.db"
    write_health(path, starts(None))
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(change)
    with pytest.raises(MachineError) as caught:
        read_health(path)
    assert (caught.value.code, caught.value.file) == ("machine.health", str(path))
