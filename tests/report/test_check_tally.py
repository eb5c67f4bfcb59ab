"""What a ledger counts is held against the sealed attempts."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths
from proctor.evidence.reader import Problem
from proctor.ids import AttemptId, CampaignId, CellId, Digest, FlowId, MissionId, StrategyId
from proctor.plan.model import Limits
from proctor.report.check_tally import miscounted
from proctor.report.query import find_campaign
from proctor.spec.model import Approvals, Isolation, Sandbox
from proctor.surface.examine import damage_of, examine_place
from tests.report.made import RUN, YES, report, tried

ATTEMPT = AttemptId("one.codex.r1.1")


def counted(root: Path) -> CampaignPaths:
    """A campaign of one attempt, whose folder says what the ledger does."""
    campaign = tried(root, {"one.codex.r1": [YES]})
    paths = RootPaths(root).run(RUN).attempt(CellId("one.codex.r1"), n=1)
    paths.folder.mkdir(parents=True)
    some = Digest(f"sha256:{'0' * 64}")
    record = AttemptRecord(
        attempt_id=ATTEMPT,
        cell=CellId("one.codex.r1"),
        n=1,
        campaign_id=CampaignId(campaign.folder.name),
        run_id=RUN,
        mission_id=MissionId("one"),
        flow_id=FlowId("codex"),
        repeat=1,
        strategy=StrategyId("fake"),
        plan_digest=some,
        cell_digest=some,
        prompt_digest=some,
        workspace_digest=some,
        required_probes=(),
        isolation=Isolation.PROCESS,
        sandbox=Sandbox.WORKSPACE_WRITE,
        approvals=Approvals.DENY,
        limits=Limits(attempt_ms=1, turn_ms=1, stall_ms=1),
        secret_names=(),
        created_at_ms=1,
    )
    keep(paths, record)
    return campaign


def keep(paths: AttemptPaths, record: AttemptRecord) -> None:
    paths.attempt.write_bytes(msgspec.json.encode(record))
    paths.report.write_bytes(msgspec.json.encode(report(ATTEMPT, **YES)))


def found(root: Path, campaign: CampaignPaths) -> list[tuple[AttemptId, Problem]]:
    return list(miscounted(campaign, find_campaign(RootPaths(root), campaign).rows))


def change(campaign: CampaignPaths, sql: str) -> None:
    with closing(sqlite3.connect(campaign.ledger)) as connection, connection:
        connection.execute(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "update attempt set ended_at_ms = ended_at_ms",
        # As a Proctor wrote it that did not yet count the later ones.
        "update attempt set tally = '[2,0,0,0,5,null,2,\"live-thread-usage\"]', strategy = null",
        "update attempt set tally = null",
    ],
)
def test_a_ledger_that_counts_what_was_sealed_is_whole(tmp_path: Path, sql: str) -> None:
    campaign = counted(tmp_path)
    change(campaign, sql)
    assert found(tmp_path, campaign) == []


@pytest.mark.requirement("campaign.publish-check")
@pytest.mark.parametrize(
    ("sql", "wrong"),
    [
        ("update attempt set tally = json_set(tally, '$[1]', 7)", "tally"),
        ("update attempt set tally = json_set(tally, '$[14]', 0)", "tally"),
        ("update attempt set tally = json_insert(tally, '$[#]', 1)", "tally"),
        ("update attempt set tally = '{'", "tally"),
        ("update attempt set tally = '[]'", "tally"),
        ("update attempt set tally = printf('%.*c', 100000, '[')", "tally"),
        ("update attempt set strategy = 'other'", "strategy"),
    ],
)
def test_an_edited_ledger_is_told_by_every_look_at_the_campaign(tmp_path: Path, sql: str, wrong: str) -> None:
    campaign = counted(tmp_path)
    change(campaign, sql)
    detail = f"not what the sealed attempt says: {wrong}"
    assert found(tmp_path, campaign) == [(ATTEMPT, Problem(code="evidence.ledger", file="ledger.db", detail=detail))]
    told = next(each for each in examine_place(campaign, is_strict=True).examined if each.kind == "campaign")
    assert Problem(code="evidence.ledger", file=f"{ATTEMPT}/ledger.db", detail=detail) in told.problems
    assert Problem(code="evidence.ledger", file="ledger.db", detail=detail) in damage_of(campaign)[ATTEMPT]
