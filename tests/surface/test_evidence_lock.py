"""What is being signed or stated is neither run nor let go of meanwhile, and what is being let go of is not signed."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.campaign.lock import campaign_lock
from proctor.campaign.retention import RetentionRule
from proctor.campaign.scratch import hold_run, open_scratch, scratch_of_runs
from proctor.contain.intent import take_lock
from proctor.errors import MachineError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.sign import sign_files
from proctor.evidence.statement import attest
from proctor.ids import RunId
from proctor.ledger.reader import is_live
from proctor.surface import gc as collecting
from proctor.surface import sign as signing
from proctor.surface import verify as verifying
from proctor.surface.evidence_lock import lock_evidence
from proctor.surface.gc import REMOVED, GcResult, clear, hold_root
from tests.keys import make_key
from tests.surface.conftest import Quickstart, ask
from tests.surface.test_gc import NOW_MS, aged

pytestmark = pytest.mark.real_agent

EVERYTHING = RetentionRule(older_than_s=0, larger_than_bytes=0)


@pytest.fixture(autouse=True)
def _own_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def old(quickstart: Quickstart) -> RootPaths:
    """Evidence of the real agent that is long due to go."""
    root = RootPaths(quickstart.lab.root)
    aged(99, root.folder)
    return root


@pytest.fixture
def ada(tmp_path: Path) -> Path:
    return make_key(tmp_path, "ada")


def campaign_of(root: RootPaths) -> CampaignPaths:
    [campaign] = root.campaigns()
    return campaign


def run_of(root: RootPaths) -> Path:
    [run] = root.runs()
    return run.folder


def attempt_of(root: RootPaths) -> Path:
    return min((run_of(root) / "attempts").iterdir())


PLACES: dict[str, Callable[[RootPaths], Path]] = {
    "root": lambda root: root.folder,
    "campaign": lambda root: campaign_of(root).folder,
    "run": run_of,
    "attempt": attempt_of,
}


class Meanwhile:
    """Lets go of everything in the middle of another call, each time it is made."""

    def __init__(self, root: RootPaths, inner: Callable[..., Any]) -> None:
        self.cleared: list[GcResult] = []
        self.refused: list[str] = []
        self._root = root
        self._inner = inner

    def __call__(self, *given: Any, **named: Any) -> Any:
        try:
            self.cleared.append(clear(self._root, EVERYTHING, now_ms=NOW_MS))
        except MachineError as error:
            self.refused.append(error.code)
        return self._inner(*given, **named)


def stays(cleared: list[GcResult]) -> set[tuple[str, bool, str]]:
    return {(unit.kind, unit.is_deleted, unit.why) for each in cleared for unit in each.units}


@pytest.mark.requirement("evidence.signed")
@pytest.mark.requirement("ops.gc")
@pytest.mark.parametrize(
    ("kind", "is_of_campaign"),
    [*((kind, True) for kind in PLACES), ("root", False), ("run", False), ("attempt", False)],
)
def test_what_is_being_signed_stays(
    quickstart: Quickstart,
    old: RootPaths,
    ada: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    is_of_campaign: bool,
) -> None:
    folder = PLACES[kind](old)
    if not is_of_campaign:
        shutil.rmtree(campaign_of(old).folder)
    meanwhile = Meanwhile(old, sign_files)
    monkeypatch.setattr(signing, "sign_files", meanwhile)
    said = ask(quickstart.lab, "sign", str(folder), "--key", str(ada), "--json")
    assert (said.code, len(said.json["signed"]) > 0) == (0, True), said.stderr
    if kind == "root":
        assert (meanwhile.cleared, set(meanwhile.refused)) == ([], {"machine.locked"})
    else:
        assert stays(meanwhile.cleared) == {("campaign" if is_of_campaign else "run", False, "running")}
    assert not (old.folder / REMOVED).exists()
    assert list(scratch_of_runs().glob("*")) == [], "what was made to hold it is gone"
    after = clear(old, EVERYTHING, now_ms=time.time_ns() // 1_000_000 + 10**9)
    assert stays([after]) == {("campaign" if is_of_campaign else "run", False, "signed")}


def test_what_a_statement_is_made_of_stays(
    quickstart: Quickstart, old: RootPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile = Meanwhile(old, attest)
    monkeypatch.setattr(verifying, "attest", meanwhile)
    words = ("--statement", str(old.folder / "release.json"))
    said = ask(quickstart.lab, "verify", str(campaign_of(old).folder), *words)
    assert said.code == 0, said.stderr
    assert stays(meanwhile.cleared) == {("campaign", False, "running")}
    assert stays([clear(old, EVERYTHING, now_ms=NOW_MS)]) == {("campaign", False, "named by a statement")}


@pytest.mark.requirement("evidence.signed")
def test_a_root_of_which_something_is_let_go_is_not_signed(quickstart: Quickstart, old: RootPaths, ada: Path) -> None:
    with hold_root(old):
        said = ask(quickstart.lab, "sign", str(old.folder), "--key", str(ada), "--json")
    assert (said.code, json.loads(said.stdout)["error"]["code"]) == (3, "machine.locked")
    assert list(old.folder.rglob("*.sig")) == []


@pytest.mark.requirement("evidence.signed")
@pytest.mark.parametrize("kind", ["campaign", "run", "attempt"])
def test_what_is_being_run_or_let_go_of_is_not_signed(
    quickstart: Quickstart, old: RootPaths, ada: Path, kind: str
) -> None:
    place = PLACES[kind]
    lock = take_lock(campaign_of(old).folder)
    assert lock is not None
    try:
        said = ask(quickstart.lab, "sign", str(place(old)), "--key", str(ada), "--json")
    finally:
        os.close(lock)
    assert (said.code, json.loads(said.stdout)["error"]["code"]) == (3, "machine.locked")
    assert list(old.folder.rglob("*.sig")) == []
    assert ask(quickstart.lab, "sign", str(place(old)), "--key", str(ada)).code == 0


def test_a_conversation_that_goes_on_is_not_signed(quickstart: Quickstart, old: RootPaths, ada: Path) -> None:
    shutil.rmtree(campaign_of(old).folder)
    run = run_of(old)
    with open_scratch(RunId(run.name), is_kept=False):
        said = ask(quickstart.lab, "sign", str(run), "--key", str(ada), "--json")
    assert (said.code, json.loads(said.stdout)["error"]["code"]) == (3, "machine.locked")
    assert list(old.folder.rglob("*.sig")) == []


def test_a_campaign_that_is_being_signed_is_not_run_and_is_not_taken_for_running(old: RootPaths) -> None:
    campaign = campaign_of(old)
    with lock_evidence(campaign), lock_evidence(campaign), lock_evidence(old):
        assert not is_live(campaign)
        with pytest.raises(MachineError) as refused, campaign_lock(campaign):
            pass
    assert refused.value.code == "machine.locked"
    with campaign_lock(campaign):
        assert is_live(campaign)


def test_the_run_of_a_campaign_that_a_killed_gc_had_begun_with_stays_once_it_is_signed(
    quickstart: Quickstart, old: RootPaths, ada: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, moved = run_of(old), collecting._move

    def killed(folder: Path, bin_: Path) -> Path:
        if folder == run:
            raise KeyboardInterrupt
        return moved(folder, bin_)

    with monkeypatch.context() as patch:
        patch.setattr(collecting, "_move", killed)
        with pytest.raises(KeyboardInterrupt):
            clear(old, EVERYTHING, now_ms=NOW_MS)
    assert not list(old.campaigns())
    with hold_run(RunId(run.name)) as is_ours:
        assert is_ours
        clear(old, EVERYTHING, now_ms=NOW_MS)
        assert run.is_dir(), "somebody is at it"
    assert ask(quickstart.lab, "sign", str(run), "--key", str(ada)).code == 0
    clear(old, EVERYTHING, now_ms=time.time_ns() // 1_000_000 + 10**9)
    assert run.is_dir()


def test_the_lock_of_what_was_taken_away_meanwhile_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    opened = os.open

    def slow(*given: Any, **named: Any) -> int:
        descriptor = opened(*given, **named)
        folder.rename(tmp_path / "gone")
        return descriptor

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", slow)
        assert take_lock(folder) is None
