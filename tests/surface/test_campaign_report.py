"""`proctor campaign report` and `publish-check` on evidence of the real agent."""

import fcntl
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from proctor.evidence.layout import AttemptPaths, CampaignPaths
from proctor.ledger.reader import read_ledger
from tests.attempt.forge import alter_json, reseal
from tests.lab import Lab, mission, report_of, say_done
from tests.surface.conftest import Quickstart, ask

pytestmark = pytest.mark.real_agent


def campaign_of(lab: Lab) -> CampaignPaths:
    [folder] = (lab.root / "campaigns").iterdir()
    return CampaignPaths(folder)


def change_ledger(paths: CampaignPaths, *sql: str) -> None:
    with closing(sqlite3.connect(paths.ledger)) as connection, connection:
        for each in sql:
            connection.execute(each)


def flip_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.requirement("campaign.report")
def test_a_campaign_is_reported_in_every_format_by_whatever_name(quickstart: Quickstart) -> None:
    lab = quickstart.lab
    paths = campaign_of(lab)
    said = ask(lab, "campaign", "report", "--attempts", "--json")
    found = said.json
    assert (said.code, found["campaignId"], found["isComplete"], found["exit"]) == (0, paths.folder.name, True, 0)
    [flow] = found["flows"]
    score = flow["score"]
    assert (flow["flowId"], score["verified"]["passed"], score["verified"]["scored"]) == ("codex", 1, 2)
    assert (score["unverified"]["passed"], score["unverified"]["scored"], score["expected"]) == (2, 2, 4)
    assert (flow["score"]["toolCalls"], flow["score"]["usd"], flow["score"]["usdUnknown"]) == (4, 0.0, 0)
    assert flow["score"]["tokens"] > 0
    assert [each["attemptId"] for each in found["mismatches"]] == ["claim.codex.r1.1"]
    short = ask(lab, "campaign", "report", "--json").json
    assert (len(found["attempts"]), found["areAttemptsOmitted"]) == (4, False)
    assert short == {**found, "attempts": [], "areAttemptsOmitted": True}
    for words in ((paths.folder.name,), ("quickstart",), (str(paths.folder), "--strict")):
        assert ask(lab, "campaign", "report", *words, "--format", "json").code == 0
    missing = ask(lab, "campaign", "report", "--output", str(lab.folder / "gone" / "results.xml"))
    assert (missing.code, f"no such folder: {lab.folder / 'gone'}" in missing.stderr) == (2, True)
    file = lab.folder / "results.xml"
    assert ask(lab, "campaign", "report", "--format", "junit", "--output", str(file)).stdout == ""
    assert len(list(ElementTree.fromstring(file.read_text()).iter("testcase"))) == 5
    for format_, begin in (("md", f"# {paths.folder.name}\n"), ("text", f"{paths.folder.name}\n")):
        page = lab.folder / f"results.{format_}"
        ask(lab, "campaign", "report", "--format", format_, "--output", str(page))
        told = ask(lab, "campaign", "report", "--format", format_).stdout
        assert told.startswith(begin)
        # On a terminal, the text names the next commands too.
        assert [line for line in told.splitlines() if line and " proctor " not in line] == [
            line for line in page.read_text().splitlines() if line
        ]
    said = ask(lab, "campaign", "report", "--output", str(lab.folder))
    assert (said.code, "machine.unwritable" in said.stderr) == (3, True)
    said = ask(lab, "campaign", "report", "fix.codex.r1.1")
    assert (said.code, "is not a campaign" in said.stderr) == (2, True)


