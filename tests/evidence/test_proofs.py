"""proofs.db: what was shown is kept in order, all of a run or none, and never in a file of something else."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from proctor.errors import MachineError
from proctor.evidence import database
from proctor.evidence.proofs import NAME, ProofRow, add_proofs, read_proofs
from proctor.ids import RuntimeId

ROW = ProofRow(
    runtime_id=RuntimeId("codex_app_server"),
    transport="stdio",
    isolation="shared",
    subject="ab" * 32,
    version="0.163.0",
    case="steer",
    result="passed",
    what=None,
    at_ms=1_700_000_000_000,
    proctor="0.1.0",
)


def variants(*cases: str) -> list[ProofRow]:
    return [msgspec.structs.replace(ROW, case=case) for case in cases]


@pytest.mark.requirement("runtime.capability.proven")
def test_what_was_added_is_read_in_order_and_a_missing_file_holds_nothing(tmp_path: Path) -> None:
    root = tmp_path / "not" / "there"
    assert read_proofs(root) == ()
    assert not root.exists(), "to read makes nothing"
    first, second = variants("one", "two"), variants("one")
    add_proofs(root, first)
    add_proofs(root, second)
    assert read_proofs(root) == (*first, *second)
    assert (root / NAME).is_file()


def test_a_run_that_cannot_be_kept_whole_is_not_kept_at_all(tmp_path: Path) -> None:
    add_proofs(tmp_path, variants("one"))
    with pytest.raises(MachineError) as raised:
        add_proofs(tmp_path, [*variants("two"), msgspec.structs.replace(ROW, result=None)])
    assert raised.value.code == "run.harness"
    assert read_proofs(tmp_path) == tuple(variants("one"))


def test_a_file_that_is_still_empty_holds_nothing_and_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()
    assert read_proofs(tmp_path) == ()
    assert (tmp_path / NAME).read_bytes() == b"", "to read makes nothing"
    add_proofs(tmp_path, [ROW])
    assert read_proofs(tmp_path) == (ROW,)


def test_one_that_another_proctor_holds_is_locked_and_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_proofs(tmp_path, [ROW])
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(MachineError) as raised:
            add_proofs(tmp_path, [ROW])
    assert raised.value.code == "machine.locked"
    assert read_proofs(tmp_path) == (ROW,)


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        ("create table other (x)", "not a Proctor database of this kind"),
        ("pragma user_version = 2", "schema version is 2; this Proctor reads only 1"),
    ],
)
def test_a_file_of_something_else_or_of_a_newer_proctor_is_left_alone(tmp_path: Path, spoil: str, what: str) -> None:
    with sqlite3.connect(tmp_path / NAME) as connection:
        connection.execute(spoil)
    connection.close()
    before = (tmp_path / NAME).read_bytes()
    for touch in (lambda: add_proofs(tmp_path, [ROW]), lambda: read_proofs(tmp_path)):
        with pytest.raises(MachineError) as raised:
            touch()
        assert (raised.value.code, raised.value.what) == ("machine.proofs", what)
    assert (tmp_path / NAME).read_bytes() == before


def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(MachineError) as raised:
        read_proofs(tmp_path)
    assert raised.value.code == "machine.proofs"
