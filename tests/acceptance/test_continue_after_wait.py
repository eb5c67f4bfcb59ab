"""Campaigns with `schedule.continue_after_wait`, on the real agents, against a provider that refuses for a while."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from proctor.attempt.model import CONTINUE_PROMPT, AttemptResult
from proctor.campaign.kept_trials import KeptTrials
from proctor.campaign.scratch import find_kept_workspaces
from proctor.campaign.watch import CampaignWatcher
from proctor.context.project import ContextProjection, ProjectionMode
from proctor.evidence.layout import RootPaths
from proctor.ids import AttemptId
from proctor.model.journal import JournalItem
from proctor.plan.continuation import FreshStart
from proctor.surface.gc_units import size_of
from proctor.testing.journals import recorded_journals
from tests.acceptance.waiting import (
    AT_ONCE,
    CLAUDE,
    CODEX,
    EXEC,
    FINISH,
    FIRST,
    KEY,
    PROBE,
    PROMPT,
    RATE_LIMIT,
    SECOND,
    THIRD,
    TRIAL,
    USAGE_LIMIT,
    WORK,
    interrupted,
    record_of,
    write_waiting_spec,
)
from tests.lab import Lab, mission, report_of, runner_ref_of, say_done, wait_until
from tests.provider import Provider, open_provider
from tests.scripted_engine import ID, Behaviour, offer_engine
from tests.surface.conftest import ask

pytestmark = [pytest.mark.real_agent, pytest.mark.requirement("session.continue-after-wait")]

with_claude = pytest.param(CLAUDE, marks=pytest.mark.agent("claude_code"))
both_agents = pytest.mark.parametrize("runtime", [CODEX, with_claude])


@dataclass
class BetweenAttempts(CampaignWatcher):
    """Does something while the campaign waits for the second attempt."""

    do: Callable[[], None]
    seen: list[str] = field(default_factory=list)

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        self.seen.append(result.attempt_id)
        if len(self.seen) == 1:
            self.do()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    monkeypatch.setenv("LOOPBACK_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    lab.is_other_agent_allowed = True


def kept_place(lab: Lab) -> Path:
    """The folder of the trial that its agent sees, if the campaign keeps it."""
    [campaign] = RootPaths(lab.root).campaigns()
    return KeptTrials.of(RootPaths(lab.root), campaign.folder.name).trial(TRIAL).agent  # type: ignore[arg-type]


def asked(provider: Provider, thread: int, request: int) -> list[JournalItem]:
    """What one request of a thread said to the model, without the agent's own texts."""
    items = provider.journal(provider.threads[thread])[request].items
    return [each for each in items if each.kind != "text" or PROMPT in each.whole_text or is_continuation(each)]


def is_continuation(item: JournalItem) -> bool:
    return item.kind == "text" and item.whole_text == CONTINUE_PROMPT


def roles_of(items: Sequence[JournalItem]) -> list[str]:
    """The mission prompt, the calls, the results and the sentence that asks to continue, in order."""
    calls, results = ("function_call", "tool_use"), ("function_call_output", "tool_result")
    names = {**dict.fromkeys(calls, "call"), **dict.fromkeys(results, "result")}
    return ["continue" if is_continuation(each) else names.get(each.kind, "prompt") for each in items]


def assert_continued(lab: Lab, provider: Provider) -> None:
    """The second attempt has done the rest in the thread and the workspace of the first."""
    assert len(provider.threads) == 1, "a fresh start would have begun another thread"
    assert roles_of(asked(provider, 0, 2)) == ["prompt", "call", "result", "continue"]
    attempts = lab.attempts()
    first, second = attempts[FIRST], attempts[SECOND]
    assert len(attempts) == 2
    left = report_of(first)
    record, taken = record_of(second), record_of(second).continued_from
    assert (record.continues, record.fresh_start) == (FIRST, None)
    assert taken is not None
    assert (taken.run_id, taken.thread_id) == (record_of(first).run_id, runner_ref_of(first).thread_id)
    assert (taken.workspace_digest, taken.tokens) == (left.workspace_digest_after, left.metrics.total_tokens)
    assert record.workspace_digest == record_of(first).workspace_digest
    assert (runner_ref_of(first).is_fresh_session, runner_ref_of(second).is_fresh_session) == (True, False)
    assert second.prompt.read_text() == CONTINUE_PROMPT
    assert (left.verified, report_of(second).verified) == (False, True)
    assert report_of(second).metrics.total_tokens is not None
    added = [line for line in second.workspace_diff.read_text().splitlines() if line.startswith("+")]
    assert added[1:] == ["+half", "+rest"], "the diff is against the untouched workspace"