@pytest.mark.requirement("evidence.integrity")
def test_torn_missing_and_altered_evidence_is_told_by_a_strict_report_and_not_scored(quickstart: Quickstart) -> None:
    lab = quickstart.lab
    frames = quickstart.folder("ask") / "frames.jsonl"
    frames.write_bytes(frames.read_bytes()[:-9])
    (quickstart.folder("shell") / "transcript.jsonl").unlink()
    flip_a_byte(quickstart.folder("claim") / "probes.jsonl")
    said = ask(lab, "campaign", "report", "--strict", "--attempts", "--json")
    told = {each["attemptId"]: {finding["code"] for finding in each["findings"]} for each in said.json["attempts"]}
    assert said.code == 5
    assert {"evidence.digest", "evidence.torn"} <= told["ask.codex.r1.1"]
    assert "evidence.missing-file" in told["shell.codex.r1.1"]
    assert "evidence.digest" in told["claim.codex.r1.1"]
    score = said.json["score"]
    assert (score["verified"]["passed"], score["verified"]["scored"]) == (1, 1)
    assert (score["buckets"], score["unmeasured"]) == ({"evidence": 3}, 3)
    text = ask(lab, "campaign", "report", "--strict").stdout
    assert "Invalid evidence, not scored\n" in text
    assert "shell.codex.r1.1: evidence.missing-file" in text
    # Without --strict the ledger is believed, and nothing is opened.
    shutil.rmtree(lab.root / "runs")
    assert ask(lab, "campaign", "report").code == 0


def test_a_ledger_that_tells_another_ending_is_caught_by_a_strict_report(quickstart: Quickstart) -> None:
    change_ledger(
        campaign_of(quickstart.lab),
        "update attempt set summary = json_set(summary, '$.verified', json('true')) where id = 'claim.codex.r1.1'",
    )
    said = ask(quickstart.lab, "campaign", "report", "--strict", "--attempts", "--json")
    [invalid] = [row for row in said.json["attempts"] if row["evidence"] == "invalid"]
    assert (said.code, invalid["attemptId"], invalid["findings"][0]["code"]) == (
        5,
        "claim.codex.r1.1",
        "evidence.ledger",
    )


def test_checked_report_keeps_the_cost_that_only_the_ledger_has(quickstart: Quickstart) -> None:
    campaign = campaign_of(quickstart.lab)
    cost = {row["attemptId"]: row["usd"] for row in ask(quickstart.lab, "report", "--json").json["attempts"]}
    assert cost == {each.id: each.usd for each in read_ledger(campaign).attempts}
    assert set(cost.values()) == {0.0}


# ── publish-check ──


def reasons(lab: Lab) -> tuple[int, set[str]]:
    said = ask(lab, "campaign", "publish-check", campaign_of(lab).folder.name, "--json")
    assert said.json["ok"] is (said.code == 0)
    assert all(each["what"] for each in said.json["reasons"])
    return said.code, {each["code"] for each in said.json["reasons"]}


@pytest.mark.requirement("campaign.publish-check")
def test_a_whole_campaign_with_strict_evidence_may_be_published(quickstart: Quickstart) -> None:
    assert reasons(quickstart.lab) == (0, set())
    said = ask(quickstart.lab, "campaign", "publish-check")
    assert said.stdout == f"{campaign_of(quickstart.lab).folder.name} may be published as scripted results.\n"


def untry(paths: CampaignPaths) -> None:
    """As a kill leaves it before the last trial."""
    change_ledger(paths, "delete from attempt where id = 'fix.codex.r1.1'")
    [folder] = (paths.folder.parent.parent / "runs").glob("*/attempts/fix.codex.r1.1")
    shutil.rmtree(folder)


def forget_everything(paths: CampaignPaths) -> None:
    change_ledger(paths, "delete from attempt", "delete from trial")


def claim_to_be_a_canary(paths: CampaignPaths) -> None:
    plan = msgspec.json.decode(paths.plan.read_bytes())["plan"]
    alter_json(paths.plan, plan={**plan, "isCanary": True})


def change_the_snapshot(paths: CampaignPaths) -> None:
    spec = paths.spec_snapshot / "spec.yaml"
    spec.write_text(spec.read_text() + "# more\n")


def unseal(paths: CampaignPaths) -> None:
    [seal] = (paths.folder.parent.parent / "runs").glob("*/attempts/fix.codex.r1.1/seal.json")
    seal.unlink()


def forge_the_verdict(paths: CampaignPaths) -> None:
    """The agent's failure becomes a success, sealed anew, and the ledger and the reports say so too."""
    [folder] = (paths.folder.parent.parent / "runs").glob("*/attempts/claim.codex.r1.1")
    alter_json(folder / "attempt.report.json", verified=True)
    reseal(AttemptPaths(folder))
    change_ledger(
        paths,
        "update attempt set summary = json_set(summary, '$.verified', json('true'), '$.result', 'passed') "
        "where id = 'claim.codex.r1.1'",
    )


