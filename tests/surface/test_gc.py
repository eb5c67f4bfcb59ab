"""`proctor gc` and `proctor pin`: old evidence goes whole, and what is needed stays."""

import errno
import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from proctor.campaign.retention import RetentionRule
from proctor.campaign.scratch import open_scratch, scratch_of_runs
from proctor.contain.intent import take_lock
from proctor.context.change_session import delete_session, fork_session
from proctor.context.kept_session import open_kept_session
from proctor.errors import InputError, MachineError
from proctor.evidence.artifacts import SittingRef
from proctor.evidence.layout import CampaignPaths, RootPaths, write_artifact
from proctor.ids import AttemptId, RunId, SessionKey, TrialId
from proctor.surface import gc as collecting
from proctor.surface.gc import REMOVED, clear, plan_clearing
from proctor.surface.gc_units import find_units
from proctor.testing.clock import FakeClock
from tests.context.made import ATTEMPT, sitting
from tests.context.made import RUN as SITTING_RUN
from tests.lab import Lab
from tests.report.made import CAMPAIGN, RUN, campaign, record
from tests.surface.conftest import ask

NOW_MS = time.time_ns() // 1_000_000
DAY_S = 86_400
MONTH = RetentionRule(older_than_s=30 * DAY_S, larger_than_bytes=None)


@pytest.fixture(autouse=True)
def _own_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def root(lab: Lab) -> RootPaths:
    return RootPaths(lab.root)


def aged(days: float, *folders: Path) -> None:
    at_s = NOW_MS / 1000 - days * DAY_S
    for folder in folders:
        for path in [folder, *folder.rglob("*")]:
            os.utime(path, (at_s, at_s))


def evidence(root: RootPaths, name: str, *, days: float, runs: int = 1, signed: bool = False) -> CampaignPaths:
    """A campaign of some age, with runs that hold something."""
    made = campaign(root.folder, "fix")
    ids = [f"{name}-run-{number}" for number in range(runs)]
    with closing(sqlite3.connect(made.ledger)) as connection:
        connection.execute("pragma foreign_keys = off")
        connection.execute("delete from run")
        connection.executemany("insert into run (id, began_at_ms) values (?, 1)", [(id_,) for id_ in ids])
        connection.commit()
    paths = CampaignPaths(made.folder.rename(made.folder.with_name(name)))
    for id_ in ids:
        attempt = root.folder / "runs" / id_ / "attempts" / "fix.codex.r1.1"
        attempt.mkdir(parents=True)
        (attempt / "frames.jsonl").write_bytes(b"x" * 10_000)
        if signed:
            (attempt / "seal.json.sig").touch()
    aged(days, paths.folder, *(root.folder / "runs" / id_ for id_ in ids))
    return paths


def there(root: RootPaths) -> list[str]:
    return sorted(f"{path.parent.name}/{path.name}" for path in root.folder.glob("*/*"))


def why(root: RootPaths, rule: RetentionRule = MONTH) -> dict[str, tuple[bool, str]]:
    return {unit.name: (unit.is_deleted, unit.why) for unit in plan_clearing(root, rule, now_ms=NOW_MS).units}


@pytest.mark.requirement("ops.gc")
def test_what_is_old_goes_with_its_runs_and_a_dry_run_only_says_so(root: RootPaths) -> None:
    evidence(root, "old", days=40, runs=2)
    evidence(root, "young", days=20)
    before = there(root)
    dry = plan_clearing(root, MONTH, now_ms=NOW_MS)
    assert there(root) == before
    assert why(root) == {"old": (True, "too old"), "young": (False, "within the limits")}
    done = clear(root, MONTH, now_ms=NOW_MS)
    assert there(root) == ["campaigns/young", "runs/young-run-0"]
    assert (done.units, done.freed_bytes) == (dry.units, dry.freed_bytes)
    assert done.freed_bytes > 20_000
    assert not (root.folder / REMOVED).exists()


@pytest.mark.requirement("ops.gc")
def test_while_there_is_too_much_the_oldest_goes(root: RootPaths) -> None:
    for name, days in (("first", 9), ("second", 8), ("third", 7)):
        evidence(root, name, days=days)
    sizes = [unit.size_bytes for unit in plan_clearing(root, MONTH, now_ms=NOW_MS).units]
    clear(root, RetentionRule(older_than_s=None, larger_than_bytes=sum(sizes) - 1), now_ms=NOW_MS)
    assert there(root) == ["campaigns/second", "campaigns/third", "runs/second-run-0", "runs/third-run-0"]


