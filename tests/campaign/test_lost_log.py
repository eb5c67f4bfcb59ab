"""A campaign that was killed and whose ledger then lost its log goes on by what lies on disk, and doubles nothing."""

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest

from bench.campaign import KEY, spec_of
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.surface.examine import examine_place
from tests.lab import Lab, wait_until
from tests.surface.conftest import LOOKS, Said, ask

FIRST = {"m0.f.r1.1", "m1.f.r1.1", "m2.f.r1.1"}
"""The attempts of the run that is killed; the last of them is under way."""


def log_of(campaign: CampaignPaths) -> Path:
    return campaign.ledger.with_name("ledger.db-wal")


def overwrite(log: Path) -> None:
    log.write_bytes(b"no log of anybody's" * 4000)


def cut(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 2 // 3])


LOSSES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "emptied": lambda log: log.write_bytes(b""),
    "garbage": overwrite,
    "cut": cut,
}


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def spec(tmp_path: Path, gate: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two trials that are done at once, and after them one that waits for the gate."""
    monkeypatch.setenv(KEY, "none-needed-here")
    command = f"""\
read -rd '' prompt
case "$prompt" in *Wait*) until [ -e {gate} ]; do sleep 0.05; done;; esac
echo 'PROCTOR-RESULT: {{"done": true, "answer": ""}}'"""
    flow = {"contain": "none", "options": {"process": {"command": command}}}
    missions = [{"id": "m0", "prompt": "Do it."}, {"id": "m1", "prompt": "Do it."}, {"id": "m2", "prompt": "Wait."}]
    whole = {**spec_of(1, isolation="process", runtime="process", flow=flow), "missions": missions}
    file = tmp_path / "spec.yaml"
    file.write_bytes(msgspec.json.encode({**whole, "schedule": {"parallel": 1, "retries": 0}}))
    return file


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, is_other_agent_allowed=True)


def is_waiting(lab: Lab, attempt: str = "m2.f.r1.1") -> bool:
    """Whether it has been asked. The one before it is at rest, and may not be sealed yet."""
    return any(path.stat().st_size for path in lab.root.glob(f"runs/*/attempts/{attempt}/frames.jsonl"))


def sealed(lab: Lab) -> dict[Path, bytes]:
    return {seal: seal.read_bytes() for seal in lab.root.glob("runs/*/attempts/*/seal.json")}


def kill(lab: Lab, *words: str, when: Callable[[], bool]) -> CampaignPaths:
    """Run the command until then, and not a moment longer."""
    victim = lab.start(*words)
    try:
        wait_until(when)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(victim.pid, signal.SIGKILL)
        victim.wait(timeout=30)
    [campaign] = RootPaths(lab.root).campaigns()
    return campaign


def killed(lab: Lab, spec: Path) -> CampaignPaths:
    return kill(lab, "run", str(spec), when=lambda: is_waiting(lab) and len(sealed(lab)) == 2)


def rows(campaign: CampaignPaths) -> list[tuple[str, int, str]]:
    with closing(sqlite3.connect(campaign.ledger)) as reader:
        return reader.execute("select id, n, state from attempt order by id").fetchall()


def folders(lab: Lab) -> list[str]:
    """Of all attempts, whichever run they lie in."""
    return sorted(folder.name for folder in lab.root.glob("runs/*/attempts/*"))


def unnamed(campaign: CampaignPaths) -> set[str]:
    [whole] = [each for each in examine_place(campaign, is_strict=True).examined if each.kind == "campaign"]
    found = [each for each in whole.findings if each.detail == "on disk, but not in the ledger"]
    assert {each.code for each in found} <= {"evidence.ledger"}
    return {each.file.partition("/")[2] for each in found}


def assert_every_look_answers(lab: Lab) -> None:
    for words in LOOKS:
        said: Said = ask(lab, *words)
        assert "run.harness" not in said.stderr, (words, said.stderr)


@pytest.mark.proctor_process
@pytest.mark.requirement("campaign.resume")
@pytest.mark.requirement("evidence.crash-safe")
@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_what_is_sealed_stands_and_what_was_cut_off_gets_a_new_number(
    lab: Lab, spec: Path, gate: Path, lose: Callable[[Path], object]
) -> None:
    campaign = killed(lab, spec)
    assert unnamed(campaign) == set(), "the log has them"
    before = sealed(lab)
    lose(log_of(campaign))
    lost = unnamed(campaign)
    assert "m2.f.r1.1" in lost
    assert lost <= FIRST
    assert ask(lab, "campaign", "publish-check").code == 5
    assert_every_look_answers(lab)
    gate.touch()
    said = ask(lab, "campaign", "resume")
    assert rows(campaign) == [
        ("m0.f.r1.1", 1, "sealed"),
        ("m1.f.r1.1", 1, "sealed"),
        ("m2.f.r1.1", 1, "abandoned"),
        ("m2.f.r1.2", 2, "sealed"),
    ], said.stderr
    assert folders(lab) == sorted([*FIRST, "m2.f.r1.2"])
    assert {seal: seal.read_bytes() for seal in before} == before
    assert unnamed(campaign) == set()
    assert_every_look_answers(lab)


@pytest.mark.proctor_process
def test_a_run_that_the_ledger_has_lost_whole_is_known_again_by_its_attempts(lab: Lab, spec: Path, gate: Path) -> None:
    campaign = killed(lab, spec)
    gate.touch()
    assert ask(lab, "campaign", "resume").code == 0
    kept = campaign.ledger.read_bytes()
    assert not log_of(campaign).exists(), "a run that ends in order leaves none"
    gate.unlink()
    retry = ("retry", "--only", "m2", "--yes")
    kill(lab, *retry, when=lambda: is_waiting(lab, "m2.f.r1.3"))
    # A passive checkpoint may put the run into the file late: then it is lost with the log.
    log_of(campaign).unlink()
    campaign.ledger.write_bytes(kept)
    assert unnamed(campaign) == {"m2.f.r1.3"}
    gate.touch()
    assert ask(lab, *retry).code == 0
    assert rows(campaign)[2:] == [
        ("m2.f.r1.1", 1, "abandoned"),
        ("m2.f.r1.2", 2, "sealed"),
        ("m2.f.r1.3", 3, "abandoned"),
        ("m2.f.r1.4", 4, "sealed"),
    ]
    assert len(folders(lab)) == len(set(folders(lab))) == 6
    assert unnamed(campaign) == set()


def test_what_lies_among_the_attempts_and_is_none_of_the_campaign_is_told_of_and_not_taken_in(
    lab: Lab, spec: Path, gate: Path
) -> None:
    gate.touch()
    assert ask(lab, "run", str(spec)).code == 0
    [campaign] = RootPaths(lab.root).campaigns()
    [run_folder] = (lab.root / "runs").iterdir()
    strange = ["m9.f.r1.1", "m0.f.r1.x", "m0.f.r1.0", "m0.f.r1"]
    for name in strange:
        (run_folder / "attempts" / name).mkdir()
    twin = lab.root / "runs" / "twin" / "attempts"
    twin.mkdir(parents=True)
    (run_folder / "attempts" / "m0.f.r1.1").rename(twin / "m0.f.r1.1")
    (run_folder / "attempts" / "m0.f.r1.1").mkdir()
    before = rows(campaign)
    assert unnamed(campaign) == {*strange, "m0.f.r1.1"}
    ask(lab, "campaign", "resume")
    assert rows(campaign) == before


def test_an_attempt_that_was_cut_off_before_its_record_keeps_its_number(lab: Lab, spec: Path, gate: Path) -> None:
    gate.touch()
    assert ask(lab, "run", str(spec)).code == 0
    [campaign] = RootPaths(lab.root).campaigns()
    with closing(sqlite3.connect(campaign.ledger)) as writer, writer:
        writer.execute("delete from attempt where id = 'm1.f.r1.1'")
    [folder] = lab.root.glob("runs/*/attempts/m1.f.r1.1")
    for file in folder.iterdir():
        file.unlink()
    assert ask(lab, "campaign", "resume").code == 0
    assert [each for each in rows(campaign) if each[0].startswith("m1")] == [
        ("m1.f.r1.1", 1, "abandoned"),
        ("m1.f.r1.2", 2, "sealed"),
    ]


def test_a_copy_of_another_attempt_is_no_result_and_no_number_is_too_large(lab: Lab, spec: Path, gate: Path) -> None:
    gate.touch()
    assert ask(lab, "run", str(spec)).code == 0
    [campaign] = RootPaths(lab.root).campaigns()
    [folder] = lab.root.glob("runs/*/attempts/m0.f.r1.1")
    shutil.copytree(folder, folder.with_name("m1.f.r1.7"))
    folder.with_name("m2.f.r1.99999999999999999999999").mkdir()
    assert ask(lab, "campaign", "resume").code == 0
    assert [each for each in rows(campaign) if each[0].startswith("m1")] == [
        ("m1.f.r1.1", 1, "sealed"),
        ("m1.f.r1.7", 7, "abandoned"),
        ("m1.f.r1.8", 8, "sealed"),
    ]
    assert [each for each in rows(campaign) if each[0].startswith("m2")] == [("m2.f.r1.1", 1, "sealed")]
    assert examine_place(campaign, is_strict=True).exit == 5, "what was copied is told"


@pytest.mark.parametrize(
    "edit",
    [
        "update attempt set outcome = 'garbage'",
        "update attempt set state = 'weird'",
        "update attempt set id = 'x.' || id",
        "update campaign set file = 'a' || char(0)",
    ],
)
def test_a_ledger_that_was_edited_is_refused_in_our_words(lab: Lab, spec: Path, gate: Path, edit: str) -> None:
    gate.touch()
    assert ask(lab, "run", str(spec)).code == 0
    [campaign] = RootPaths(lab.root).campaigns()
    with closing(sqlite3.connect(campaign.ledger)) as writer, writer:
        writer.execute(edit)
    said = ask(lab, "campaign", "resume", "--json")
    assert "run.harness" not in said.stdout