OBSTACLES: dict[str, tuple[Callable[[CampaignPaths], None], int, set[str]]] = {
    "a trial without a result": (untry, 5, {"publish.incomplete", "evidence.report", "evidence.counts"}),
    "nothing at all": (forget_everything, 5, {"publish.vacuous", "publish.gate", "evidence.report", "evidence.ledger"}),
    "a canary": (claim_to_be_a_canary, 5, {"publish.canary", "evidence.plan"}),
    "another snapshot": (change_the_snapshot, 5, {"evidence.plan"}),
    "no seal": (unseal, 5, {"evidence.missing-file", "evidence.partial"}),
    "a forged verdict": (forge_the_verdict, 5, {"evidence.gate", "evidence.report"}),
}


@pytest.mark.requirement("campaign.publish-check")
@pytest.mark.parametrize("name", OBSTACLES)
def test_whatever_stands_in_the_way_of_publishing_is_told(quickstart: Quickstart, name: str) -> None:
    spoil, code, codes = OBSTACLES[name]
    spoil(campaign_of(quickstart.lab))
    assert reasons(quickstart.lab) == (code, codes)


@pytest.mark.requirement("campaign.publish-check")
def test_each_reason_has_what_to_do_about_it_below(quickstart: Quickstart, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = campaign_of(quickstart.lab)
    change_ledger(paths, "delete from attempt where id = 'fix.codex.r1.1'")
    claim_to_be_a_canary(paths)
    monkeypatch.setenv("COLUMNS", "80")
    lines = ask(quickstart.lab, "campaign", "publish-check", paths.folder.name).stdout.splitlines()
    assert lines[:4] == [
        f"{paths.folder.name} may not be published:",
        f"  publish.canary      {paths.folder.name} is a canary",
        "    to do             Run the whole campaign and check that one.",
        "  publish.incomplete  1 trial of 4 without a result: fix.codex.r1",
    ]
    assert lines[4].startswith("    to do             Run `proctor campaign resume")
    assert any(f"{quickstart.lab.root}`:" in line for line in lines), "a path can be copied whole"
    named = [line[2:22].strip() for line in lines[1:] if line[2:22].strip()]
    assert named[1::2] == ["to do"] * (len(named) // 2)


@pytest.mark.requirement("campaign.publish-check")
def test_a_campaign_that_is_being_run_may_not_be_published_yet(quickstart: Quickstart) -> None:
    with (campaign_of(quickstart.lab).folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert reasons(quickstart.lab) == (4, {"publish.running"})
    said = ask(quickstart.lab, "campaign", "publish-check")
    assert said.code == 0


# ── gates ──


@pytest.mark.requirement("campaign.gates")
def test_what_the_policy_of_a_flow_denies_is_on_record_and_blocks_the_campaign(lab: Lab) -> None:
    look = {"run": "echo looking"}
    spec = lab.write_spec(
        [mission("look", look, say_done(), expect={"outcome": "completed"})],
        flow={"tools": {"deny": ["command:echo *"]}},
        gates={"trace": "changed-files"},
    )
    said = lab.proctor("run", str(spec), "--json")
    report = msgspec.json.decode(said.stdout)
    [row] = report["attempts"]
    gates = {gate["name"]: [each["why"] for each in gate["blocked"]] for gate in report["gates"]}
    [paths] = lab.attempts().values()
    [violation] = report_of(paths).policy_violations or ()
    assert violation.endswith(": command:echo looking is denied by command:echo *")
    assert (said.returncode, row["summary"]["expectation"]["met"], report["verdict"]) == (1, True, "blocked by a gate")
    assert gates == {
        "coverage": [],
        "trace": ["its trace shows no change in the workspace"],
        "tools": [f"tool calls against its policy: 1 ({violation})"],
    }
    lab.assert_all_evidence_is_valid()
    forged: dict[str, Any] = {"policyViolations": [], "hasChangedFiles": True}
    alter_json(paths.report, **forged)
    reseal(paths)
    said = lab.proctor("validate", "--strict", str(paths.folder), "--json")
    [examined] = msgspec.json.decode(said.stdout)["examined"]
    told = sorted(finding["detail"].split()[0] for finding in examined["findings"])
    assert (said.returncode, told) == (5, ["has_changed_files", "policy_violations"])
