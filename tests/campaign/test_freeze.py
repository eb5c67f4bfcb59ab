"""A campaign is a snapshot: every file that decides what is asked is in it, under a name and with a digest."""

from pathlib import Path

import msgspec
import pytest

from proctor.campaign.freeze import FrozenFiles, freeze, thaw
from proctor.canonical import digest_bytes
from proctor.errors import InputError
from proctor.evidence.artifacts import PlanFile
from proctor.evidence.layout import RootPaths, write_artifact
from proctor.evidence.redact import Redactor
from proctor.ids import CampaignId
from proctor.spec.campaign_options import SelectSpec
from proctor.spec.load import SpecOverrides, load_spec

SPEC = """\
version: 1
campaign: night
missions: {folder: missions}
flows: [{id: native, runtime: [one]}]
template: careful.txt
prices: prices.yaml
"""
FILES = {
    "spec.yaml": SPEC,
    "say.yaml": "version: 1\nsteps: [{say: hi}]\n",
    "careful.txt": "{{prompt}}\n",
    "prices.yaml": "version: 1\nsince: 2026-11-01\nmodels: {a/b: {input: 1, output: 1}}\n",
    "missions/a.md": "---\nscript: say.yaml\n---\nA\n",
    "missions/b.md": "---\nscript: say.yaml\nworkspace: {copy: tree}\n---\nB\n",
}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    folder = tmp_path / "spec"
    (folder / "missions").mkdir(parents=True)
    (folder / "tree").mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder / "spec.yaml"


@pytest.mark.requirement("campaign.matrix")
def test_mission_files_templates_and_prices_are_frozen_with_the_selection(spec: Path, tmp_path: Path) -> None:
    paths = RootPaths(tmp_path / "root").campaign(CampaignId("night-1"))
    paths.create()
    loaded = load_spec(spec, overrides=SpecOverrides(select=SelectSpec(ids=["a"])))
    frozen = freeze(loaded, paths=paths, workspaces=tmp_path / "bases", redactor=Redactor([]))
    index = msgspec.json.decode((paths.spec_snapshot / "index.json").read_bytes(), type=FrozenFiles)
    asked = ("careful.txt", "missions/a.md", "missions/b.md", "prices.yaml")
    assert index == FrozenFiles(
        spec=digest_bytes(SPEC.encode()),
        scripts={"say.yaml": digest_bytes(FILES["say.yaml"].encode())},
        workspaces={},
        overlays={},
        files={name: digest_bytes(FILES[name].encode()) for name in asked},
        names={
            "say.yaml": "script-0.yaml",
            "careful.txt": "file-0.txt",
            "missions/a.md": "file-1.md",
            "missions/b.md": "file-2.md",
            "prices.yaml": "file-3.yaml",
        },
        given=SpecOverrides(select=SelectSpec(ids=["a"])),
    )
    kept = {name: (paths.spec_snapshot / at).read_text() for name, at in index.names.items()}
    assert kept == {name: text for name, text in FILES.items() if name != "spec.yaml"}
    assert set(frozen.snapshot) == {"spec.yaml", "index.json", *index.names.values()}
    assert [trial.id for trial in frozen.plan.trials] == ["a.native.r1"]


def test_what_is_wrong_with_a_workspace_is_told_at_the_mission_that_names_it(spec: Path, tmp_path: Path) -> None:
    (spec.parent / "tree" / "out").symlink_to("/etc/hostname")
    paths = RootPaths(tmp_path / "root").campaign(CampaignId("night-1"))
    paths.create()
    with pytest.raises(InputError) as caught:
        freeze(load_spec(spec), paths=paths, workspaces=tmp_path / "bases", redactor=Redactor([]))
    told = caught.value
    assert (told.code, told.file, told.line, told.key) == (
        "workspace.link-out",
        str(spec.parent / "missions/b.md"),
        3,
        "workspace.copy",
    )


def test_what_was_changed_is_shown_by_the_names_that_the_spec_gives(spec: Path, tmp_path: Path) -> None:
    paths = RootPaths(tmp_path / "root").campaign(CampaignId("night-1"))
    paths.create()
    frozen = freeze(load_spec(spec), paths=paths, workspaces=tmp_path / "bases", redactor=Redactor([]))
    plan = PlanFile(plan=frozen.plan, snapshot=dict(frozen.snapshot))
    write_artifact(paths.plan, plan, redactor=Redactor([]))
    again = thaw(load_spec(spec), paths=paths, workspaces=tmp_path / "again", redactor=Redactor([]))
    assert again.plan == frozen.plan
    # It comes before the others, which are kept under other numbers then.
    (spec.parent / "missions" / "0.md").write_text("---\nscript: say.yaml\n---\nNought\n")
    (spec.parent / "careful.txt").write_text("{{prompt}}!\n")
    with pytest.raises(InputError) as caught:
        thaw(load_spec(spec), paths=paths, workspaces=tmp_path / "changed", redactor=Redactor([]))
    assert caught.value.code == "campaign.changed"
    assert caught.value.what.splitlines() == [
        "the files of night-1 have changed since it began:",
        "--- careful.txt (at the start)",
        "+++ careful.txt (now)",
        "@@ -1 +1 @@",
        "-{{prompt}}",
        "+{{prompt}}!",
        "--- missions/0.md (at the start)",
        "+++ missions/0.md (now)",
        "@@ -0,0 +1,4 @@",
        "+---",
        "+script: say.yaml",
        "+---",
        "+Nought",
    ]


def test_a_campaign_of_another_plan_is_not_gone_on_with_though_its_files_are_the_same(
    spec: Path, tmp_path: Path
) -> None:
    paths = RootPaths(tmp_path / "root").campaign(CampaignId("night-1"))
    paths.create()
    frozen = freeze(load_spec(spec), paths=paths, workspaces=tmp_path / "bases", redactor=Redactor([]))
    other = msgspec.structs.replace(frozen.plan, digest=digest_bytes(b"another"))
    write_artifact(paths.plan, PlanFile(plan=other, snapshot=dict(frozen.snapshot)), redactor=Redactor([]))
    with pytest.raises(InputError, match="another plan from the same spec") as caught:
        thaw(load_spec(spec), paths=paths, workspaces=tmp_path / "again", redactor=Redactor([]))
    assert caught.value.code == "campaign.changed"
