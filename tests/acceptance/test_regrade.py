"""`regrade`: probes judge the trees of sealed attempts again, without an agent, and no recorded file changes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from proctor.campaign.scratch import scratch_of_runs
from proctor.evidence.layout import RootPaths
from tests.lab import Lab, mission, say_done
from tests.made_once import made_once

EXAMPLES = Path(__file__).parents[2] / "examples"
MADE = {"kind": "headless_run", "command": "grep -q made made.txt"}


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def statuses(said: Any) -> dict[str, tuple[str, bool | None]]:
    found = json.loads(said.stdout)["attempts"]
    return {each["attemptId"]: (each["status"], each["after"] and each["after"]["verified"]) for each in found}


@pytest.fixture
def demo(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A lab with the evidence of the quickstart, which ran once on the real Codex, and with a copy of its files."""

    def run(folder: Path) -> None:
        for name in ("scripts", "workspaces"):
            shutil.copytree(EXAMPLES / name, folder / "spec" / name)
        shutil.copy(EXAMPLES / "quickstart.yaml", folder / "spec" / "quickstart.yaml")
        assert Lab(folder).proctor("run", "spec/quickstart.yaml").returncode == 0

    ran = made_once(tmp_path_factory, "regrade-quickstart", run)
    for name in ("spec", "evidence"):
        shutil.copytree(ran / name, tmp_path / name)
    return Lab(tmp_path)


@pytest.mark.long
@pytest.mark.real_agent
@pytest.mark.requirement("probe.check")
def test_regrade_with_a_stricter_probe_gives_another_verdict_and_changes_no_file(demo: Lab) -> None:
    spec = (demo.folder / "spec" / "quickstart.yaml").read_text()
    stricter_spec = spec.replace(
        "    script: scripts/fix.yaml\n",
        "      - {kind: headless_run, command: test -e README.md}\n    script: scripts/fix.yaml\n",
    )
    assert stricter_spec != spec
    (demo.folder / "spec" / "stricter.yaml").write_text(stricter_spec)
    before = files_of(demo.root)
    same = demo.proctor("regrade", "quickstart", "--json")
    assert (same.returncode, statuses(same)) == (
        0,
        {
            "ask.codex.r1.1": ("no-probe", None),
            "claim.codex.r1.1": ("regraded", False),
            "fix.codex.r1.1": ("regraded", True),
            "shell.codex.r1.1": ("no-probe", None),
        },
    )
    stricter = demo.proctor("regrade", "fix.codex.r1.1", "--spec", "spec/stricter.yaml")
    assert stricter.returncode == 0
    assert "fix.codex.r1.1  verified  not verified  CHANGED" in stricter.stdout
    after = files_of(demo.root)
    assert {name: after[name] for name in before} == before
    added = {Path(name).name for name in after.keys() - before.keys()}
    assert added == {"regrade.json", "regrade.probes.jsonl"}
    assert demo.proctor("validate", "--strict", str(demo.root)).returncode == 0
    record = json.loads(same.stdout)
    assert record["attempts"][2]["before"]["verified"] is True
    assert record["attempts"][2]["sealDigest"].startswith("sha256:")


@pytest.mark.long
@pytest.mark.real_agent
@pytest.mark.requirement("probe.check")
def test_regrade_names_an_attempt_that_wrote_a_binary_as_impossible_to_rebuild(lab: Lab) -> None:
    write = "echo made >made.txt"
    spec = lab.write_spec(
        [
            mission("text", {"run": write}, say_done(), probes=[MADE]),
            mission("binary", {"run": rf"{write}; printf '\000\001' >logo.png"}, say_done(), probes=[MADE]),
        ]
    )
    lab.run(spec)
    said = lab.proctor("regrade", "lab", "--json")
    assert said.returncode == 4
    assert statuses(said) == {"binary.codex.r1.1": ("impossible", None), "text.codex.r1.1": ("regraded", True)}
    [impossible] = [each for each in json.loads(said.stdout)["attempts"] if each["status"] == "impossible"]
    assert impossible["why"].startswith("workspace.diff does not have the content of b/logo.png: 2 bytes, sha256:")
    lab.assert_all_evidence_is_valid()


@pytest.fixture
def written(lab: Lab) -> Lab:
    """A lab with one sealed attempt of a command that made a file, an empty folder, a link and an executable."""
    lab.is_other_agent_allowed = True
    command = (
        "echo made >made.txt; mkdir -p empty/inner; ln -s made.txt link; rm -r old; echo x >>run.sh; chmod +x run.sh"
    )
    base = lab.folder / "spec" / "base"
    (base / "old" / "inner").mkdir(parents=True)
    (base / "old" / "file").write_text("old\n")
    (base / "run.sh").write_text("run\n")
    flow = {"runtime": ["process"], "options": {"process": {"command": command}}}
    spec = lab.write_spec([mission("task", say_done(), probes=[MADE], workspace={"copy": "base"})], flow=flow)
    assert lab.proctor("run", str(spec)).returncode == 0
    return lab


