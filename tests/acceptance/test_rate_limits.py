"""A provider that turns away the real Codex: the campaign shrinks, waits, regrows, and comes to the whole result."""

import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proctor.attempt.model import AttemptResult
from proctor.campaign.run import CampaignResult
from proctor.campaign.watch import CampaignWatcher
from proctor.event.outcome import Outcome
from proctor.evidence.layout import RootPaths
from proctor.evidence.live import LiveLimit
from tests.lab import Lab, mission, report_of, say_done, wait_until
from tests.provider import Provider, open_provider
from tests.surface.conftest import ask

pytestmark = pytest.mark.real_agent

KEY = "pk-loopback-0123456789"
CREDENTIAL = "credential:LOOPBACK_API_KEY"
# So that it is the campaign that tries again, and not the agent.
AT_ONCE = {"codex_app_server": {"request_max_retries": 0, "stream_max_retries": 0}}
TOO_OFTEN = {"fault": {"status": 429, "retry_after": 1}}
OVERLOADED = {"fault": {"status": 503, "body": {"error": {"code": "server_is_overloaded", "message": "no"}}}}
WORK = {"run": "echo done > done.txt"}
PROBE = {"kind": "headless_run", "command": "test -f done.txt"}


def used_up(**more: Any) -> dict[str, Any]:
    return {"fault": {"status": 429, "body": {"error": {"type": "usage_limit_reached", "message": "no", **more}}}}


@dataclass
class Pictures(CampaignWatcher):
    """What was told of each limit, and when each attempt was to be followed by another."""

    seen: list[dict[str, LiveLimit]] = field(default_factory=list)
    retries: dict[str, int | None] = field(default_factory=dict)

    def scheduled(self, limits: tuple[LiveLimit, ...], *, waiting: int) -> None:
        self.seen.append({limit.key: limit for limit in limits})

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        self.retries[result.attempt_id] = retry_at_ms

    def levels(self, key: str) -> list[int]:
        """How many it admitted, as that changed."""
        told = [picture[key].current_maximum for picture in self.seen if key in picture]
        return [level for at, level in enumerate(told) if at == 0 or told[at - 1] != level]

    def reasons(self, key: str) -> set[str | None]:
        return {picture[key].why for picture in self.seen if key in picture}


def write(lab: Lab, provider: Provider, *, trials: int, schedule: Mapping[str, Any], **flow: Any) -> Path:
    model = {"provider": "loopback", "name": "any", "base_url": provider.base_url}
    missions = [mission(f"m{n}", probes=[PROBE]) for n in range(trials)]
    limited = {"retries": 0, "backoff": "100ms", **schedule}
    flow = {"model": model, "login": "api-key", "options": AT_ONCE, **flow}
    return lab.write_spec(missions, flow=flow, schedule=limited)


def run(lab: Lab, spec: Path, pictures: Pictures) -> CampaignResult:
    result = lab.run(spec, watcher=pictures)
    lab.assert_all_evidence_is_valid()
    return result


def codes(lab: Lab) -> Counter[str | None]:
    return Counter(report_of(paths).code for paths in lab.attempts().values())


def verified(lab: Lab) -> set[str]:
    """The missions that have an attempt which was verified."""
    return {name.partition(".")[0] for name, paths in lab.attempts().items() if report_of(paths).verified}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPBACK_API_KEY", KEY)


@pytest.mark.requirement("schedule.rate-limit")
@pytest.mark.requirement("schedule.pool")
def test_a_provider_that_is_asked_too_often_is_asked_less_until_it_bears_more(lab: Lab) -> None:
    pictures = Pictures()
    with open_provider(WORK, say_done(), bearer=KEY, first=(TOO_OFTEN,) * 4) as provider:
        spec = write(lab, provider, trials=14, schedule={"parallel": 4, "per_credential": 4})
        result = run(lab, spec, pictures)
    assert (result.how, verified(lab)) == ("done", {f"m{n}" for n in range(14)})
    assert codes(lab) == {None: 14, "provider.rate-limited": 4}, "no retry was there to be used up"
    assert pictures.levels(CREDENTIAL) == [4, 2, 3, 4]
    assert pictures.reasons(CREDENTIAL) == {None, "provider.rate-limited"}
    assert max(picture["all"].taken for picture in pictures.seen) == 4


@pytest.mark.requirement("schedule.rate-limit")
def test_a_provider_that_says_when_to_come_back_is_obeyed(lab: Lab) -> None:
    later = {"fault": {"failed": {"code": "rate_limit_exceeded", "message": "Please try again in 1.2s."}}}
    pictures = Pictures()
    with open_provider(WORK, say_done(), bearer=KEY, first=(later,)) as provider:
        spec = write(lab, provider, trials=1, schedule={"parallel": 1})
        result = run(lab, spec, pictures)
    refused, served = (report_of(paths) for _, paths in sorted(lab.attempts().items()))
    assert (result.how, refused.code, refused.retry_after_ms) == ("done", "provider.rate-limited", 1200)
    assert (served.verified, served.retry_after_ms) == (True, None)
    codes = [None if attempt.summary is None else attempt.summary.code for attempt in result.attempts]
    assert codes == [refused.code, served.code]


