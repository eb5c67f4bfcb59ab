"""Many attempts share one sync of the disk, and nothing is said to be on it before it is."""

import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
import pytest

from bench.campaign import KEY, spec_of
from bench.runtimes import write_fake
from proctor.campaign import run as running
from proctor.campaign.durable import SharedSync
from proctor.campaign.run import CampaignResult, run_campaign
from proctor.campaign.watch import CampaignWatcher
from proctor.errors import MachineError
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import SEAL, SEALED, RootPaths
from proctor.evidence.seal import check_seal
from proctor.evidence.sync import Sync, open_sync
from proctor.spec.load import load_spec

DEADLINE_S = 60
ATTEMPTS = 6

T = TypeVar("T")


def run(test: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        with anyio.fail_after(DEADLINE_S):
            return await test()

    return anyio.run(bounded)


class SlowDisk:
    """Each sync begins, and ends when it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.refusal: MachineError | None = None
        self._go = threading.Semaphore(0)

    def sync(self) -> None:
        self.begun += 1
        assert self._go.acquire(timeout=DEADLINE_S)
        if self.refusal is not None:
            raise self.refusal

    def let_go(self, syncs: int = 1) -> None:
        self._go.release(syncs)


def test_whoever_asks_during_a_sync_waits_for_the_next_and_all_of_them_share_it() -> None:
    async def test() -> list[str]:
        disk, told = SlowDisk(), list[str]()
        shared = SharedSync(disk.sync)

        async def ask(name: str) -> None:
            await shared.make_durable()
            told.append(name)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shared.run)
            tasks.start_soon(ask, "first")
            await anyio.wait_all_tasks_blocked()
            for _ in range(3):
                tasks.start_soon(ask, "later")
            await anyio.wait_all_tasks_blocked()
            disk.let_go()
            while not told:
                await anyio.wait_all_tasks_blocked()
            assert told == ["first"]
            disk.let_go()
            while len(told) < 4:
                await anyio.wait_all_tasks_blocked()
            shared.close()
        assert disk.begun == 2
        return told

    assert run(test) == ["first", "later", "later", "later"]


def test_a_refusal_reaches_those_who_waited_for_it_and_the_next_one_may_succeed() -> None:
    async def test() -> list[str]:
        disk, told = SlowDisk(), list[str]()
        shared = SharedSync(disk.sync)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shared.run)
            for refusal in (MachineError("machine.disk-full", "no space"), None):
                disk.refusal = refusal
                disk.let_go()
                try:
                    await shared.make_durable()
                    told.append("durable")
                except MachineError as error:
                    told.append(error.code)
            shared.close()
        return told

    assert run(test) == ["machine.disk-full", "durable"]


def test_after_the_end_nobody_is_told_that_anything_is_durable() -> None:
    async def test() -> str:
        disk = SlowDisk()
        shared = SharedSync(disk.sync)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shared.run)
            await anyio.wait_all_tasks_blocked()
            shared.close()
        with pytest.raises(MachineError) as refused:
            await shared.make_durable()
        return refused.value.code

    assert run(test) == "machine.unwritable"


# ── whole campaigns, on an agent that is none ──


def campaign(folder: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignResult:
    monkeypatch.setenv(KEY, "none-needed-here")
    monkeypatch.setenv("PROCTOR_CODEX", str(write_fake(folder)))
    spec = folder / "spec.yaml"
    spec.write_bytes(msgspec.json.encode(spec_of(ATTEMPTS, isolation="shared")))
    return run(lambda: run_campaign(load_spec(spec), root=folder / "evidence", watcher=CampaignWatcher()))


class Diary:
    """What could be seen when each sync began: the files of every attempt, and which the ledger says are sealed."""

    def __init__(self, root: Path) -> None:
        self.days: list[tuple[dict[str, set[str]], set[str]]] = []
        self._root = RootPaths(root)

    def note(self) -> None:
        attempts = [paths.folder for run in self._root.runs() for paths in run.attempts()]
        files = {folder.name: {file.name for file in folder.iterdir()} for folder in attempts}
        [campaign] = self._root.campaigns()
        with closing(sqlite3.connect(campaign.ledger)) as ledger:
            sealed = {id_ for (id_,) in ledger.execute("select id from attempt where state = 'sealed'")}
        self.days.append((files, sealed))


@pytest.mark.requirement("evidence.seal")
def test_a_seal_follows_a_sync_of_all_it_names_and_the_ledger_a_sync_of_the_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diary = Diary(tmp_path / "evidence")

    @contextmanager
    def watched(folder: Path) -> Iterator[Sync]:
        with open_sync(folder) as sync:
            assert sync is not None

            def noted() -> None:
                diary.note()
                sync()

            yield noted

    monkeypatch.setattr(running, "open_sync", watched)
    result = campaign(tmp_path, monkeypatch)
    diary.note()
    assert [attempt.error for attempt in result.attempts] == [None] * ATTEMPTS
    whole: set[str] = set()
    with_seal: set[str] = set()
    for files, sealed in diary.days:
        assert sealed <= with_seal
        assert {name for name, inside in files.items() if SEAL in inside} <= whole
        whole |= {name for name, inside in files.items() if inside >= set(SEALED)}
        with_seal |= {name for name, inside in files.items() if SEAL in inside}
    assert len(with_seal) == ATTEMPTS
    for run_ in RootPaths(tmp_path / "evidence").runs():
        for paths in run_.attempts():
            with AttemptFiles(paths) as attempt_files:
                assert check_seal(attempt_files) == ()
        assert len(list(run_.attempts())) == ATTEMPTS


@pytest.mark.long
@pytest.mark.requirement("evidence.seal")
def test_what_a_disk_refuses_to_sync_is_never_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def failing(_: Path) -> Iterator[Sync]:
        def refuse() -> None:
            raise MachineError("machine.disk-full", "no space left")

        yield refuse

    monkeypatch.setattr(running, "open_sync", failing)
    result = campaign(tmp_path, monkeypatch)
    assert result.failure is not None
    assert result.failure.code == "machine.disk-full"
    assert list((tmp_path / "evidence").rglob(SEAL)) == []
