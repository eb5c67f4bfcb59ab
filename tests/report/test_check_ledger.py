"""What a ledger counts is held against the sealed attempts."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths
from proctor.evidence.reader import Finding
from proctor.ids import AttemptId, CampaignId, Digest, TrialId
from proctor.ledger.reader import read_ledger
from proctor.report.campaign_state import load_state
from proctor.report.evidence_index import EvidenceIndex
from proctor.surface.examine import examine_place, load_report
from tests.report.made import CUT, PROBE, RUN, YES, record, report, tried
from tests.small_attempt import make

ATTEMPT = AttemptId("one.codex.r1.1")
PLAN = Digest("sha256:1")


def counted(root: Path) -> CampaignPaths:
    """A campaign of one attempt, whose folder says what the ledger does."""
    campaign = tried(root, {"one.codex.r1": [YES]})
    paths = RootPaths(root).run(RUN).attempt(TrialId("one.codex.r1"), n=1)
    paths.folder.mkdir(parents=True)
    keep(
        paths, record(ATTEMPT, campaign_id=CampaignId(campaign.folder.name), required_probes=(PROBE,), plan_digest=PLAN)
    )
    return campaign


def keep(paths: AttemptPaths, record: AttemptRecord) -> None:
    paths.attempt.write_bytes(msgspec.json.encode(record))
    paths.report.write_bytes(msgspec.json.encode(report(ATTEMPT, **YES)))
    paths.seal.touch()


def found(root: Path, campaign: CampaignPaths) -> list[tuple[AttemptId, Finding]]:
    """Return what is wrong with the ledger's rows, where the folders themselves are valid."""
    state = load_state(campaign, root=RootPaths(root), index=EvidenceIndex(lambda _: ("valid", ())))
    return [(row.attempt_id, finding) for row in state.attempts for finding in row.findings]


def change(campaign: CampaignPaths, sql: str) -> None:
    with closing(sqlite3.connect(campaign.ledger)) as connection, connection:
        connection.execute(sql)


def test_hidden_result_is_found_whatever_else_a_strict_check_says(tmp_path: Path) -> None:
    """A runtime that is not installed here is a finding too, and must not excuse a seal that the ledger denies."""
    campaign = tried(tmp_path, {"fix.native.r1": [CUT]})
    make(RootPaths(tmp_path).run(RUN).attempt(TrialId("fix.native.r1"), n=1).folder)
    unknown = (Finding(code="spec.unknown-runtime", file="attempt.json"),)
    state = load_state(campaign, root=RootPaths(tmp_path), index=EvidenceIndex(lambda _: ("partial", unknown)))
    details = [finding.detail for row in state.attempts for finding in row.findings]
    assert "it has no seal there, but it was sealed" in details


def test_a_ledger_that_counts_what_was_sealed_is_whole(tmp_path: Path) -> None:
    assert found(tmp_path, counted(tmp_path)) == []


@pytest.mark.requirement("campaign.publish-check")
@pytest.mark.parametrize(
    "edit",
    [
        "summary = null",
        "outcome = null",
        "summary = '{'",
        "summary = '[]'",
        "summary = printf('%.*c', 100000, '[')",
        "summary = json_set(summary, '$.more', 1)",
        "summary = json_remove(summary, '$.toolCalls')",
        "summary = json_set(summary, '$.isStuck', 0)",
    ],
)
def test_ledger_with_a_summary_that_no_proctor_wrote_is_unreadable(tmp_path: Path, edit: str) -> None:
    campaign = counted(tmp_path)
    change(campaign, f"update attempt set {edit}")
    with pytest.raises(EvidenceError) as refused:
        read_ledger(campaign)
    assert refused.value.code == "evidence.ledger"
    told = next(each for each in examine_place(campaign, is_strict=True).examined if each.kind == "campaign")
    assert "evidence.ledger" in {finding.code for finding in told.findings}


@pytest.mark.requirement("campaign.publish-check")
@pytest.mark.parametrize(
    ("sql", "wrong"),
    [
        ("update attempt set summary = json_set(summary, '$.toolFailures', 7)", "summary"),
        ("update attempt set summary = json_set(summary, '$.policyViolations', 7)", "summary"),
        ("update attempt set summary = json_set(summary, '$.verified', json('false'))", "summary"),
        ("update attempt set runtime = null", "runtime"),
        ("update attempt set outcome = 'failed'", "outcome"),
        ("update attempt set code = 'limit.turn'", "code"),
        ("update attempt set tokens = 1", "tokens"),
        ("update attempt set runtime = 'other'", "runtime"),
    ],
)
def test_an_edited_ledger_is_told_by_every_look_at_the_campaign(tmp_path: Path, sql: str, wrong: str) -> None:
    campaign = counted(tmp_path)
    change(campaign, sql)
    detail = f"not what the sealed attempt says: {wrong}"
    assert found(tmp_path, campaign) == [(ATTEMPT, Finding(code="evidence.ledger", file="ledger.db", detail=detail))]
    told = next(each for each in examine_place(campaign, is_strict=True).examined if each.kind == "campaign")
    assert Finding(code="evidence.ledger", file=f"{ATTEMPT}/ledger.db", detail=detail) in told.findings
    [row] = load_report(campaign, is_strict=True).invalid_attempts
    assert Finding(code="evidence.ledger", file="ledger.db", detail=detail) in row.findings
