"""live.json: there while a campaign runs, whole whenever it is read, gone at the end."""

import fcntl
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from proctor.campaign.live import keep_live
from proctor.errors import MachineError
from proctor.evidence.layout import RootPaths
from proctor.evidence.live import Live, LiveAttempt
from proctor.evidence.reader import Finding
from proctor.evidence.redact import Redactor
from proctor.report.campaign_state import load_state
from proctor.report.check_campaign import check_campaign, list_campaign
from proctor.report.evidence_index import EvidenceIndex
from proctor.report.write_report import write_report
from proctor.testing.clock import FakeClock
from tests.report.made import RUN, campaign
from tests.runtime.twin import run
from tests.surface.watching import ALL, CODEX, FIX, began, picture, sealed, tool

DEADLINE_S = 10


class AskedClock(FakeClock):
    """Every look at a picture in which nothing happens asks it once."""

    def __init__(self) -> None:
        super().__init__()
        self.has_been_asked_twice = anyio.Event()
        self._times = 0

    def wall_ms(self) -> int:
        self._times += 1
        if self._times == 2:
            self.has_been_asked_twice.set()
        return super().wall_ms()


async def read(path: Path, holds: Callable[[Live], bool]) -> Live:
    """What stands in it once that holds."""
    with anyio.fail_after(DEADLINE_S):
        while (found := _there(path)) is None or not holds(found):  # noqa: ASYNC110  a file tells nobody that it changed
            await anyio.sleep(0.01)
        return found


def _there(path: Path) -> Live | None:
    return msgspec.json.decode(path.read_bytes(), type=Live) if path.exists() else None


@pytest.mark.requirement("campaign.status")
def test_the_picture_is_on_disk_while_it_runs_and_gone_afterwards(tmp_path: Path) -> None:
    async def work() -> None:
        paths = campaign(tmp_path, "fix")
        clock = FakeClock()
        seen = picture(clock)
        now_ms = clock.wall_ms()
        async with keep_live(seen, period_s=0.01):
            seen.began(began(tmp_path, trials=3, settled=1))
            assert await read(paths.live, lambda live: True) == Live(
                at_ms=now_ms, run_id=RUN, trials=3, settled=1, waiting=0
            )
            seen.scheduled((ALL,), waiting=2)
            seen.started(FIX, runtime_id=CODEX)
            seen.event_recorded(FIX, tool("make test"))
            second = await read(paths.live, lambda live: any(each.doing for each in live.running))
            at_work = LiveAttempt(
                attempt_id=FIX,
                phase="queued",
                doing="shell: make test",
                tokens=None,
                usd=None,
                began_at_ms=now_ms,
                heard_at_ms=now_ms,
            )
            assert second == Live(
                at_ms=now_ms, run_id=RUN, trials=3, settled=1, waiting=2, running=(at_work,), limits=(ALL,)
            )
            seen.settled(sealed(FIX), usd=None, retry_at_ms=None, is_settled=True)
        assert sorted(path.name for path in paths.folder.iterdir()) == ["ledger.db", "plan.json"]

    run(work)


def test_a_picture_that_cannot_be_kept_stops_nobody(tmp_path: Path) -> None:
    async def work() -> None:
        seen = picture(FakeClock())
        with anyio.fail_after(DEADLINE_S):
            async with keep_live(seen, period_s=0.01):
                seen.began(began(tmp_path / "absent"))
                await anyio.sleep(0.05)

    run(work)


def test_after_a_write_that_was_refused_the_next_is_kept(tmp_path: Path) -> None:
    async def work() -> None:
        paths = campaign(tmp_path, "fix")
        away = paths.folder.rename(tmp_path / "away")
        clock = AskedClock()
        seen = picture(clock)
        async with keep_live(seen, period_s=0.01):
            seen.began(began(tmp_path, trials=3))
            with anyio.fail_after(DEADLINE_S):
                await clock.has_been_asked_twice.wait()
            away.rename(paths.folder)
            assert (await read(paths.live, lambda live: True)).trials == 3

    run(work)


def test_a_run_that_fails_leaves_no_picture_of_one_at_work(tmp_path: Path) -> None:
    paths = campaign(tmp_path, "fix")

    async def work() -> None:
        seen = picture(FakeClock())
        async with keep_live(seen, period_s=0.01):
            seen.began(began(tmp_path))
            await read(paths.live, lambda live: True)
            raise MachineError("machine.unwritable", "the ledger is closed")

    with pytest.raises(ExceptionGroup) as caught:
        run(work)
    assert [str(each) for each in caught.value.exceptions] == ["the ledger is closed"]
    assert not paths.live.exists()


def test_what_a_killed_run_left_of_it_is_no_stranger(tmp_path: Path) -> None:
    paths = campaign(tmp_path, "fix")
    root = RootPaths(tmp_path)

    def check() -> list[Finding]:
        listing, state = list_campaign(paths, root=root, owners={}), load_state(paths, root=root)
        return list(check_campaign(paths, root=root, state=state, listing=listing, index=EvidenceIndex()))

    before = check()
    for name in ("live.json", ".live.json.tmp", "pinned"):
        (paths.folder / name).write_text("")
    assert check() == before
    (paths.folder / "other").write_text("")
    after = check()
    assert [each.file for each in after if each not in before] == ["other"]


def test_campaign_that_ends_while_it_is_validated_is_not_called_forged(tmp_path: Path) -> None:
    paths = campaign(tmp_path, "fix")
    root, index = RootPaths(tmp_path), EvidenceIndex()
    with (paths.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        listing = list_campaign(paths, root=root, owners={})
        state = load_state(paths, root=root)
    # The run ends and writes its report while the attempts are examined.
    write_report(paths, root=tmp_path, redactor=Redactor(()), reasons={})
    found = check_campaign(paths, root=root, state=state, listing=listing, index=index)
    assert [
        each for each in found if each.file in ("report.json", "RESULTS.md") and each.code != "evidence.running"
    ] == []


def test_a_retry_that_was_given_up_waits_no_longer(tmp_path: Path) -> None:
    async def work() -> None:
        seen = picture(FakeClock())
        seen.began(began(tmp_path, trials=3))
        seen.settled(sealed(FIX), usd=None, retry_at_ms=7, is_settled=False)
        seen.scheduled((ALL,), waiting=1)
        live = seen.describe()
        assert live is not None
        assert (live.retrying, live.retry_at_ms) == (1, 7)
        seen.scheduled((ALL,), waiting=0)
        live = seen.describe()
        assert live is not None
        assert (live.retrying, live.retry_at_ms) == (0, None)

    run(work)