@pytest.mark.requirement("ops.gc")
def test_what_is_pinned_running_signed_named_or_new_stays(lab: Lab, root: RootPaths) -> None:
    for name in ("pinned", "running", "named"):
        evidence(root, name, days=99)
    evidence(root, "signed", days=99, signed=True)
    evidence(root, "new", days=0)
    assert ask(lab, "pin", "pinned", "--json").json == {"campaignId": "pinned", "isPinned": True}
    statement = {"_type": "https://in-toto.io/Statement/v1", "subject": [{"name": "named-run-0/fix/seal.json"}]}
    (root.folder / "release.json").write_text(json.dumps(statement))
    lock = take_lock(root.folder / "campaigns" / "running")
    assert lock is not None
    everything = RetentionRule(older_than_s=0, larger_than_bytes=0)
    try:
        assert why(root, everything) == {
            "pinned": (False, "pinned"),
            "running": (False, "running"),
            "signed": (False, "signed"),
            "named": (False, "named by a statement"),
            "new": (False, "just created"),
        }
        before = there(root)
        clear(root, everything, now_ms=NOW_MS)
        assert there(root) == before
    finally:
        os.close(lock)
    assert ask(lab, "pin", "pinned", "--off").code == 0
    clear(root, everything, now_ms=NOW_MS)
    assert sorted(path.name for path in (root.folder / "campaigns").iterdir()) == ["named", "new", "signed"]


def test_a_run_that_a_kept_campaign_cites_stays(root: RootPaths) -> None:
    old, young = evidence(root, "old", days=40), evidence(root, "young", days=1)
    with closing(sqlite3.connect(young.ledger)) as connection:
        connection.execute("insert into run (id, began_at_ms) values ('old-run-0', 1)")
        connection.commit()
    clear(root, MONTH, now_ms=NOW_MS)
    assert there(root) == ["campaigns/young", "runs/old-run-0", "runs/young-run-0"]
    assert not old.folder.exists()


def test_runs_of_no_campaign_have_their_own_age(root: RootPaths) -> None:
    for kind, name, days in (("runs", "lost", 40), ("runs", "recent", 1), ("runs", "talk", 40)):
        (root.folder / kind / name / "attempts" / "a").mkdir(parents=True)
        aged(days, root.folder / kind / name)
    with open_scratch(RunId("talk"), is_kept=False):
        assert why(root)["talk"] == (False, "running")
    clear(root, MONTH, now_ms=NOW_MS)
    assert there(root) == ["runs/recent"]


def write_sitting(root: RootPaths, key: SessionKey) -> None:
    paths = root.run(SITTING_RUN).attempt(TrialId("session-1"), n=1)
    paths.create()
    ref = SittingRef(session=key, n=1, is_fresh=True, first_turn=1, history_after=0, tools="", is_import=False)
    of_attempt = replace(record(AttemptId("m.f.r1.1")), attempt_id=ATTEMPT, run_id=SITTING_RUN, sitting=ref)
    write_artifact(paths.attempt, of_attempt, redactor=None)


