"""`campaign status` and `campaign list`: how campaigns stand, from another terminal and afterwards."""

import json
import os
import signal
import sqlite3
import sys
from contextlib import closing
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import msgspec
import pytest

from proctor.campaign.lock import campaign_lock, is_held_by
from proctor.campaign.scratch import is_locked
from proctor.config.load import load_config
from proctor.contain.identity import identify
from proctor.contain.intent import take_lock
from proctor.errors import InputError
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import Expectation
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.live import Live, LiveAttempt, LiveLimit
from proctor.evidence.owner_lock import owner_of
from proctor.ids import AttemptId, CampaignId, RuntimeId
from proctor.ledger import writer
from proctor.surface.campaign_status import RemainingTrials, status_of
from proctor.surface.check_root import check_evidence_root
from proctor.surface.cli.retry import choose
from tests.lab import Lab, mission, say_done, wait_until
from tests.report.made import CAMPAIGN, INFRA, RUN, YES, campaign, record, report, summary, trial, tried
from tests.surface.conftest import Said, ask, started

CODEX = RuntimeId("codex_app_server")
WRONG = {"verified": False, "expectation": Expectation(met=False, keys={"verified": False}, unmet=("verified",))}


def made(lab: Lab) -> CampaignPaths:
    """Of eight trials two are done, two crashed with retries left, one was refused, one was cancelled, one was claimed
    and one not tried."""
    others = ("wrong", "crashed", "retried", "refused", "cancelled")
    paths = campaign(lab.root, "fix", unsettled=(*others, "cutoff"), untried=("untried",))
    endings: dict[str, tuple[Any, int | None]] = {
        "wrong": (WRONG, None),
        "crashed": ({"outcome": Outcome.CRASHED, "code": "peer.lost"}, None),
        "retried": ({"outcome": Outcome.CRASHED, "code": "peer.lost"}, 99),
        "refused": ({"outcome": Outcome.REFUSED, "code": "provider.unauthorized"}, None),
        "cancelled": ({"outcome": Outcome.CANCELLED, "code": "run.cancelled"}, None),
    }
    with writer.open_ledger(paths.ledger) as book:
        for mission, (changes, retry_at_ms) in endings.items():
            attempt = AttemptId(f"{trial(mission).id}.1")
            sealed = summary(attempt, runtime=CODEX, **changes)
            book.apply([writer.seal_attempt(attempt, sealed, at_ms=60_001, usd=0.25, retry_at_ms=retry_at_ms)])
    return paths


def status(lab: Lab, *words: str) -> Said:
    return ask(lab, "campaign", "status", *words)


@pytest.mark.requirement("campaign.status")
def test_of_an_ended_campaign_it_says_what_is_left_and_how_to_go_on(lab: Lab) -> None:
    paths = made(lab)
    standing = status_of(paths)
    assert (standing.trials, standing.settled) == (8, 2)
    assert standing.left == RemainingTrials(untried=1, running=0, cut_off=1, again=4)
    assert standing.outcomes == {"completed": 2, "crashed": 2, "refused": 1, "cancelled": 1}
    assert standing.codes == {"peer.lost": 2, "provider.unauthorized": 1, "run.cancelled": 1}
    assert (standing.expected, standing.unexpected) == (1, 1), "what is to be tried again has not shown anything yet"
    assert standing.per_minute == 6.0
    assert (standing.usd, standing.usd_unknown) == (1.25, 2), "one of them has no price, and one did not end"
    assert (standing.is_live, standing.ended, standing.live) == (False, None, None)
    said = status(lab)
    assert said.code == 0
    assert " ≥ $1.25\n" in said.stdout
    assert " results   1 of 2 verified, 1 of 2 as expected\n" in said.stdout
    assert "2 of 8 have a final result, 4 to be retried, 1 cut off, 1 not tried yet\n" in said.stdout
    assert f"6 trials left: proctor campaign resume {CAMPAIGN} --root {lab.root}\n" in said.stdout


