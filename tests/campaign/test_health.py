"""What a run writes down of its runtimes: in batches, and never in the way of the run."""

from pathlib import Path

import pytest

from proctor.campaign.health import BATCH, HealthRecorder
from proctor.event.outcome import Outcome
from proctor.evidence.health import ProgramKey, read_health
from proctor.ids import RuntimeId
from proctor.testing.clock import FakeClock
from tests.runtime.twin import run

PROGRAM = ProgramKey(RuntimeId("codex"), "aa")


def counted(path: Path) -> tuple[int, int, int, str | None]:
    its = read_health(path)[PROGRAM]
    return its.starts, its.failed_starts, its.crashes, its.last_code


@pytest.mark.requirement("ops.doctor")
def test_how_an_attempt_ended_says_how_its_agent_started_and_whether_it_crashed(tmp_path: Path) -> None:
    path = tmp_path / "health.db"

    async def test() -> None:
        book = HealthRecorder(path=path, clock=FakeClock())
        for outcome, code in (
            (Outcome.COMPLETED, None),
            (Outcome.FAILED, "provider.quota"),
            (Outcome.CRASHED, "peer.killed"),
            (Outcome.REFUSED, "peer.hangup"),
            # The next are nobody's start: a fault of the spec or the login, a full disk, somebody who left.
            (Outcome.REFUSED, "peer.refused"),
            (Outcome.REFUSED, "peer.login"),
            (Outcome.REFUSED, "machine.disk-full"),
            (Outcome.CANCELLED, "run.cancelled"),
        ):
            book.ended(PROGRAM, outcome=outcome, code=code)
        await book.write(least=1)
        assert book.warnings == ()

    run(test)
    assert counted(path) == (4, 1, 1, "peer.hangup")


def test_a_batch_is_one_transaction_and_a_few_wait_for_the_end(tmp_path: Path) -> None:
    path = tmp_path / "health.db"

    async def test() -> None:
        book = HealthRecorder(path=path, clock=FakeClock())
        for _ in range(BATCH - 1):
            book.started(PROGRAM)
        await book.write()
        assert not path.exists()
        book.started(PROGRAM)
        await book.write()
        assert counted(path) == (BATCH, 0, 0, None)
        book.started(PROGRAM, code="peer.hangup")
        await book.write()
        assert counted(path) == (BATCH, 0, 0, None)
        await book.write(least=1)
        assert counted(path) == (BATCH + 1, 1, 0, "peer.hangup")

    run(test)


def test_what_cannot_be_written_is_a_warning_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "file" / "health.db"
    path.parent.write_text("no folder")

    async def test() -> tuple[str, ...]:
        book = HealthRecorder(path=path, clock=FakeClock())
        book.started(PROGRAM)
        await book.write(least=1)
        return book.warnings

    [warning] = run(test)
    assert warning.startswith("the health of the agents could not be recorded: ")