def assert_fresh(lab: Lab, provider: Provider, reason: FreshStart | None) -> None:
    """The second attempt has begun from nothing, in a thread of its own."""
    record, ref = record_of(lab.attempts()[SECOND]), runner_ref_of(lab.attempts()[SECOND])
    assert (record.continues, record.continued_from, record.fresh_start) == (None, None, reason)
    assert ref.is_fresh_session
    assert len(provider.threads) == 2
    assert roles_of(asked(provider, 1, 0)) == ["prompt"]
    assert report_of(lab.attempts()[SECOND]).verified, "the workspace was pristine"


# ── continued ──


@pytest.mark.parametrize("isolation", ["process", "shared"])
@pytest.mark.parametrize("runtime", [CODEX, EXEC, with_claude])
def test_attempt_after_a_rate_limit_continues_thread_and_workspace(lab: Lab, runtime: str, isolation: str) -> None:
    with open_provider(bearer=KEY, first=(interrupted(),)) as provider:
        result = lab.run(write_waiting_spec(lab, provider, runtime, isolation=isolation))
        assert result.how == "done"
        assert_continued(lab, provider)
    assert report_of(lab.attempts()[FIRST]).code == "provider.rate-limited"
    lab.assert_all_evidence_is_valid()
    assert not kept_place(lab).parents[1].exists(), "nothing is kept of a settled trial"


@pytest.mark.parametrize("runtime", [CODEX, EXEC])
def test_attempt_after_a_usage_limit_continues(lab: Lab, runtime: str) -> None:
    with open_provider(bearer=KEY, first=(interrupted(USAGE_LIMIT),)) as provider:
        lab.run(write_waiting_spec(lab, provider, runtime))
        assert_continued(lab, provider)
    assert report_of(lab.attempts()[FIRST]).code == "provider.usage-limit"
    lab.assert_all_evidence_is_valid()


def retry_at_ms(lab: Lab) -> int | None:
    with suppress(ValueError, sqlite3.OperationalError):
        [campaign] = RootPaths(lab.root).campaigns()
        with closing(sqlite3.connect(f"file:{campaign.ledger}?mode=ro", uri=True)) as reader:
            return next((at_ms for (at_ms,) in reader.execute("select retry_at_ms from attempt") if at_ms), None)
    return None


@pytest.mark.requirement("campaign.resume")
@both_agents
def test_resume_after_kill_9_during_the_wait_continues(lab: Lab, runtime: str) -> None:
    wait = {"fault": {"status": 429, "retry_after": 3}}
    with open_provider(bearer=KEY, first=(interrupted(wait),)) as provider:
        process = lab.start("run", str(write_waiting_spec(lab, provider, runtime, schedule={"backoff": "3s"})), "--yes")
        try:
            wait_until(lambda: retry_at_ms(lab) is not None, deadline_s=60)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout=10)
        assert kept_place(lab).stat().st_mode & 0o777 == 0o700
        [campaign] = RootPaths(lab.root).campaigns()
        assert ask(lab, "campaign", "resume", campaign.folder.name).code == 0
        assert_continued(lab, provider)
    assert record_of(lab.attempts()[FIRST]).run_id != record_of(lab.attempts()[SECOND]).run_id
    lab.assert_all_evidence_is_valid()
    assert ask(lab, "validate", "--strict").code == 0