@pytest.mark.parametrize(
    ("change", "todo"),
    [
        (
            "update run set ended = 'limit'",
            "2 trials left; its time is used up: raise limits.campaign and start a new campaign",
        ),
        (
            "update run set ended = 'budget'",
            "2 trials left; its budget is used up: raise limits.usd and start a new campaign",
        ),
        ("update campaign set file = ''", None),
        ("", None),
    ],
)
def test_nobody_is_told_to_go_on_with_what_a_resume_would_not_take_up(lab: Lab, change: str, todo: str | None) -> None:
    paths = tried(lab.root, {"fix.codex.r1": [YES], "one.codex.r1": [], "two.codex.r1": []}, is_canary=not change)
    with closing(sqlite3.connect(paths.ledger)) as connection, connection:
        connection.execute("update run set ended = 'drained'")
        connection.execute(change)
    for command in ("status", "report"):
        said = ask(lab, "campaign", command, CAMPAIGN).stdout
        assert "resume" not in said
        assert todo is None or todo.partition("; ")[2] in said
    assert todo is None or todo in status(lab, CAMPAIGN).stdout
    assert next(check_evidence_root(RootPaths(lab.root), load_config(lab.folder))).todo is None


def test_where_infrastructure_failures_stand_it_says_how_to_try_those_again(lab: Lab) -> None:
    tried(lab.root, {"a.codex.r1": [YES], "b.codex.r1": [INFRA]})
    told = status(lab).stdout
    assert told.endswith(
        f"\n\n  retry infrastructure failures: proctor retry --only infra {CAMPAIGN} --root {lab.root}\n"
    )


@pytest.mark.parametrize("command", ["status", "report"])
def test_nobody_is_told_to_try_again_by_kind_what_is_the_agents_own(lab: Lab, command: str) -> None:
    late = {"verified": None, "expectation": Expectation(met=None, keys={}, unmet=()), "outcome": Outcome.TIMED_OUT}
    paths = tried(lab.root, {"a.codex.r1": [YES], "b.codex.r1": [{**late, "code": "limit.turn"}]})
    said = ask(lab, "campaign", command).stdout
    assert list(choose(paths, ["infra"])) == []
    assert "infrastructure failed" in said.lower()
    assert "retry --only infra" not in said


def test_what_was_sealed_when_a_run_was_killed_is_settled_whatever_the_ledger_says(lab: Lab) -> None:
    paths = made(lab)
    attempt = RootPaths(lab.root).run(RUN).attempt(trial("cutoff").id, n=1)
    attempt.create()
    name = AttemptId("cutoff.codex.r1.1")
    attempt.attempt.write_bytes(msgspec.json.encode(record(name)))
    attempt.report.write_bytes(msgspec.json.encode(report(name)))
    assert status_of(paths).left.cut_off == 1
    attempt.seal.touch()
    standing = status_of(paths)
    assert (standing.settled, standing.left.cut_off, standing.outcomes["completed"]) == (3, 0, 3)


@pytest.mark.requirement("campaign.status")
def test_while_it_runs_another_terminal_sees_each_attempt_and_what_is_rationed(lab: Lab) -> None:
    paths = made(lab)
    at_work = LiveAttempt(
        attempt_id=AttemptId("cutoff.codex.r1.1"),
        phase="working",
        doing="shell: make test",
        tokens=1785,
        usd=0.5,
        began_at_ms=1,
        heard_at_ms=2,
    )
    shut = LiveLimit(
        key="provider:openai", maximum=8, current_maximum=2, taken=0, until_ms=3, why="provider.rate-limited"
    )
    live = Live(
        at_ms=3, run_id=RUN, trials=8, settled=3, waiting=4, running=(at_work,), limits=(shut,), stopping="draining"
    )
    paths.live.write_bytes(msgspec.json.encode(live))
    assert status_of(paths).live is None, "its owner is dead, so that it says nothing"
    lock = take_lock(paths.folder)
    assert lock is not None
    try:
        seen = status_of(paths)
        assert (seen.is_live, seen.live, seen.verdict, seen.left.running) == (True, live, "running", 1)
        told = status(lab).stdout
        paths.live.write_bytes(b"{")
        assert status_of(paths).live is None, "a picture that is no picture is none"
    finally:
        os.close(lock)
    lines = [line.strip() for line in told.splitlines()]
    [line] = [line for line in lines if line.startswith("cutoff.codex.r1.1")]
    assert line.split()[:8] == ["cutoff.codex.r1.1", "working", "shell:", "make", "test", "1,785", "tokens", "$0.50"]
    assert (
        "provider:openai  running now: 0 (at most 2 at once, normally 8), closed for 0 ms: provider.rate-limited"
        in lines
    )
    assert "4 trials waiting" in lines
    assert "draining" in lines
    assert "resume" not in told


@pytest.mark.requirement("campaign.status")
def test_json_tells_the_same_and_watching_ends_with_the_campaign(lab: Lab) -> None:
    paths = made(lab)
    plain, watched = status(lab, CAMPAIGN, "--json"), status(lab, "made", "--watch", "--json")
    assert plain.json == msgspec.to_builtins(status_of(paths)) == json.loads(watched.stdout)
    assert watched.stdout.count("\n") == 1