@pytest.mark.requirement("schedule.rate-limit")
def test_a_quota_is_waited_for_and_then_one_goes_to_see(lab: Lab) -> None:
    pictures = Pictures()
    with open_provider(WORK, say_done(), bearer=KEY, first=(used_up(),) * 3) as provider:
        spec = write(lab, provider, trials=5, schedule={"parallel": 3, "backoff": "50ms"})
        result = run(lab, spec, pictures)
    assert (result.how, verified(lab)) == ("done", {f"m{n}" for n in range(5)})
    assert codes(lab) == {None: 5, "provider.usage-limit": 3}
    assert pictures.levels(CREDENTIAL)[0] == 1, "one goes first"
    assert any(picture[CREDENTIAL].until_ms for picture in pictures.seen if CREDENTIAL in picture)


@pytest.mark.requirement("schedule.rate-limit")
def test_a_quota_that_opens_too_late_ends_the_run_and_a_resume_takes_up_the_rest(lab: Lab) -> None:
    tomorrow = used_up(resets_at=int(time.time()) + 86_400)
    with open_provider(WORK, say_done(), bearer=KEY, first=(tomorrow,) * 4) as provider:
        spec = write(lab, provider, trials=4, schedule={"parallel": 1, "longest_wait": "1h"})
        result = run(lab, spec, Pictures())
        # While one is being judged, another may have begun.
        assert (result.how, set(codes(lab)), len(lab.attempts()) < 3) == ("refused", {"provider.usage-limit"}, True)
        provider.first = ()
        resumed = lab.run(spec, resume=result.paths)
    assert (resumed.how, verified(lab)) == ("done", {"m0", "m1", "m2", "m3"})


def rows(lab: Lab, columns: str) -> list[tuple[Any, ...]]:
    """Of the ledger's attempts, as they came; none before there is one."""
    try:
        [campaign] = RootPaths(lab.root).campaigns()
        with closing(sqlite3.connect(f"file:{campaign.ledger}?mode=ro", uri=True)) as reader:
            return reader.execute(f"select {columns} from attempt order by rowid").fetchall()
    except (ValueError, sqlite3.OperationalError):
        return []


def killed_while_it_waits(lab: Lab, spec: Path) -> int:
    """kill -9 as soon as one attempt is to be followed by another: when that is."""
    process = lab.start("run", str(spec), "--yes")
    try:
        wait_until(lambda: any(told for (told,) in rows(lab, "retry_at_ms")), deadline_s=60)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=10)
    [told] = [told for (told,) in rows(lab, "retry_at_ms") if told]
    return int(told)


def shut(lab: Lab) -> dict[str, str]:
    """What another terminal sees to be shut, and why."""
    live = ask(lab, "campaign", "status", "--json").json["live"] or {"limits": []}
    return {limit["key"]: limit["why"] for limit in live["limits"] if limit["untilMs"] is not None}


@pytest.mark.requirement("schedule.rate-limit")
@pytest.mark.requirement("campaign.resume")
def test_a_resume_after_kill_9_waits_for_the_quota_and_another_terminal_sees_it(lab: Lab) -> None:
    with open_provider(WORK, say_done(), bearer=KEY, first=(used_up(),)) as provider:
        spec = write(lab, provider, trials=3, schedule={"parallel": 1, "backoff": "250ms"})
        opens_at_ms, known = killed_while_it_waits(lab, spec), len(rows(lab, "id"))
        process = lab.start("campaign", "resume")
        try:
            wait_until(lambda: shut(lab) != {})
            assert shut(lab) == {CREDENTIAL: "provider.usage-limit"}
            assert len(rows(lab, "id")) == known, "nothing begins meanwhile"
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
            process.wait()
    assert min(at_ms for (at_ms,) in rows(lab, "started_at_ms")[known:]) >= opens_at_ms
    ends = Counter(rows(lab, "code, json_extract(summary, '$.verified')"))
    assert (ends["provider.usage-limit", 0], ends[None, 1]) == (1, 3), "none was spent on asking"


@pytest.mark.requirement("campaign.resume")
def test_a_resume_after_kill_9_tries_a_trial_again_when_it_is_due_and_others_at_once(lab: Lab) -> None:
    with open_provider(WORK, say_done(), bearer=KEY, first=({"fault": {"status": 500}},)) as provider:
        spec = write(lab, provider, trials=3, schedule={"parallel": 1, "retries": 1, "backoff": "6s"})
        due_at_ms, known = killed_while_it_waits(lab, spec), len(rows(lab, "id"))
        result = lab.run(spec, resume=next(RootPaths(lab.root).campaigns()))
    begun = dict(rows(lab, "id, started_at_ms")[known:])
    again = begun.pop("m0.codex.r1.2")
    assert again >= due_at_ms > min(begun.values())
    assert (result.how, Counter(rows(lab, "code, json_extract(summary, '$.verified')"))[None, 1]) == ("done", 3)


