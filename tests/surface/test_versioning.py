"""The versions that are read: every versioned file refuses an older and a newer one, with the code of its policy."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.campaign.freeze import FrozenFiles
from proctor.canonical import encode
from proctor.context import store
from proctor.context.change_session import create_session
from proctor.context.kept_session import read_header
from proctor.context.model import SessionSettings
from proctor.errors import EvidenceError, ProctorError
from proctor.evidence import health, proofs
from proctor.evidence.artifacts import (
    AttemptRecord,
    AttemptReport,
    Feedback,
    PlanFile,
    ProcessRecord,
    RunnerRef,
    Seal,
)
from proctor.evidence.digests import read_stamped
from proctor.evidence.layout import CampaignPaths, RootPaths, SessionPaths
from proctor.evidence.live import Live
from proctor.evidence.reader import read_artifact
from proctor.evidence.regrade_record import RegradeRecord
from proctor.ids import CampaignId, Digest, RunId, SessionKey
from proctor.ledger.reader import read_outcomes
from proctor.ledger.schema import DATABASE as LEDGER
from proctor.model.script import load_script
from proctor.report.campaign import CampaignReport
from proctor.report.planned import read_frozen, read_plan
from proctor.spec.load import load_spec
from proctor.spec.prices import Prices
from proctor.spec.source_file import decode_file
from proctor.surface.campaign_status import status_of
from proctor.surface.contract import FileContract, contract
from proctor.testing.clock import FakeClock
from tests.surface.conftest import Quickstart

VERSIONED = {each.name: each for each in contract().files if each.schema_version is not None}
OTHER = (0, 2)
"""An older and a newer version than 1."""


def with_version(path: Path, version: int) -> None:
    value = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**value, "schemaVersion": version}))


def readers(place: RootPaths, campaign: CampaignPaths) -> dict[str, tuple[Path, Callable[[Path], Any]]]:
    """Return a genuine file of each JSON artifact, and what reads it."""
    [run] = place.runs()
    attempt = next(iter(run.attempts()))
    process = next(iter(run.runtimes()))
    return {
        "attempt.json": (attempt.attempt, lambda path: read_artifact(path, AttemptRecord)),
        "runner.ref.json": (attempt.runner_ref, lambda path: read_artifact(path, RunnerRef)),
        "feedback.json": (attempt.feedback, lambda path: read_artifact(path, Feedback)),
        "attempt.report.json": (attempt.report, lambda path: read_artifact(path, AttemptReport)),
        "seal.json": (attempt.seal, lambda path: read_stamped(path, Seal)),
        "process.json": (process.record, lambda path: read_stamped(path, ProcessRecord)),
        "plan.json": (campaign.plan, lambda path: (read_artifact(path, PlanFile), read_plan(campaign))),
        "report.json": (campaign.report, lambda path: read_artifact(path, CampaignReport)),
        "index.json": (campaign.snapshot_index, lambda path: read_artifact(path, FrozenFiles)),
        "regrade.json": (write_regrade(campaign), lambda path: read_artifact(path, RegradeRecord)),
        "session.json": (write_session(place), lambda path: read_header(SessionPaths(path.parent))),
    }


def write_regrade(campaign: CampaignPaths) -> Path:
    """Write a regrade without attempts."""
    record = RegradeRecord(
        regrade_id="now",
        campaign_id=CampaignId(campaign.folder.name),
        created_at_ms=1,
        spec=None,
        spec_digest=Digest(""),
        rows_digest=Digest(""),
        attempts=(),
    )
    place = campaign.regrade("now").record
    place.parent.mkdir(parents=True)
    place.write_bytes(encode(record))
    return place


def write_session(root: RootPaths) -> Path:
    """Write a session without turns."""
    create_session(root, "s", settings=SessionSettings(runtime="process"), clock=FakeClock())
    return root.session(SessionKey("s")).header


def refusal(read: Callable[[Path], Any], path: Path) -> str | None:
    try:
        read(path)
    except ProctorError as error:
        return error.code
    return None


@pytest.mark.requirement("evidence.versioning")
@pytest.mark.real_agent
def test_every_json_artifact_of_another_version_is_refused_with_its_code(quickstart: Quickstart) -> None:
    place = RootPaths(quickstart.lab.root)
    [campaign] = place.campaigns()
    found = readers(place, campaign)
    expected = {name for name, each in VERSIONED.items() if each.kind == "artifact"} - {"live.json"}
    assert set(found) == expected, "each artifact of the contract has a reader here"
    for name, (path, read) in found.items():
        genuine = path.read_bytes()
        assert refusal(read, path) is None, name
        for version in OTHER:
            with_version(path, version)
            assert refusal(read, path) == VERSIONED[name].refusal == "evidence.version", (name, version)
        path.write_bytes(genuine)
    with_version(campaign.plan, 2)
    with pytest.raises(EvidenceError, match="schemaVersion is 2; this Proctor reads only 1"):
        read_plan(campaign)
    with_version(campaign.snapshot_index, 2)
    assert read_frozen(campaign).spec is None


@pytest.mark.requirement("evidence.versioning")
@pytest.mark.real_agent
def test_live_state_of_another_version_is_ignored(quickstart: Quickstart) -> None:
    [campaign] = RootPaths(quickstart.lab.root).campaigns()
    live = Live(at_ms=1, run_id=RunId("r"), trials=1, settled=0, waiting=1)
    campaign.live.write_bytes(msgspec.json.encode({**msgspec.to_builtins(live), "schemaVersion": 2}))
    assert VERSIONED["live.json"].refusal is None
    assert status_of(campaign).live is None


DATABASES = {
    "ledger.db": LEDGER,
    "proofs.db": proofs.DATABASE,
    "health.db": health.DATABASE,
    "session.db": store.DATABASE,
}


def test_every_database_of_the_contract_is_checked_here() -> None:
    assert set(DATABASES) == {name for name, each in VERSIONED.items() if each.kind == "database"}


@pytest.mark.requirement("evidence.versioning")
@pytest.mark.parametrize("version", OTHER)
@pytest.mark.parametrize("name", DATABASES)
def test_every_database_of_another_version_is_refused_and_not_changed(tmp_path: Path, name: str, version: int) -> None:
    campaign = CampaignPaths(tmp_path)
    path, database = tmp_path / name, DATABASES[name]
    with database.open(path):
        pass
    assert refusal(lambda path: database.open(path).__enter__().close(), path) is None
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"pragma user_version = {version}")
    before = path.read_bytes()
    for read in (database.open, database.read):
        assert refusal(lambda path: read(path).__enter__(), path) == database.code  # noqa: B023
    if name == "ledger.db":
        campaign.plan.touch()
        assert refusal(lambda _: read_outcomes(campaign), path) == VERSIONED[name].refusal == "evidence.version"
    else:
        assert VERSIONED[name].refusal == database.code
    assert path.read_bytes() == before


SPEC = """version: {}
campaign: a
missions: [{{id: m, prompt: p, script: s.yaml}}]
flows: [{{id: f, runtime: [process]}}]
"""
WRITTEN: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "spec": (SPEC, load_spec),
    "script": ("version: {}\nsteps: [{{say: hello}}]\n", load_script),
    "prices": (
        "version: {}\nsince: 2026-11-01\nmodels: {{a/b: {{input: 1, output: 2}}}}\n",
        lambda path: decode_file(path, Prices),
    ),
}


@pytest.mark.requirement("evidence.versioning")
@pytest.mark.parametrize("version", OTHER)
@pytest.mark.parametrize("name", [name for name, each in VERSIONED.items() if each.kind == "spec"])
def test_every_file_of_a_user_of_another_version_is_refused(tmp_path: Path, name: str, version: int) -> None:
    text, read = WRITTEN[name]
    path = tmp_path / "file.yaml"
    path.write_text(text.format(version))
    assert refusal(read, path) == VERSIONED[name].refusal == "spec.version"


@pytest.mark.requirement("evidence.versioning")
def test_versioning_page_lists_every_versioned_file() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "versioning.md").read_text()

    def row(file: FileContract) -> str:
        name = f"`{file.name}`" if file.folder is not None else f"the {file.name} file"
        return f"| {name} |"

    assert [name for name, each in VERSIONED.items() if row(each) not in page] == []
    assert {each.schema_version for each in VERSIONED.values()} == {1}