@pytest.mark.proctor_process
@pytest.mark.requirement("campaign.status")
def test_watching_where_there_is_no_terminal_tells_each_change_and_the_end(lab: Lab) -> None:
    paths = made(lab)
    lock = take_lock(paths.folder)
    assert lock is not None
    with started(lab, "campaign", "status", "--watch") as process:
        assert process.stdout is not None
        try:
            assert (
                process.stdout.readline() == "2 of 8 have a final result, 1 running, 4 to be retried, 1 not tried yet\n"
            )
            attempt = AttemptId("cutoff.codex.r1.1")
            with writer.open_ledger(paths.ledger) as book:
                book.apply([writer.seal_attempt(attempt, summary(attempt, runtime=CODEX), at_ms=60_002)])
            assert process.stdout.readline() == "3 of 8 have a final result, 4 to be retried, 1 not tried yet\n"
        finally:
            os.close(lock)
        told = process.stdout.read()
    assert told.startswith(f"{CAMPAIGN}   cut off\n")
    assert "  5 trials left: " in told


@pytest.mark.proctor_process
def test_whoever_stops_watching_is_not_told_that_the_campaign_was_interrupted(lab: Lab) -> None:
    lock = take_lock(made(lab).folder)
    assert lock is not None
    try:
        with started(lab, "campaign", "status", "--watch") as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            told = process.stdout.read()
        assert (process.returncode, told) == (0, "")
    finally:
        os.close(lock)


@pytest.mark.timeout(20)
def test_a_lock_that_is_no_file_is_nobodys_and_nobody_waits_for_it(lab: Lab) -> None:
    paths = made(lab)
    os.mkfifo(paths.folder / "lock")
    assert (status_of(paths).is_live, owner_of(paths.folder), is_locked(paths.folder)) == (False, None, False)
    with pytest.raises(OSError, match="not a regular file"):
        take_lock(paths.folder)
    cancelled = ask(lab, "campaign", "cancel", CAMPAIGN, "--json")
    assert (cancelled.code, cancelled.json["error"]["code"]) == (InputError.exit, "campaign.not-running")


