"""The record of clients that the scripted model refused: bounded, sealed, and shown to the user."""

from pathlib import Path

import anyio
import pytest

from proctor.campaign.model_record import MAX_ROWS, MODEL, ModelRecord
from proctor.clock import SYSTEM_CLOCK
from proctor.evidence import tripwire
from proctor.evidence.artifacts import ProcessRecord
from proctor.evidence.digests import read_stamped
from proctor.evidence.layout import RuntimePaths
from proctor.evidence.redact import Redactor
from proctor.model.connection import RefusalReason, RefusedClient
from tests.lab import jsonl

PLANTED = tripwire.plant()
GUESS = RefusedClient(why=RefusalReason.PATH, client="127.0.0.1:5", method="GET", path="/a/" + "x" * 1000)
IDLE = RefusedClient(why=RefusalReason.IDLE, client="127.0.0.1:6")


def record_in(paths: RuntimePaths | None) -> ModelRecord:
    return ModelRecord(paths, redactor=Redactor([PLANTED]), planted=PLANTED, clock=SYSTEM_CLOCK)


def test_refused_clients_are_all_counted_and_the_first_are_recorded(tmp_path: Path) -> None:
    paths = RuntimePaths(tmp_path / MODEL)
    record = record_in(paths)
    for refused in (IDLE, *[GUESS] * (MAX_ROWS + 10)):
        record.add(refused)
    anyio.run(record.seal)
    rows = [row["frame"]["detail"] for row in jsonl(paths.frames)][1:]
    assert len(rows) == MAX_ROWS
    assert rows[:2] == [
        {"why": "idle", "client": "127.0.0.1:6"},
        {"why": "unknown-path", "client": "127.0.0.1:5", "method": "GET", "path": GUESS.path[:200]},
    ]
    sealed = read_stamped(paths.record, ProcessRecord)
    assert (sealed.process_id, sealed.rows) == ("model", {"self": MAX_ROWS + 1})
    assert sealed.facts["refusedClients"].value == {"idle": 1, "unknown-path": MAX_ROWS + 10}
    assert list(record.warnings()) == [
        f"the scripted model refused 510 clients that belong to no attempt (510 unknown-path): see {paths.folder}",
    ]


@pytest.mark.parametrize("refused", [(), (IDLE,)])
def test_connections_without_a_request_are_no_reason_to_warn(
    tmp_path: Path, refused: tuple[RefusedClient, ...]
) -> None:
    paths = RuntimePaths(tmp_path / MODEL)
    record = record_in(paths)
    for each in refused:
        record.add(each)
    anyio.run(record.seal)
    assert (list(record.warnings()), paths.folder.exists()) == ([], bool(refused))


def test_a_record_that_cannot_be_written_is_a_warning_and_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "runtimes").write_text("")
    record = record_in(RuntimePaths(tmp_path / "runtimes" / MODEL))
    record.add(GUESS)
    record.add(GUESS)
    anyio.run(record.seal)
    [warning] = record.warnings()
    assert warning.startswith("the scripted model refused 2 clients")
    assert "could not be recorded" in warning
