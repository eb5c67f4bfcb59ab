"""Whoever is killed while the report is kept or evidence is let go of leaves nothing that looks whole and is not."""

import shutil
from itertools import count
from pathlib import Path

import msgspec
import pytest

from bench.campaign import KEY, spec_of
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.surface.gc import REMOVED
from tests.killed import killed
from tests.lab import Lab
from tests.surface.conftest import LOOKS, ask
from tests.surface.test_gc import evidence, there

COMMAND = """read -rd '' prompt; echo 'PROCTOR-RESULT: {"done": true, "answer": ""}'"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(KEY, "none-needed-here")
    return Lab(tmp_path, is_other_agent_allowed=True)


def written(lab: Lab) -> Path:
    """The spec of one trial, on a command that is done at once."""
    spec = lab.folder / "spec.yaml"
    flow = {"contain": "none", "options": {"process": {"command": COMMAND}}}
    spec.write_bytes(msgspec.json.encode(spec_of(1, isolation="process", runtime="process", flow=flow)))
    return spec


def assert_every_look_answers(lab: Lab) -> None:
    for words in LOOKS:
        said = ask(lab, *words)
        assert "run.harness" not in said.stderr, (words, said.stderr)


@pytest.mark.long
@pytest.mark.proctor_process
def test_a_run_that_is_killed_at_any_change_of_the_campaign_leaves_it_partial_and_resume_makes_it_whole(
    lab: Lab,
) -> None:
    assert ask(lab, "run", str(written(lab))).code == 0, "it completed, and has no probe"
    assert ask(lab, "validate", "--strict").code == 0
    shutil.copytree(lab.root, lab.folder / "before")
    [name] = [campaign.folder.name for campaign in RootPaths(lab.root).campaigns()]
    campaign = CampaignPaths(lab.root / "campaigns" / name)
    for n in count(1):
        shutil.rmtree(lab.root)
        shutil.copytree(lab.folder / "before", lab.root)
        if not killed(campaign.folder, n, "retry", "--only", "m0", "--yes", "--root", str(lab.root)):
            break
        # The lock comes first, and changes nothing.
        assert ask(lab, "validate", "--strict").code == (0 if n == 1 else 4), (n, ask(lab, "validate").stdout)
        assert_every_look_answers(lab)
        assert ask(lab, "campaign", "resume").code == 0
        found = {each["kind"]: each for each in ask(lab, "validate", "--json").json["examined"]}
        assert found["campaign"]["status"] == "valid", (n, found["campaign"])
    assert n > 6, "it was killed while it kept the report too"
    assert ask(lab, "validate", "--strict").code == 0


def test_a_report_of_the_runs_before_is_not_taken_for_a_forged_one_and_one_of_other_runs_is(lab: Lab) -> None:
    ask(lab, "run", str(written(lab)))
    [campaign] = RootPaths(lab.root).campaigns()
    report, results = campaign.report.read_bytes(), campaign.results.read_bytes()
    ask(lab, "retry", "--only", "m0", "--yes")
    campaign.report.write_bytes(report)
    campaign.results.write_bytes(results)
    [told] = [each for each in ask(lab, "validate", "--json").json["examined"] if each["kind"] == "campaign"]
    finding = {"code": "evidence.partial", "file": "report.json", "detail": "of the runs before the last one"}
    assert (told["status"], [{key: each[key] for key in finding} for each in told["findings"]]) == (
        "partial",
        [finding],
    )
    campaign.report.write_bytes(report.replace(b'"runId": "', b'"runId": "another-', 1))
    assert ask(lab, "validate", str(campaign.folder)).code == 5


@pytest.mark.long
@pytest.mark.proctor_process
@pytest.mark.requirement("ops.gc")
def test_a_gc_that_is_killed_at_any_change_leaves_nothing_half_and_the_next_one_finishes_it(lab: Lab) -> None:
    root = RootPaths(lab.root)
    evidence(root, "old", days=40, runs=2)
    evidence(root, "young", days=1)
    lone = lab.root / "runs" / "lone" / "attempts" / "a.f.r1.1"
    lone.mkdir(parents=True)
    shutil.copytree(lab.root, lab.folder / "before", copy_function=shutil.copy2)
    young = ["campaigns/young", "runs/young-run-0"]
    words = ("gc", "--older-than", "30d", "--root", str(lab.root))
    for n in count(1):
        shutil.rmtree(lab.root)
        shutil.copytree(lab.folder / "before", lab.root, copy_function=shutil.copy2)
        if not killed(lab.root, n, *words):
            break
        assert_every_look_answers(lab)
        names = set(there(root))
        if "campaigns/old" in names:
            assert {"runs/old-run-0", "runs/old-run-1"} <= names, "a campaign that is there is whole"
        assert ask(lab, *words[:3]).code == 0
        assert there(root) == [young[0], "runs/lone", young[1]], n
        assert not (lab.root / REMOVED).exists(), n
    assert n > 10