@pytest.mark.requirement("ops.gc")
@pytest.mark.parametrize("damage", ["", "store", "header and store"])
def test_run_of_session_is_kept_until_the_session_is_deleted(damage: str, root: RootPaths) -> None:
    clock = FakeClock()
    write_sitting(root, SessionKey("talk"))
    (root.folder / "runs" / "lost" / "attempts" / "a").mkdir(parents=True)
    with open_kept_session(root, "talk", clock=clock) as kept:
        kept.store.begin_sitting(sitting())
        paths = kept.paths
    fork_session(root, "talk", "copy", clock=clock)
    for file in damage.split(" and ") if damage else ():
        (paths.header if file == "header" else paths.store).write_bytes(b"damaged")
    aged(40, root.folder / "runs" / "run", root.folder / "runs" / "lost")
    kept_for_talk = (False, "belongs to the session talk")
    assert why(root) == {"run": kept_for_talk, "lost": (True, "too old")}
    clear(root, MONTH, now_ms=NOW_MS)
    # The fork has the same record, and then nothing needs it any more.
    delete_session(root, "copy", has_evidence=False)
    assert why(root) == {"run": kept_for_talk}
    shutil.rmtree(paths.folder)
    assert why(root) == {"run": (True, "too old")}
    clear(root, MONTH, now_ms=NOW_MS)
    assert there(root) == []


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("is_damaged", [False, True])
def test_deleting_a_session_with_its_evidence_leaves_what_a_fork_needs(is_damaged: bool, root: RootPaths) -> None:
    clock = FakeClock()
    write_sitting(root, SessionKey("talk"))
    with open_kept_session(root, "talk", clock=clock) as kept:
        kept.store.begin_sitting(sitting())
    fork_session(root, "talk", "copy", clock=clock)
    if is_damaged:
        root.session(SessionKey("copy")).store.write_bytes(b"damaged")
    removal = delete_session(root, "talk", has_evidence=True)
    folder = root.run(SITTING_RUN).attempt(TrialId("session-1"), n=1).folder
    assert removal.left == (f"the evidence in {folder}, which the session copy needs",)
    assert folder.is_dir()


def test_evidence_that_no_fork_needs_is_deleted_with_the_session(root: RootPaths) -> None:
    write_sitting(root, SessionKey("talk"))
    with open_kept_session(root, "talk", clock=FakeClock()) as kept:
        kept.store.begin_sitting(sitting())
    assert delete_session(root, "talk", has_evidence=True).left == ()
    assert not root.run(SITTING_RUN).folder.exists()