def test_chain_of_attempts_shares_the_limit_of_tokens(lab: Lab) -> None:
    # Codex reports the tokens of a reply when its command has ended.
    thread = (WORK, RATE_LIMIT, RATE_LIMIT, FINISH, {"run": "sleep 60"}, say_done())
    with open_provider(bearer=KEY, first=(thread,)) as provider:
        lab.run(write_waiting_spec(lab, provider, top={"limits": {"tokens": 9_000}}))
        assert len(provider.threads) == 1
    attempts = lab.attempts()
    reports = [report_of(attempts[name]) for name in (FIRST, SECOND, THIRD)]
    third = record_of(attempts[THIRD])
    assert [each.code for each in reports] == ["provider.rate-limited", "provider.rate-limited", "limit.tokens"]
    first, second, _ = (each.metrics.total_tokens for each in reports)
    assert (third.continues, second) == (SECOND, None), "the second attempt got no reply"
    assert third.continued_from is not None
    assert (third.continued_from.tokens, third.continued_from.tokens_unknown) == (first, 1)
    assert first is not None
    used = int((reports[2].detail or "").split()[0])
    assert max(first, used - first) <= 9_000 < used, "neither alone has used too many"
    lab.assert_all_evidence_is_valid()


@pytest.mark.parametrize("isolation", ["process", "shared"])
@both_agents
def test_scripted_model_plays_other_steps_in_a_continued_attempt(lab: Lab, runtime: str, isolation: str) -> None:
    flow = {"id": "agent", "runtime": [runtime], "isolation": isolation, "options": {runtime: AT_ONCE[runtime]}}
    schedule = {"backoff": "100ms", "continue_after_wait": True}
    spec = lab.write_spec([mission("m", WORK, RATE_LIMIT, probes=[PROBE])], flow=flow, schedule=schedule)
    script = spec.with_name("m.yaml")
    script.write_text(yaml.safe_dump({**yaml.safe_load(script.read_text()), "continued": [FINISH, say_done()]}))
    with recorded_journals() as journals:
        lab.run(spec)
    assert record_of(lab.attempts()[SECOND]).continues == FIRST
    assert report_of(lab.attempts()[SECOND]).verified
    assert [journal.key for journal in journals] == [FIRST, SECOND]
    lab.assert_all_evidence_is_valid()


@pytest.mark.parametrize("engine", ["none", "window", "lossless"])
@both_agents
def test_attempt_with_a_context_engine_continues_its_session_and_thread(lab: Lab, runtime: str, engine: str) -> None:
    with open_provider(bearer=KEY, first=(interrupted(),)) as provider:
        lab.run(write_waiting_spec(lab, provider, runtime, context={"engine": engine}))
        assert_continued(lab, provider)
    assert not kept_place(lab).parents[1].exists()
    lab.assert_all_evidence_is_valid()