@pytest.mark.long
@pytest.mark.requirement("probe.check")
def test_regrade_rebuilds_folders_links_and_modes(written: Lab) -> None:
    said = written.proctor("regrade", "lab", "--json")
    assert (said.returncode, statuses(said)) == (0, {"task.codex.r1.1": ("regraded", True)})
    [attempt] = json.loads(said.stdout)["attempts"]
    assert attempt["tree"] == "rebuilt"


@pytest.mark.requirement("probe.check")
def test_regrade_says_that_the_untouched_workspace_is_different_or_missing(written: Lab) -> None:
    base = written.folder / "spec" / "base"
    (base / "run.sh").write_text("changed\n")
    said = written.proctor("regrade", "lab")
    assert said.returncode == 4
    assert "task.codex.r1.1: the untouched workspace has changed since the campaign began" in said.stdout
    shutil.rmtree(base)
    said = written.proctor("regrade", "task.codex.r1.1")
    assert said.returncode == 4
    assert "task.codex.r1.1: the untouched workspace is missing: there is no folder" in said.stdout


@pytest.mark.requirement("probe.check")
def test_regrade_says_that_a_redacted_change_cannot_be_rebuilt(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.is_other_agent_allowed = True
    monkeypatch.setenv("SHOP_TOKEN", "q8Zr1-very-secret")
    flow = {
        "runtime": ["process"],
        "options": {"process": {"command": "echo made $SHOP_TOKEN >made.txt"}},
        "forward": ["SHOP_TOKEN"],
    }
    lab.run(lab.write_spec([mission("task", say_done(), probes=[MADE])], flow=flow, secrets=["SHOP_TOKEN"]))
    said = lab.proctor("regrade", "lab")
    assert said.returncode == 4
    assert "task.codex.r1.1: workspace.diff is redacted" in said.stdout


@pytest.mark.requirement("probe.check")
def test_regrade_refuses_an_attempt_whose_files_were_edited(written: Lab) -> None:
    [paths] = written.attempts().values()
    paths.workspace_diff.write_text(paths.workspace_diff.read_text().replace("+made", "+forged"))
    said = written.proctor("regrade", "lab", "--json")
    assert (said.returncode, statuses(said)) == (5, {"task.codex.r1.1": ("invalid", None)})


@pytest.mark.requirement("probe.check")
def test_edited_regrade_makes_the_campaign_invalid(written: Lab) -> None:
    assert written.proctor("regrade", "lab").returncode == 0
    [campaign] = RootPaths(written.root).campaigns()
    assert written.proctor("validate", "--strict", str(campaign.folder)).returncode == 0
    [rows] = campaign.regrades.glob("*/regrade.probes.jsonl")
    rows.write_text(rows.read_text().replace('"pass"', '"fail"'))
    said = written.proctor("validate", "--strict", str(campaign.folder))
    assert said.returncode == 5
    assert "not the rows that" in said.stdout


def test_regrade_exits_2_if_nothing_has_the_name(lab: Lab) -> None:
    assert lab.proctor("regrade", "no-such").returncode == 2


@pytest.mark.long
@pytest.mark.requirement("probe.check")
def test_kept_workspace_is_regraded_where_the_diff_lacks_its_content(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    command = r"echo made >made.txt; printf '\000' >logo.png"
    flow = {"runtime": ["process"], "options": {"process": {"command": command}}}
    spec = lab.write_spec([mission("task", say_done(), probes=[MADE])], flow=flow, keep={"workspaces": True})
    [attempt] = lab.run(spec).attempts
    [run] = RootPaths(lab.root).runs()
    scratch = scratch_of_runs() / run.folder.name
    assert {each.name for each in scratch.iterdir()} == {"lock", "kept-on-purpose", "workspaces"}
    said = lab.proctor("regrade", "lab", "--json")
    assert (said.returncode, statuses(said)) == (0, {"task.codex.r1.1": ("regraded", True)})
    [regraded] = json.loads(said.stdout)["attempts"]
    assert regraded["tree"] == "kept"
    kept = scratch / "workspaces" / attempt.attempt_id
    (kept / "made.txt").write_text("made by others\n")
    changed = lab.proctor("regrade", "lab", "--json")
    assert (changed.returncode, statuses(changed)) == (4, {"task.codex.r1.1": ("impossible", None)})
