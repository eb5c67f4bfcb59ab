"""The loop of a run: it does what the spec says of limits and pauses, and rests while there is nothing to do."""

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from bench.campaign import KEY, spec_of
from bench.runtimes import write_fake
from proctor.attempt.model import AttemptResult
from proctor.campaign import run as running
from proctor.campaign.run import run_campaign
from proctor.campaign.watch import CampaignWatcher
from proctor.clock import SYSTEM_CLOCK, SystemClock
from proctor.evidence.live import LiveLimit
from proctor.evidence.sync import Sync
from proctor.ids import AttemptId, RuntimeId
from proctor.spec.load import load_spec
from proctor.transport.fault import Alter, FaultChannel, LineFault
from tests.campaign.passing import Looking, looking
from tests.runtime.twin import run

TRIALS = 4


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


@pytest.mark.long
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
    spec = written(tmp_path, monkeypatch, spec_of(TRIALS, isolation="shared"), parallel=1)
    counting = Counting()
    result = run(lambda: run_campaign(load_spec(spec), root=tmp_path / "evidence", watcher=counting, clock=clock))
    assert (result.how, len(result.attempts)) == ("done", TRIALS)
    assert counting.most <= 2, "as many again wait for the disk, and no more"
    assert not clock.is_enough.is_set(), "it asked for the time again and again"


class Counting(CampaignWatcher):
    """How many attempts have begun at most of which nothing is in the ledger."""

    def __init__(self) -> None:
        self.most = self.now = 0

    def started(self, attempt: AttemptId, *, runtime_id: RuntimeId) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        self.now -= 1


def written(folder: Path, monkeypatch: pytest.MonkeyPatch, spec: Mapping[str, object], **schedule: object) -> Path:
    """The file of a spec for an agent that is none. Its clocks stand, whatever time passes."""
    monkeypatch.setenv(KEY, "none-needed-here")
    monkeypatch.setenv("PROCTOR_CODEX", str(write_fake(folder)))
    file = folder / "spec.yaml"
    limits = {"attempt": "100h", "turn": "99h", "stall": "98h"}
    file.write_bytes(msgspec.json.encode({**spec, "schedule": schedule, "limits": limits}))
    return file


def campaign(spec: Path, look: Looking, *, failures: int = 0, error: Mapping[str, object] | None = None) -> str:
    """How it ended. As many turns fail at first, with that error."""

    def fail(line: bytes) -> bytes:
        said = msgspec.json.decode(line)
        said["params"]["turn"].update(status="failed", error=error)
        return msgspec.json.encode(said)

    plan = [LineFault(at=lambda line: b'"turn/completed"' in line, how=Alter(to=fail), times=failures)]
    result = run(
        lambda: run_campaign(
            load_spec(spec),
            root=spec.parent / "evidence",
            watcher=look,
            clock=look.clock,
            between=lambda _, channel: FaultChannel(channel, plan),
        )
    )
    return result.how


def retry_times(spec: Path) -> list[int | None]:
    [ledger] = spec.parent.glob("evidence/campaigns/*/ledger.db")
    with closing(sqlite3.connect(ledger)) as reader:
        return [at for (at,) in reader.execute("select retry_at_ms from attempt order by rowid")]


@pytest.mark.requirement("schedule.recovery")
def test_a_trial_is_tried_again_after_pauses_that_double_as_often_as_the_spec_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = written(tmp_path, monkeypatch, spec_of(1, isolation="shared"), parallel=1, retries=2, backoff="100s")
    look, began_ms = looking(), SYSTEM_CLOCK.wall_ms()
    broken = {"message": "no", "codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": None}}}
    assert campaign(spec, look, failures=9, error=broken) == "done"
    first, second, none = look.pauses_ms.values()
    assert first is not None
    assert second is not None
    assert 90_000 <= first <= 150_000
    assert 190_000 <= second <= 300_000
    assert none is None, "its retries are used up"
    at_first, then, never = retry_times(spec)
    assert at_first is not None
    assert then is not None
    assert began_ms + first <= at_first <= then - second
    assert never is None


USED_UP = {"message": "You hit your limit. Please try again in 40m0s.", "codexErrorInfo": "usageLimitExceeded"}


@pytest.mark.requirement("schedule.rate-limit")
@pytest.mark.parametrize(("longest", "how"), [("41m", "done"), ("39m", "refused")])
def test_a_quota_is_waited_for_as_long_as_it_is_told_unless_the_spec_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: str, how: str
) -> None:
    spec = written(tmp_path, monkeypatch, spec_of(1, isolation="shared"), parallel=1, retries=0, longest_wait=longest)
    look = looking()
    assert campaign(spec, look, failures=1, error=USED_UP) == how
    pause_ms, *rest = look.pauses_ms.values()
    if how == "done":
        assert pause_ms is not None
        assert 39 * 60_000 <= pause_ms <= 40 * 60_000
        assert rest == [None]
    else:
        assert (pause_ms, rest) == (None, [])


@pytest.mark.requirement("schedule.pool")
def test_what_the_spec_says_of_limits_and_starts_is_what_the_attempts_count_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"runtimes": {"codex_app_server": 5}, "providers": {"bench": 4}, "per_credential": 3}
    look = looking()
    spec = written(tmp_path, monkeypatch, spec_of(8, isolation="shared"), parallel=6, **limits)
    assert campaign(spec, look) == "done"
    assert look.seen[0].limits == (
        LiveLimit(key="all", maximum=6, current_maximum=6, taken=3),
        LiveLimit(key="runtime:codex_app_server", maximum=5, current_maximum=5, taken=3),
        LiveLimit(key="provider:bench", maximum=4, current_maximum=4, taken=3),
        LiveLimit(key=f"credential:{KEY}", maximum=3, current_maximum=3, taken=3),
    )


def test_the_next_start_keeps_the_distance_that_the_spec_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = looking(first_s=3600)
    spec = written(tmp_path, monkeypatch, spec_of(2, isolation="shared"), parallel=2, start_interval="1h")
    assert campaign(spec, look) == "done"
    first = look.seen[0]
    assert (first.limits[0].taken, first.waiting) == (1, 1)


@pytest.mark.requirement("schedule.pool")
def test_priorities_of_missions_and_flows_decide_together_who_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {
        **spec_of(1, isolation="shared"),
        "missions": [{"id": f"m{n}", "prompt": "Do it.", "priority": n} for n in range(2)],
        "flows": [
            {"id": name, "runtime": ["codex_app_server"], "isolation": "shared", "priority": priority}
            for name, priority in (("low", 0), ("high", 2))
        ],
    }
    look = looking()
    assert campaign(written(tmp_path, monkeypatch, spec, parallel=1), look) == "done"
    assert look.order == ["m1.high.r1.1", "m0.high.r1.1", "m1.low.r1.1", "m0.low.r1.1"]
