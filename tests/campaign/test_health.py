"""What a run writes down of its runtimes: in batches, and never in the way of the run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.campaign.health import BATCH, HealthRecorder, HostHealth
from proctor.event.outcome import Outcome
from proctor.evidence.health import ProgramKey, read_health
from proctor.ids import RuntimeId
from proctor.testing.clock import FakeClock
from tests.runtime.twin import run

PROGRAM = ProgramKey(RuntimeId("codex"), "aa")


def counted(path: Path) -> tuple[int, int, int, str | None]:
    its = read_health(path)[PROGRAM]
    return its.starts, its.failed_starts, its.crashes, its.last_code


def host_of(book: HealthRecorder, *, processes: int = 0) -> HostHealth:
    """A host that started so many processes."""
    host = HostHealth(recorder=book, program=PROGRAM)
    for _ in range(processes):
        host.process_started()
    return host


def counted_of(tmp_path: Path, act: Callable[[HealthRecorder], None]) -> tuple[int, int, int, str | None]:
    async def test() -> None:
        book = HealthRecorder(path=tmp_path / "health.db", clock=FakeClock())
        act(book)
        await book.write(least=1)
        assert book.warnings == ()

    run(test)
    return counted(tmp_path / "health.db")


@pytest.mark.requirement("ops.doctor")
def test_a_process_that_many_attempts_share_is_one_start_and_its_end_one_crash(tmp_path: Path) -> None:
    def act(book: HealthRecorder) -> None:
        host = host_of(book, processes=1)
        for _ in range(5):
            host.attempt_ended(Outcome.COMPLETED, None, is_host_alive=True)
        for _ in range(3):
            host.attempt_ended(Outcome.CRASHED, "peer.killed", is_host_alive=False)
        host.attempt_ended(Outcome.REFUSED, "peer.hangup", is_host_alive=False)

    assert counted_of(tmp_path, act) == (1, 0, 1, "peer.killed")


def test_every_process_of_an_attempt_is_a_start_and_every_crash_counts(tmp_path: Path) -> None:
    def act(book: HealthRecorder) -> None:
        host = host_of(book, processes=2)
        host.attempt_ended(Outcome.CRASHED, "peer.killed", is_host_alive=True)
        host.process_started()
        host.attempt_ended(Outcome.CRASHED, "peer.hangup", is_host_alive=True)

    assert counted_of(tmp_path, act) == (3, 0, 2, "peer.hangup")


@pytest.mark.parametrize(
    ("processes", "code", "starts"),
    [
        (1, "peer.hangup", (1, 1)),
        (2, "peer.hangup", (2, 1)),
        (0, "machine.spawn-failed", (1, 1)),
        (0, "machine.binary-missing", (1, 1)),
        # The next are not the program's fault: what was started did start.
        (1, "peer.refused", (1, 0)),
        (1, "peer.login", (1, 0)),
        (1, "machine.disk-full", (1, 0)),
    ],
)
def test_a_refused_attempt_is_a_failed_start_if_the_program_was_at_fault(
    processes: int, code: str, starts: tuple[int, int], tmp_path: Path
) -> None:
    def act(book: HealthRecorder) -> None:
        host = host_of(book, processes=processes)
        host.attempt_ended(Outcome.REFUSED, code, is_host_alive=True)
        host.attempt_ended(Outcome.COMPLETED, None, is_host_alive=True)

    assert counted_of(tmp_path, act)[:2] == starts


def test_a_cancelled_attempt_does_not_decide_whether_its_program_started(tmp_path: Path) -> None:
    def act(book: HealthRecorder) -> None:
        host = host_of(book, processes=1)
        host.attempt_ended(Outcome.CANCELLED, "run.cancelled", is_host_alive=True)
        host.start_failed("peer.hangup")

    assert counted_of(tmp_path, act) == (1, 1, 0, "peer.hangup")


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