def test_a_ledger_that_names_a_place_elsewhere_takes_nothing_there_along(root: RootPaths, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    paths = evidence(root, "old", days=40)
    with closing(sqlite3.connect(paths.ledger)) as connection:
        connection.execute("insert into run (id, began_at_ms) values ('../../outside', 1)")
        connection.commit()
    aged(40, paths.folder)
    clear(root, MONTH, now_ms=NOW_MS)
    assert (there(root), outside.is_dir()) == ([], True)


def test_a_campaign_whose_ledger_is_gone_goes_by_its_age_too(root: RootPaths) -> None:
    paths = evidence(root, "old", days=40)
    paths.ledger.unlink()
    aged(40, paths.folder)
    clear(root, MONTH, now_ms=NOW_MS)
    assert there(root) == []


def test_scratch_that_was_kept_goes_by_its_age_and_that_of_the_dead_at_once(root: RootPaths) -> None:
    for name in ("old", "young"):
        with open_scratch(RunId(name), is_kept=True) as folder:
            (folder / "home").mkdir()
    aged(40, scratch_of_runs() / "old")
    (scratch_of_runs() / "dead" / "home").mkdir(parents=True)
    assert plan_clearing(root, MONTH, now_ms=NOW_MS).swept == ("dead",)
    done = clear(root, MONTH, now_ms=NOW_MS)
    assert [path.name for path in scratch_of_runs().iterdir()] == ["young"]
    assert (done.swept, [(unit.kind, unit.name) for unit in done.units if unit.is_deleted]) == (
        ("dead",),
        [("scratch", "old")],
    )


def test_what_a_killed_one_had_begun_is_finished_by_the_next(root: RootPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence(root, "old", days=40, runs=2)
    evidence(root, "young", days=1)
    moved = collecting._move

    def killed(folder: Path, bin_: Path) -> Path:
        if folder.parent.name == "runs":
            raise KeyboardInterrupt
        return moved(folder, bin_)

    with monkeypatch.context() as patch:
        patch.setattr(collecting, "_move", killed)
        with pytest.raises(KeyboardInterrupt):
            clear(root, MONTH, now_ms=NOW_MS)
    assert [path.name for path in (root.folder / "campaigns").iterdir()] == ["young"]
    assert (root.folder / "runs" / "old-run-0").is_dir()
    aged(0, root.folder / "runs" / "old-run-0")  # its own age does not decide any more
    done = clear(root, MONTH, now_ms=NOW_MS)
    assert done.finished == ("campaigns-old",)
    assert there(root) == ["campaigns/young", "runs/young-run-0"]
    assert not (root.folder / REMOVED).exists()


@pytest.mark.requirement("ops.gc")
def test_what_gets_a_reason_to_stay_at_the_last_moment_stays(root: RootPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("pinned", "running", "ran", "signed", "named")
    campaigns = {name: evidence(root, name, days=40) for name in names}
    for kind, name in (("runs", "lone-signed"), ("runs", "lone-named"), ("runs", "talk"), ("runs", "over")):
        (root.folder / kind / name / "attempts" / "a").mkdir(parents=True)
        aged(40, root.folder / kind / name)
    units = list(find_units(root, now_ms=NOW_MS))
    assert {unit.stays for unit in units} == {None}
    monkeypatch.setattr(collecting, "find_units", lambda *_, **__: units)
    campaigns["pinned"].pin.touch()
    (root.folder / "runs" / "ran-again" / "attempts").mkdir(parents=True)
    with closing(sqlite3.connect(campaigns["ran"].ledger)) as connection:
        connection.execute("insert into run (id, began_at_ms) values ('ran-again', 1)")
        connection.commit()
    for attempt in ("signed-run-0/attempts/fix.codex.r1.1", "lone-signed/attempts/a"):
        signature = root.folder / "runs" / attempt / "seal.json.sig"
        signature.touch()
        aged(40, signature.parent)
    subject = [{"name": f"{run}/fix/seal.json"} for run in ("named-run-0", "lone-named")]
    (root.folder / "release.json").write_text(json.dumps({"_type": "statement", "subject": subject}))
    before = there(root)
    lock = take_lock(campaigns["running"].folder)
    assert lock is not None
    with open_scratch(RunId("talk"), is_kept=False):
        done = clear(root, MONTH, now_ms=NOW_MS)
    os.close(lock)
    assert {unit.name: (unit.is_deleted, unit.why) for unit in done.units} == {
        "pinned": (False, "pinned"),
        "running": (False, "running"),
        "ran": (False, "just created"),
        "signed": (False, "signed"),
        "named": (False, "named by a statement"),
        "lone-signed": (False, "signed"),
        "lone-named": (False, "named by a statement"),
        "talk": (False, "running"),
        "over": (True, "too old"),
    }
    assert there(root) == [each for each in before if each != "runs/over"]


@pytest.mark.requirement("ops.gc")
def test_what_the_disk_refuses_is_said_beside_what_went_and_goes_the_next_time(
    lab: Lab, root: RootPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence(root, "first", days=43)
    evidence(root, "stuck", days=42)
    evidence(root, "third", days=41)
    moved = collecting._move

    def refusing(folder: Path, bin_: Path) -> Path:
        if folder.name == "stuck-run-0":
            raise OSError(errno.EROFS, "Read-only file system")
        return moved(folder, bin_)

    with monkeypatch.context() as patch:
        patch.setattr(collecting, "_move", refusing)
        said = ask(lab, "gc", "--older-than", "30d", "--json")
        told = {unit["name"]: (unit["isDeleted"], unit["why"]) for unit in said.json["units"]}
        assert (said.code, said.json["refused"], told) == (
            MachineError.exit,
            ["stuck"],
            {
                "first": (True, "too old"),
                "stuck": (False, "Read-only file system"),
                "third": (True, "too old"),
            },
        )
        assert there(root) == [f"{REMOVED}/campaigns-stuck", "runs/stuck-run-0"]
        again = clear(root, MONTH, now_ms=NOW_MS)
        assert (again.finished, again.refused) == ((), ("campaigns-stuck", "stuck-run-0"))
    done = clear(root, MONTH, now_ms=NOW_MS)
    assert (done.finished, done.refused, there(root)) == (("campaigns-stuck",), (), [])


@pytest.mark.timeout(20)
def test_what_is_no_file_is_no_statement_and_a_link_to_one_is(root: RootPaths, tmp_path: Path) -> None:
    for name in ("named", "old"):
        evidence(root, name, days=40)
    os.mkfifo(root.folder / "fifo.json")
    (root.folder / "itself.json").symlink_to("itself.json")
    (root.folder / "zero.json").symlink_to("/dev/zero")
    (tmp_path / "release").write_text(json.dumps({"_type": "statement", "subject": [{"name": "named-run-0/fix"}]}))
    (root.folder / "release.json").symlink_to(tmp_path / "release")
    clear(root, MONTH, now_ms=NOW_MS)
    assert there(root) == ["campaigns/named", "runs/named-run-0"]


@pytest.mark.requirement("ops.gc")
def test_what_a_link_leads_to_is_never_emptied(lab: Lab, root: RootPaths, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "inner").mkdir(parents=True)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "kept-on-purpose").touch()
    aged(40, kept)
    runs = scratch_of_runs()
    runs.mkdir(parents=True)
    (runs / "20200101-000000-aaaaaa").symlink_to(precious)
    (runs / "20200101-000000-bbbbbb").symlink_to(kept)
    evidence(root, "old", days=40)
    assert plan_clearing(root, MONTH, now_ms=NOW_MS).swept == ()
    (root.folder / REMOVED).symlink_to(precious)
    said = ask(lab, "gc", "--older-than", "30d", "--json")
    assert (said.code, said.json["error"]["code"]) == (MachineError.exit, "machine.unwritable")
    (root.folder / REMOVED).unlink()
    done = clear(root, MONTH, now_ms=NOW_MS)
    assert (done.swept, [unit.name for unit in done.units if unit.is_deleted]) == ((), ["old"])
    assert sorted(path.name for path in (*precious.iterdir(), *kept.iterdir())) == ["inner", "kept-on-purpose"]


def test_only_one_is_at_it(root: RootPaths) -> None:
    evidence(root, "old", days=40)
    (root.folder / REMOVED).mkdir()
    lock = take_lock(root.folder / REMOVED)
    assert lock is not None
    with pytest.raises(MachineError) as caught:
        clear(root, MONTH, now_ms=NOW_MS)
    os.close(lock)
    assert caught.value.code == "machine.locked"
    assert "campaigns/old" in there(root)


@pytest.mark.requirement("ops.gc")
def test_without_flags_the_config_holds_and_without_either_nothing_goes(
    lab: Lab, root: RootPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence(root, "old", days=40)
    monkeypatch.chdir(tmp_path)
    refused = ask(lab, "gc", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (InputError.exit, "usage")
    (tmp_path / "proctor.toml").write_text('[retention]\nolder_than = "4w"\n')
    said = ask(lab, "gc", "--dry-run")
    assert said.stdout.split()[:3] == ["would", "delete", "campaign"]
    assert ask(lab, "gc", "--older-than", "50d", "--json").json["freedBytes"] == 0
    assert ask(lab, "gc").stdout.startswith("deleted  campaign old  ")
    assert there(root) == []


@pytest.mark.parametrize(
    ("flag", "written"), [("--older-than", "soon"), ("--older-than", "30"), ("--larger-than", "5")]
)
def test_what_is_no_age_or_size_is_refused(lab: Lab, flag: str, written: str) -> None:
    said = ask(lab, "gc", flag, written, "--json")
    assert (said.code, said.json["error"]["code"]) == (InputError.exit, "usage")


def test_retention_that_says_nothing_is_refused_with_its_line(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proctor.toml").write_text('[retention]\nlarger_than = "5 apples"\n')
    error = ask(lab, "gc", "--json").json["error"]
    assert (error["code"], error["key"], error["what"]) == (
        "spec.type",
        "retention",
        "`5 apples` is not a size: write it like 5GB, 500MB or 2GiB",
    )


def test_a_pin_is_no_damage_to_a_campaign(lab: Lab, root: RootPaths) -> None:
    campaign(root.folder, "fix")
    before = ask(lab, "validate", CAMPAIGN, "--json").json
    ask(lab, "pin", CAMPAIGN)
    assert ask(lab, "validate", CAMPAIGN, "--json").json == before
    assert ask(lab, "campaign", "status", "--json").json["isPinned"] is True
    (root.run(RUN).folder / "attempts").mkdir(parents=True)
    assert ask(lab, "pin", RUN, "--json").json["error"]["code"] == "evidence.not-found"


@pytest.mark.parametrize("written", ["90s", "2m", "12h", "30d", "4w"])
def test_an_age_is_written_as_in_specs(lab: Lab, written: str) -> None:
    assert ask(lab, "gc", "--older-than", written, "--dry-run").code == 0