def test_a_cancel_signals_nobody_whom_a_lock_only_names(lab: Lab) -> None:
    paths = made(lab)
    # It catches both signals and would end of them, and holds no lock.
    stranger = (
        "import signal; signal.signal(signal.SIGUSR1, signal.default_int_handler);"
        "signal.signal(signal.SIGUSR2, signal.default_int_handler); print(flush=True); input()"
    )
    with (
        Popen([sys.executable, "-c", stranger], stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as process,
        campaign_lock(paths),
    ):
        assert process.stdout is not None
        process.stdout.readline()
        named = identify(process.pid)
        assert named is not None
        (paths.folder / "lock").write_bytes(msgspec.json.encode(named))
        for words in ((), ("--now",)):
            said = ask(lab, "campaign", "cancel", CAMPAIGN, *words, "--json")
            assert (said.code, said.json["error"]["code"]) == (InputError.exit, "campaign.not-running")
            assert f"names process {process.pid}" in said.json["error"]["what"]
        ours = identify(os.getpid())
        assert ours is not None
        assert (is_held_by(paths, ours), is_held_by(paths, named)) == (True, False)
        process.communicate(b"\n")
        assert process.returncode == 0


def test_what_is_no_campaign_is_not_found(lab: Lab) -> None:
    made(lab)
    said = status(lab, "nobody", "--json")
    assert (said.code, said.json["error"]["code"]) == (InputError.exit, "evidence.not-found")


def test_every_campaign_is_listed_and_one_that_is_damaged_is_told(lab: Lab) -> None:
    made(lab)
    canary = tried(lab.root, {}, campaign_id=CampaignId("made-canary-20260102-120000-aaaaaa"), is_canary=True)
    canary.pin.touch()
    damaged = RootPaths(lab.root).campaign(CampaignId("made-20260103-120000-aaaaaa"))
    damaged.create()
    damaged.plan.write_text("{}")
    damaged.ledger.write_text("no ledger at all")
    said = ask(lab, "campaign", "list", "--json")
    assert said.code == 0
    told = [(each["campaignId"], each["kind"], each["trials"], each["isPinned"]) for each in said.json["campaigns"]]
    assert told == [(CAMPAIGN, "campaign", 8, False), (canary.folder.name, "canary", 0, True)]
    assert [(each["code"], each["file"]) for each in said.json["findings"]] == [
        ("evidence.ledger", f"{damaged.folder.name}/ledger.db")
    ]
    text = ask(lab, "campaign", "list").stdout
    assert CAMPAIGN in text
    assert "canary, pinned" in text
    assert "2 of 8" in text


def test_a_narrow_terminal_never_folds_the_id_of_a_campaign(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    long = CampaignId("rewrite-the-importer-in-small-steps-20260102-120000-aaaaaa")
    made(lab).folder.rename(lab.root / "campaigns" / long)
    monkeypatch.setenv("COLUMNS", "80")
    heading, told = ask(lab, "campaign", "list").stdout.splitlines()
    assert (heading.split(), told.split()) == (["campaign", "verdict"], [long, "not", "as", "expected"])
    for width in range(len(long), 120, 7):
        monkeypatch.setenv("COLUMNS", str(width))
        assert long in ask(lab, "campaign", "list").stdout


def test_without_any_campaign_the_list_says_so(lab: Lab) -> None:
    assert ask(lab, "campaign", "list").stdout.startswith("No campaigns in ")


@pytest.mark.real_agent
@pytest.mark.requirement("campaign.status")
def test_a_campaign_that_really_runs_is_seen_from_outside_and_after_kill_9_it_says_how_to_go_on(lab: Lab) -> None:
    missions = [mission("slow", {"run": "sleep 60"}, say_done()), mission("next", say_done())]
    spec = lab.write_spec(missions, schedule={"parallel": 1})
    process = lab.start("run", str(spec))
    try:
        wait_until(lambda: any(each["doing"] for each in running(lab)), deadline_s=60)
        seen = status(lab, "--json").json
        [attempt] = seen["live"]["running"]
        assert (attempt["attemptId"], attempt["phase"], attempt["doing"]) == (
            "slow.codex.r1.1",
            "working",
            "shell: sleep 60",
        )
        assert (seen["isLive"], seen["trials"], seen["left"]["running"], seen["left"]["untried"]) == (True, 2, 1, 1)
        assert seen["live"]["limits"][0] == {
            "key": "all",
            "maximum": 1,
            "currentMaximum": 1,
            "taken": 1,
            "untilMs": None,
            "why": None,
        }
    finally:
        process.kill()
        process.wait()
    after = status(lab, "--json").json
    assert (after["isLive"], after["live"], after["left"]["cutOff"], after["ended"]) == (False, None, 1, None)
    assert "campaign resume lab-" in status(lab).stdout


def running(lab: Lab) -> list[dict[str, Any]]:
    found = ask(lab, "campaign", "list", "--json").json["campaigns"]
    return [row for each in found if each["live"] for row in each["live"]["running"]]


def test_a_campaign_whose_spec_was_moved_is_gone_on_with_by_naming_it(lab: Lab) -> None:
    made(lab)
    error = ask(lab, "campaign", "resume", "made", "--json").json["error"]
    assert (error["code"], error["what"]) == (
        "campaign.no-spec",
        f"the spec of {CAMPAIGN} does not exist: made.yaml",
    )
    assert error["suggestion"] == f"proctor campaign resume {CAMPAIGN} --spec FILE --root {lab.root}"


@pytest.mark.parametrize("command", ["status", "report", "resume", "cancel"])
def test_a_name_that_no_campaign_has_leads_to_those_there_are(lab: Lab, command: str) -> None:
    made(lab)
    every = f"proctor campaign list --root {lab.root}"
    near = ask(lab, "campaign", command, "mode", "--json").json["error"]
    assert (near["code"], near["suggestion"]) == (
        "evidence.not-found",
        f"Did you mean `made`? `{every}` lists all campaigns.",
    )
    assert ask(lab, "campaign", command, "nope", "--json").json["error"]["suggestion"] == every


def test_where_several_run_a_cancel_without_a_name_asks_which(lab: Lab) -> None:
    names = [CampaignId(f"{name}-20260101-12000{at}-aaaaaa") for at, name in enumerate(("day", "night"))]
    one, other = (tried(lab.root, {"fix.codex.r1": []}, campaign_id=name) for name in names)
    with campaign_lock(one), campaign_lock(other):
        said = ask(lab, "campaign", "cancel", "--now", "--json")
    error = said.json["error"]
    assert (said.code, error["code"], error["what"]) == (
        *(2, "evidence.ambiguous"),
        f"2 campaigns are running in {lab.root}",
    )
    assert error["suggestion"].splitlines() == [
        f"proctor campaign cancel {name} --now --root {lab.root}" for name in reversed(names)
    ]
