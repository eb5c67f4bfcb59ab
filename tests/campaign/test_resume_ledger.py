"""What resume finds in a ledger: when a trial is due, and claims that the disk decides."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from bench.campaign import KEY, spec_of
from bench.runtimes import write_fake
from proctor.campaign.lock import campaign_lock
from proctor.campaign.run import CampaignResult, run_campaign
from proctor.campaign.watch import CampaignWatcher
from proctor.clock import SYSTEM_CLOCK
from proctor.contain.identity import identify
from proctor.errors import InputError, MachineError
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.live import LiveLimit
from proctor.evidence.owner_lock import owner_of
from proctor.ids import TrialId
from proctor.spec.load import load_spec
from proctor.surface.cli.resume_campaign import load_again
from tests.campaign.passing import Looking, looking
from tests.runtime.twin import run


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two trials on an agent that is none."""
    monkeypatch.setenv(KEY, "none-needed-here")
    monkeypatch.setenv("PROCTOR_CODEX", str(write_fake(tmp_path)))
    file = tmp_path / "spec.yaml"
    file.write_bytes(msgspec.json.encode(spec_of(2, isolation="shared")))
    return file


def campaign(
    spec: Path,
    *,
    resume: CampaignPaths | None = None,
    watcher: Looking | None = None,
    only: Collection[TrialId] | None = None,
) -> CampaignResult:
    root = spec.parent / "evidence"
    clock = SYSTEM_CLOCK if watcher is None else watcher.clock
    seen = watcher or CampaignWatcher()
    return run(lambda: run_campaign(load_spec(spec), root=root, watcher=seen, clock=clock, resume=resume, only=only))


def change(paths: CampaignPaths, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(paths.ledger, isolation_level=None)) as writer:
        writer.execute(sql, values)


def rows(paths: CampaignPaths, columns: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(paths.ledger)) as reader:
        return reader.execute(f"select {columns} from attempt order by id").fetchall()


def ended_with(paths: CampaignPaths, code: str, *, retry_at_ms: int) -> None:
    """Of two trials, one was to be tried again then, and the other was not tried."""
    sql = "update attempt set outcome = 'failed', code = ?, retry_at_ms = ? where id = 'm0.f.r1.1'"
    change(paths, sql, code, retry_at_ms)
    change(paths, "delete from attempt where id = 'm0.f.r2.1'")
    [folder] = paths.folder.parent.parent.glob("runs/*/attempts/m0.f.r2.1")
    shutil.rmtree(folder)


def begun(paths: CampaignPaths) -> dict[object, int]:
    return {row[0]: row[1] for row in rows(paths, "id, started_at_ms") if isinstance(row[1], int)}


def soon_ms() -> int:
    return SYSTEM_CLOCK.wall_ms() + 3_500_000


@pytest.mark.long
@pytest.mark.requirement("campaign.resume")
def test_a_trial_that_is_due_later_is_not_tried_before_and_keeps_no_other_waiting(spec: Path) -> None:
    paths, due_ms, look = campaign(spec).paths, soon_ms(), looking(first_s=3600)
    ended_with(paths, "peer.lost", retry_at_ms=due_ms)
    result = campaign(spec, resume=paths, watcher=look)
    assert [each.attempt_id for each in result.attempts] == ["m0.f.r1.2", "m0.f.r2.1"]
    assert begun(paths)["m0.f.r1.2"] >= due_ms
    first = look.seen[0]
    assert first.limits == (LiveLimit(key="all", maximum=16, current_maximum=16, taken=1),), "the other has begun"
    assert (first.waiting, first.retrying, first.retry_at_ms) == (1, 1, due_ms)


@pytest.mark.long
@pytest.mark.requirement("schedule.rate-limit")
@pytest.mark.requirement("campaign.resume")
def test_a_resume_waits_for_a_quota_that_is_used_up_with_all_that_share_it_and_says_so(spec: Path) -> None:
    paths, until_ms, look = campaign(spec).paths, soon_ms(), looking(first_s=3600)
    ended_with(paths, "provider.usage-limit", retry_at_ms=until_ms)
    result = campaign(spec, resume=paths, watcher=look)
    assert [each.attempt_id for each in result.attempts] == ["m0.f.r1.2", "m0.f.r2.1"], "none was spent on asking"
    assert min(begun(paths)[each.attempt_id] for each in result.attempts) >= until_ms
    first = look.seen[0]
    [_, limit] = first.limits
    assert limit == LiveLimit(
        key=f"credential:{KEY}",
        maximum=16,
        current_maximum=1,
        taken=0,
        until_ms=limit.until_ms,
        why="provider.usage-limit",
    )
    assert limit.until_ms is not None
    assert abs(limit.until_ms - until_ms) <= 60_000
    assert (first.waiting, first.retrying, first.retry_at_ms) == (2, 1, until_ms)
    assert look.seen[-1].retrying == 0


@pytest.mark.long
@pytest.mark.parametrize("in_ms", [-1, 10 * 365 * 86_400_000])
def test_a_window_that_is_over_or_absurd_delays_nobody(spec: Path, in_ms: int) -> None:
    paths, look = campaign(spec).paths, looking(first_s=3600)
    ended_with(paths, "provider.usage-limit", retry_at_ms=SYSTEM_CLOCK.wall_ms() + in_ms)
    result = campaign(spec, resume=paths, watcher=look)
    assert [each.attempt_id for each in result.attempts] == ["m0.f.r1.2", "m0.f.r2.1"]
    first = look.seen[0]
    assert ([limit.key for limit in first.limits], first.waiting, first.retrying) == (["all"], 0, 0)