@pytest.fixture
def engine(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    return offer_engine(lab.folder, monkeypatch)


@pytest.mark.parametrize("isolation", ["process", "shared"])
def test_engine_of_a_continued_trial_forgets_its_session_when_it_is_settled(
    lab: Lab, engine: Behaviour, isolation: str
) -> None:
    with open_provider(bearer=KEY, first=(interrupted(),)) as provider:
        watcher = BetweenAttempts(lambda: engine.calls.append("wait"))
        lab.run(write_waiting_spec(lab, provider, isolation=isolation, context={"engine": ID}), watcher=watcher)
        assert_continued(lab, provider)
    before, after = engine.calls[: engine.calls.index("wait")], engine.calls[engine.calls.index("wait") :]
    assert ("forget delete" in before, after.count("forget delete")) == (False, 1)
    assert len({context.session for context in engine.contexts}) == 1


def test_attempt_whose_engine_needs_another_thread_is_followed_by_a_fresh_one(lab: Lab, engine: Behaviour) -> None:
    def change_epoch(epoch: str) -> None:
        engine.projection = ContextProjection(mode=ProjectionMode.THREAD_BOOTSTRAP, epoch=epoch)

    change_epoch("one")
    with open_provider(WORK, FINISH, say_done(), bearer=KEY, first=((WORK, RATE_LIMIT),)) as provider:
        watcher = BetweenAttempts(lambda: change_epoch("two"))
        lab.run(write_waiting_spec(lab, provider, context={"engine": ID}), watcher=watcher)
    refused, last = report_of(lab.attempts()[SECOND]), record_of(lab.attempts()[THIRD])
    assert (refused.code, last.fresh_start) == ("peer.thread-lost", FreshStart.THREAD_GONE)
    assert "another epoch" in (refused.detail or "")
    assert report_of(lab.attempts()[THIRD]).verified
    lab.assert_all_evidence_is_valid()


# ── fresh ──


@both_agents
def test_attempt_without_the_setting_starts_fresh_without_a_reason(lab: Lab, runtime: str) -> None:
    with open_provider(WORK, FINISH, say_done(), bearer=KEY, first=((WORK, RATE_LIMIT),)) as provider:
        lab.run(write_waiting_spec(lab, provider, runtime, schedule={"continue_after_wait": False}))
        assert_fresh(lab, provider, None)
    lab.assert_all_evidence_is_valid()
    assert not kept_place(lab).exists()


def remove_thread(place: Path, runtime: str) -> None:
    pattern = "homes/*/sessions/*/claude/projects/*/*.jsonl" if runtime == CLAUDE else "homes/*/sessions/*/*/*/*.jsonl"
    [stored] = place.glob(pattern)
    stored.unlink()


@both_agents
def test_attempt_whose_thread_is_gone_starts_fresh_with_the_reason(lab: Lab, runtime: str) -> None:
    watcher = BetweenAttempts(lambda: remove_thread(kept_place(lab), runtime))
    with open_provider(WORK, FINISH, say_done(), bearer=KEY, first=((WORK, RATE_LIMIT),)) as provider:
        lab.run(write_waiting_spec(lab, provider, runtime), watcher=watcher)
        assert_fresh(lab, provider, FreshStart.THREAD_GONE)
    lab.assert_all_evidence_is_valid()


def change_workspace(place: Path) -> None:
    (place / "workspace" / "work.txt").write_text("other\n")


def test_attempt_after_one_whose_evidence_was_changed_starts_fresh_with_the_reason(lab: Lab) -> None:
    def change() -> None:
        paths = lab.attempts()[FIRST]
        paths.report.write_bytes(paths.report.read_bytes() + b"\n")

    with open_provider(WORK, FINISH, say_done(), bearer=KEY, first=((WORK, RATE_LIMIT),)) as provider:
        lab.run(write_waiting_spec(lab, provider), watcher=BetweenAttempts(change))
        assert_fresh(lab, provider, FreshStart.UNSEALED)


def remove_workspace(place: Path) -> None:
    (place / "workspace").rename(place / "elsewhere")


def remove_homes(place: Path) -> None:
    (place / "homes").rename(place / "elsewhere")


def remove_place(place: Path) -> None:
    place.rename(place.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_workspace, FreshStart.WORKSPACE_CHANGED),
        (remove_workspace, FreshStart.WORKSPACE_MISSING),
        (remove_homes, FreshStart.HOME_MISSING),
        (remove_place, FreshStart.HOME_MISSING),
    ],
)
def test_attempt_whose_kept_place_has_changed_starts_fresh_with_the_reason(
    lab: Lab, change: Callable[[Path], None], reason: FreshStart
) -> None:
    watcher = BetweenAttempts(lambda: change(kept_place(lab)))
    with open_provider(WORK, FINISH, say_done(), bearer=KEY, first=((WORK, RATE_LIMIT),)) as provider:
        lab.run(write_waiting_spec(lab, provider), watcher=watcher)
        assert_fresh(lab, provider, reason)
    lab.assert_all_evidence_is_valid()


def test_attempt_after_one_without_progress_starts_fresh_with_the_reason(lab: Lab) -> None:
    with open_provider(WORK, FINISH, say_done(), bearer=KEY, first=(RATE_LIMIT,)) as provider:
        lab.run(write_waiting_spec(lab, provider))
        assert_fresh(lab, provider, FreshStart.NO_PROGRESS)
    lab.assert_all_evidence_is_valid()