def test_what_the_seal_tells_of_the_time_to_come_back_is_known_though_the_ledger_was_not_told(lab: Lab) -> None:
    later = {"fault": {"failed": {"code": "rate_limit_exceeded", "message": "Please try again in 10m0s."}}}
    with open_provider(WORK, say_done(), bearer=KEY, first=(later,)) as provider:
        spec = write(lab, provider, trials=1, schedule={"parallel": 1, "longest_wait": "1s"})
        refused = run(lab, spec, Pictures())
        with closing(sqlite3.connect(refused.paths.ledger, isolation_level=None)) as writer:
            writer.execute("update attempt set state = 'running', ended_at_ms = null, outcome = null, code = null")
        resumed = lab.run(spec, resume=refused.paths)
    assert (refused.how, resumed.how) == ("refused", "done"), "longer than a run waits"
    (started_at_ms, duration_ms, retry_at_ms), _ = rows(
        lab, "started_at_ms, json_extract(summary, '$.durationMs'), retry_at_ms"
    )
    assert retry_at_ms == started_at_ms + duration_ms + 600_000


@pytest.mark.requirement("schedule.rate-limit")
@pytest.mark.parametrize("runtime", ["codex_app_server", "codex_exec"])
def test_the_window_that_codex_tells_of_is_understood_in_the_zone_it_tells_it_in(lab: Lab, runtime: str) -> None:
    wait_s = 7200
    opens_at_s = int(time.time()) + wait_s
    with open_provider(say_done(), bearer=KEY, first=(used_up(resets_at=opens_at_s),)) as provider:
        schedule = {"parallel": 1, "longest_wait": "1s"}
        flow = {"runtime": [runtime], "options": {}, "env": {"TZ": "Asia/Kolkata"}}
        run(lab, write(lab, provider, trials=1, schedule=schedule, **flow), Pictures())
    [report] = [report_of(paths) for paths in lab.attempts().values()]
    assert report.code == "provider.usage-limit"
    assert report.retry_after_ms is not None
    assert 0 <= time.time() + report.retry_after_ms / 1000 - opens_at_s <= 60 + report.duration_ms / 1000 + 30


@pytest.mark.requirement("schedule.rate-limit")
def test_a_provider_without_capacity_is_given_time(lab: Lab) -> None:
    pictures = Pictures()
    with open_provider(WORK, say_done(), bearer=KEY, first=(OVERLOADED,) * 2) as provider:
        spec = write(lab, provider, trials=3, schedule={"parallel": 2})
        result = run(lab, spec, pictures)
    assert (result.how, verified(lab)) == ("done", {"m0", "m1", "m2"})
    assert codes(lab) == {None: 3, "provider.overloaded": 2}
    assert pictures.levels("provider:loopback")[0] == 1
    assert pictures.reasons("provider:loopback") == {"provider.overloaded"}


@pytest.mark.requirement("schedule.recovery")
def test_a_refused_credential_stops_its_flow_and_no_other(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTYPED_API_KEY", "pk-mistyped-000000")
    with open_provider(WORK, say_done(), bearer=KEY) as provider:
        flows = [
            {
                "id": name,
                "runtime": ["codex_app_server"],
                "model": {"provider": name, "name": "any", "base_url": provider.base_url},
                "login": "api-key",
                "options": AT_ONCE,
            }
            for name in ("loopback", "mistyped")
        ]
        missions = [mission(f"m{n}", probes=[PROBE]) for n in range(7)]
        spec = lab.write_spec(missions, flows=flows, schedule={"parallel": 2, "retries": 2, "backoff": "100ms"})
        result = lab.run(spec)
    lab.assert_all_evidence_is_valid()
    found = {name: report_of(paths) for name, paths in lab.attempts().items()}
    refused = {name: report.code for name, report in found.items() if ".mistyped." in name}
    # While one is being judged, others may have begun; as many again as there are places, at most.
    assert 1 <= len(refused) <= 4
    assert set(refused) <= {f"m{n}.mistyped.r1.1" for n in range(7)}, "nothing is tried twice"
    assert set(refused.values()) == {"provider.unauthorized"}
    assert {name for name, report in found.items() if report.verified} == {f"m{n}.loopback.r1.1" for n in range(7)}
    assert result.how == "refused"


@pytest.mark.requirement("schedule.rate-limit")
@pytest.mark.agent("claude_code")
def test_how_long_claude_code_still_waits_for_its_provider_is_known_when_our_clock_ends_it(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    wait = {"fault": {"status": 429, "retry_after": 40}}
    flow = {"runtime": ["claude_code"]}
    schedule = {"parallel": 1, "longest_wait": "1s"}
    spec = lab.write_spec([mission("m", wait)], flow=flow, schedule=schedule, limits={"turn": "6s"})
    result = run(lab, spec, Pictures())
    [report] = [report_of(paths) for paths in lab.attempts().values()]
    assert (result.how, report.outcome, report.code) == ("refused", Outcome.TIMED_OUT, "provider.rate-limited")
    assert report.retry_after_ms is not None
    assert 34_000 <= report.retry_after_ms < 40_000, "what is left of 40 s when 6 have not yet passed since it was told"