@pytest.mark.long
def test_whoever_asks_for_a_trial_by_name_is_not_made_to_wait_for_its_quota(spec: Path) -> None:
    paths, look = campaign(spec).paths, looking(first_s=3600)
    ended_with(paths, "provider.usage-limit", retry_at_ms=soon_ms())
    result = campaign(spec, resume=paths, watcher=look, only=[TrialId("m0.f.r1")])
    assert [each.attempt_id for each in result.attempts] == ["m0.f.r1.2"]
    first = look.seen[0]
    assert ([limit.key for limit in first.limits], first.waiting, first.retrying) == (["all"], 0, 0)


@pytest.mark.long
@pytest.mark.requirement("evidence.crash-safe")
def test_a_claim_is_decided_by_its_seal_and_nothing_else_is_looked_at(spec: Path) -> None:
    first = campaign(spec)
    before = rows(first.paths, "id, state, outcome, tokens, runtime, summary")
    # As if it had been killed when the seals were there and the ledger did not know yet; then with one that is torn.
    change(
        first.paths,
        "update attempt set state = 'running', ended_at_ms = null, outcome = null, tokens = null, summary = null,"
        " runtime = null",
    )
    assert campaign(spec, resume=first.paths).attempts == ()
    assert rows(first.paths, "id, state, outcome, tokens, runtime, summary") == before
    change(first.paths, "update attempt set state = 'running' where id = 'm0.f.r1.1'")
    [seal] = (spec.parent / "evidence").glob("runs/*/attempts/m0.f.r1.1/seal.json")
    seal.write_bytes(seal.read_bytes()[:-9])
    assert [each.attempt_id for each in campaign(spec, resume=first.paths).attempts] == ["m0.f.r1.2"]
    assert [row[:2] for row in rows(first.paths, "id, state")] == [
        ("m0.f.r1.1", "abandoned"),
        ("m0.f.r1.2", "sealed"),
        ("m0.f.r2.1", "sealed"),
    ]


def test_a_campaign_that_was_cut_off_before_its_plan_is_not_gone_on_with(spec: Path) -> None:
    paths = campaign(spec).paths
    paths.plan.unlink()
    with pytest.raises(InputError) as refused:
        campaign(spec, resume=paths)
    assert refused.value.code == "campaign.not-begun"


@pytest.mark.long
@pytest.mark.parametrize("lose", [Path.unlink, lambda ledger: ledger.write_bytes(b"")], ids=["gone", "emptied"])
def test_a_campaign_that_lost_its_ledger_is_not_run_all_over_again(spec: Path, lose: Callable[[Path], object]) -> None:
    paths = campaign(spec).paths
    lose(paths.ledger)
    before = sorted((spec.parent / "evidence").rglob("*"))
    with pytest.raises(MachineError) as refused:
        campaign(spec, resume=paths)
    assert (refused.value.code, refused.value.file) == ("machine.ledger", str(paths.ledger))
    assert sorted((spec.parent / "evidence").rglob("*")) == before


@pytest.mark.proctor_process
def test_a_lock_names_its_owner_and_one_whose_owner_is_dead_or_only_looked_is_taken(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    # A process that dies with the lock: what it wrote stays, and is of nobody.
    dying = (
        "import os, sys; from pathlib import Path; from proctor.campaign.lock import campaign_lock;"
        "from proctor.evidence.layout import CampaignPaths;"
        "held = campaign_lock(CampaignPaths(Path(sys.argv[1]))); held.__enter__(); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", dying, str(tmp_path)]).returncode == 9
    dead = owner_of(paths.folder)
    assert dead is not None
    with campaign_lock(paths):
        assert owner_of(paths.folder) == identify(os.getpid())
        assert dead != owner_of(paths.folder)
        with pytest.raises(MachineError) as refused, campaign_lock(paths):
            pass
        assert refused.value.code == "machine.locked"
        name = tmp_path.name
        todo = f"`proctor campaign status {name}` shows its progress, `proctor campaign cancel {name}` stops it."
        assert refused.value.suggestion == todo
    assert owner_of(paths.folder) is None, "whoever leaves in order takes the name away"


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_lock_that_cannot_be_taken_is_refused_in_our_words(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "lock")
    with pytest.raises(MachineError) as refused, campaign_lock(CampaignPaths(tmp_path)):
        pass
    assert (refused.value.code, refused.value.file) == ("machine.unwritable", str(tmp_path / "lock"))


def test_what_a_link_in_the_place_of_a_lock_leads_to_stays_as_it_is(tmp_path: Path) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "campaign"
    precious.write_text("of somebody else")
    folder.mkdir()
    (folder / "lock").symlink_to(precious)
    with pytest.raises(MachineError), campaign_lock(CampaignPaths(folder)):
        pass
    assert precious.read_text() == "of somebody else"


def test_a_secret_in_the_path_of_the_spec_stands_nowhere_and_resume_asks_for_the_path(
    spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-of-the-north"
    monkeypatch.setenv("MAIL_PASSWORD", secret)
    hidden = spec.rename(spec.with_name(f"spec-{secret}.yaml"))
    paths = campaign(hidden).paths
    kept = [file for file in (spec.parent / "evidence").rglob("*") if file.is_file()]
    assert [file for file in kept if secret.encode() in file.read_bytes()] == []
    with pytest.raises(InputError) as caught:
        load_again(paths, None)
    assert (caught.value.code, secret in str(caught.value)) == ("campaign.no-spec", False)
    assert campaign(load_again(paths, hidden).path, resume=paths).attempts == ()
