"""The loop of a run rests while there is nothing to do."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from bench.campaign import KEY, spec_of
from bench.runtimes import write_fake
from proctor.campaign import run as running
from proctor.campaign.run import run_campaign
from proctor.campaign.watch import CampaignWatcher
from proctor.clock import SystemClock
from proctor.evidence.sync import Sync
from proctor.spec.load import load_spec
from tests.runtime.twin import run

CELLS = 4


class CountingClock(SystemClock):
    """Counts how often it is asked, and tells when that is often enough."""

    def __init__(self, enough: int) -> None:
        self.asked = 0
        self.is_enough = threading.Event()
        self._enough = enough

    def steady_s(self) -> float:
        self.asked += 1
        if self.asked >= self._enough:
            self.is_enough.set()
        return super().steady_s()


@pytest.mark.requirement("schedule.pool")
def test_a_slow_disk_that_has_all_it_may_have_keeps_nobody_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = CountingClock(3_000)

    @contextmanager
    def slow(_: Path) -> Iterator[Sync]:
        def sync() -> None:
            # As slow as it takes for somebody who asks all the time to be found out.
            clock.is_enough.wait(0.3)

        yield sync

    monkeypatch.setattr(running, "open_sync", slow)
    monkeypatch.setenv(KEY, "none-needed-here")
    monkeypatch.setenv("PROCTOR_CODEX", str(write_fake(tmp_path)))
    spec = tmp_path / "spec.yaml"
    spec.write_bytes(msgspec.json.encode({**spec_of(CELLS, isolation="shared"), "schedule": {"parallel": 1}}))
    result = run(
        lambda: run_campaign(load_spec(spec), root=tmp_path / "evidence", watcher=CampaignWatcher(), clock=clock)
    )
    assert (result.how, len(result.attempts)) == ("done", CELLS)
    assert not clock.is_enough.is_set(), "it asked for the time again and again"