def test_attempt_after_one_that_was_cut_off_starts_fresh_with_the_reason(lab: Lab) -> None:
    with open_provider(WORK, FINISH, say_done(), bearer=KEY, first=((WORK, {"fault": "hang"}),)) as provider:
        process = lab.start("run", str(write_waiting_spec(lab, provider)), "--yes")
        try:
            wait_until(lambda: bool(provider.threads) and len(provider.journal(provider.threads[0])) == 2)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout=10)
        [campaign] = RootPaths(lab.root).campaigns()
        lab.run(lab.folder / "spec" / "spec.yaml", resume=campaign)
        assert_fresh(lab, provider, FreshStart.UNSEALED)


def test_attempt_whose_thread_the_agent_refuses_is_followed_by_a_fresh_one(lab: Lab) -> None:
    def damage() -> None:
        [stored] = kept_place(lab).glob("homes/*/sessions/*/*/*/*.jsonl")
        stored.write_text("{}\n")

    with open_provider(WORK, FINISH, say_done(), bearer=KEY, first=((WORK, RATE_LIMIT),)) as provider:
        result = lab.run(write_waiting_spec(lab, provider), watcher=BetweenAttempts(damage))
    refused, last = report_of(lab.attempts()[SECOND]), record_of(lab.attempts()[THIRD])
    assert (refused.code, record_of(lab.attempts()[SECOND]).continues) == ("peer.thread-lost", FIRST)
    assert (last.continues, last.fresh_start) == (None, FreshStart.THREAD_GONE)
    assert (result.how, report_of(lab.attempts()[THIRD]).verified) == ("done", True)
    lab.assert_all_evidence_is_valid()


# ── what is kept ──


def test_kept_trial_survives_the_sweeps_and_goes_with_its_campaign(lab: Lab) -> None:
    limit = {"type": "usage_limit_reached", "message": "no", "resets_at": int(time.time()) + 86_400}
    tomorrow = {"fault": {"status": 429, "body": {"error": limit}}}
    with open_provider(bearer=KEY, first=((WORK, tomorrow),)) as provider:
        result = lab.run(write_waiting_spec(lab, provider, schedule={"longest_wait": "1h"}))
    assert result.how == "refused", "its trial still waits"
    place = kept_place(lab)
    [finding] = [each for each in ask(lab, "doctor", "--json").json["checks"] if each["name"] == "trials"]
    assert str(place.parents[1]) in finding["facts"]["campaigns"]
    [campaign] = RootPaths(lab.root).campaigns()
    for file in lab.root.rglob("*"):
        os.utime(file, (1, 1))
    units = ask(lab, "gc", "--older-than", "1d", "--dry-run", "--json").json["units"]
    # Others may have left scratch in the same cache.
    [unit] = [each for each in units if each["kind"] == "campaign"]
    assert unit["sizeBytes"] > size_of(lab.root), "the agent's home is counted"
    assert (place / "workspace" / "work.txt").exists()
    assert ask(lab, "gc", "--older-than", "1d").code == 0
    assert not campaign.folder.exists()
    assert not place.parents[1].exists()


def test_kept_workspaces_are_copies_if_the_trial_may_be_continued(lab: Lab) -> None:
    with open_provider(bearer=KEY, first=(interrupted(),)) as provider:
        lab.run(write_waiting_spec(lab, provider, top={"keep": {"workspaces": True}}))
        assert_continued(lab, provider)
    for name, text in ((FIRST, "half\n"), (SECOND, "half\nrest\n")):
        [workspace] = find_kept_workspaces(record_of(lab.attempts()[name]).run_id, AttemptId(name))
        assert (workspace / "work.txt").read_text() == text


def test_trace_expectations_cover_the_whole_chain(lab: Lab) -> None:
    with open_provider(bearer=KEY, first=((WORK, RATE_LIMIT, say_done()),)) as provider:
        spec = write_waiting_spec(lab, provider)
        whole = yaml.safe_load(spec.read_text())
        whole["missions"][0]["expect"] = {"trace": {"commands": ["echo half"], "max_tool_calls": 1}}
        spec.write_text(yaml.safe_dump(whole))
        lab.run(spec)
    assert report_of(lab.attempts()[SECOND]).expectation.met
    assert report_of(lab.attempts()[SECOND]).metrics.tool_calls == 0
    lab.assert_all_evidence_is_valid()
