"""A git workspace in a spec: what may be written, and where each fault is told."""

from pathlib import Path

import pytest
import yaml

from proctor.campaign.freeze import FrozenSpec, freeze
from proctor.errors import CollectedInputError, InputError
from proctor.evidence.layout import RootPaths
from proctor.evidence.redact import Redactor
from proctor.ids import CampaignId
from proctor.spec.load import LoadedSpec, load_spec
from proctor.workspace.snapshot import snapshot

from .repositories import commit, git, init, with_a_later_fix


def spec(folder: Path, *workspaces: object) -> Path:
    """A spec with a mission a workspace; the parts of the first workspace begin on line 8."""
    folder.mkdir(exist_ok=True)
    (folder / "script.yaml").write_text("version: 1\nsteps: [{say: hi}]\n")
    missions = [
        {"id": f"m{at}", "prompt": "Do it.", "script": "script.yaml", "workspace": each}
        for at, each in enumerate(workspaces)
    ]
    flows = [{"id": "f", "runtime": ["codex_app_server"]}]
    file = folder / "spec.yaml"
    file.write_text(
        yaml.safe_dump({"version": 1, "campaign": "c", "missions": missions, "flows": flows}, sort_keys=False)
    )
    return file


def frozen(loaded: LoadedSpec, folder: Path) -> FrozenSpec:
    paths = RootPaths(folder / "evidence").campaign(CampaignId("c"))
    paths.create()
    return freeze(loaded, paths=paths, workspaces=folder / "bases", redactor=Redactor(()))


@pytest.mark.parametrize(
    ("workspace", "told"),
    [
        ({"git": "../mine"}, ("spec.missing-key", 7, "missions[0].workspace.ref")),
        ({"ref": "main"}, ("spec.unsupported", 8, "missions[0].workspace.ref")),
        ({"exclude": ["a"]}, ("spec.unsupported", 8, "missions[0].workspace.exclude")),
        ({"exclude": ["../a"], "copy": "../mine"}, ("spec.unsupported", 9, "missions[0].workspace.exclude[0]")),
        ({"git": "../mine", "ref": "main", "copy": "."}, ("spec.unsupported", 10, "missions[0].workspace.copy")),
        ({"git": "../nowhere", "ref": "main"}, ("spec.missing-file", 8, "missions[0].workspace.git")),
        ({"git": "", "ref": "main"}, ("spec.type", 8, "missions[0].workspace.git")),
        ({"git": "spec.yaml", "ref": "main"}, ("spec.missing-file", 8, "missions[0].workspace.git")),
    ],
)
def test_a_workspace_that_makes_no_sense_is_told_when_the_spec_is_loaded(
    workspace: object, told: tuple[str, int, str], tmp_path: Path
) -> None:
    init(tmp_path / "mine")
    with pytest.raises(InputError) as caught:
        load_spec(spec(tmp_path / "spec", workspace))
    each = caught.value.errors if isinstance(caught.value, CollectedInputError) else (caught.value,)
    assert told in [(error.code, error.line, error.key) for error in each]


@pytest.mark.parametrize(
    ("workspace", "told"),
    [
        ({"git": "../mine", "ref": "nowhere"}, ("workspace.ref", 9, "missions[0].workspace.ref")),
        ({"git": "../plain", "ref": "main"}, ("workspace.not-a-repository", 8, "missions[0].workspace.git")),
        ({"git": "../holed", "ref": "main"}, ("workspace.history", 8, "missions[0].workspace.git")),
        ({"copy": "../plain"}, ("workspace.link-out", 8, "missions[0].workspace.copy")),
    ],
)
def test_a_repository_that_will_not_do_is_told_with_its_line_when_the_campaign_is_frozen(
    workspace: object, told: tuple[str, int, str], tmp_path: Path
) -> None:
    with_a_later_fix(tmp_path / "mine")
    holed = init(tmp_path / "holed")
    commit(holed, {"f": "x"}, "first")
    blob = git("rev-parse", "HEAD:f", cwd=holed)
    (holed / ".git/objects" / blob[:2] / blob[2:]).unlink()
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/out").symlink_to("/etc")
    file = spec(tmp_path / "spec", workspace)

    with pytest.raises(InputError) as caught:
        frozen(load_spec(file), tmp_path)

    error = caught.value
    assert (error.code, error.line, error.key, error.file) == (*told, str(file))


def test_a_campaign_freezes_each_ref_once_and_its_digest_is_of_what_it_holds(tmp_path: Path) -> None:
    source, _ = with_a_later_fix(tmp_path / "mine")
    file = spec(
        tmp_path / "spec",
        {"git": "../mine", "ref": "base"},
        {"git": "../mine", "ref": "main~1"},
        {"git": "../mine", "ref": "main"},
        {"git": "../mine", "ref": "base"},
    )

    held = frozen(load_spec(file), tmp_path)

    assert list(held.workspaces) == ["git:../mine@base", "git:../mine@main~1", "git:../mine@main"]
    digests = [snapshot(copy).digest for copy in held.workspaces.values()]
    assert (digests[0] == digests[1], digests[0] == digests[2]) == (True, False)
    commit(source, {"greet.py": "later"}, "later")
    assert [snapshot(copy).digest for copy in held.workspaces.values()] == digests


def test_a_spec_in_the_history_of_its_own_workspace_is_refused(tmp_path: Path) -> None:
    source, _ = with_a_later_fix(tmp_path / "mine")
    file = spec(source / "suite", {"git": "..", "ref": "HEAD"})
    frozen(load_spec(file), tmp_path)

    commit(source, {}, "with the spec")
    with pytest.raises(InputError) as caught:
        frozen(load_spec(file), tmp_path / "again")

    assert (caught.value.code, caught.value.what, caught.value.line) == (
        "spec.unsupported",
        "the history of the ref contains spec.yaml, which the agent must not see",
        8,
    )


@pytest.mark.trust
def test_copy_leaves_out_what_the_spec_excludes(tmp_path: Path) -> None:
    """The spec may lie in the folder that the agent works on, if the agent does not see it."""
    folder = tmp_path / "mine"
    file = spec(folder, {"copy": ".", "exclude": ["spec.yaml", "script.yaml", "out/"]}, {"copy": ".", "exclude": []})
    with pytest.raises(InputError) as caught:
        load_spec(file)
    assert [(each.code, each.key) for each in caught.value.all_errors] == [
        ("spec.unsupported", "missions[1].workspace.copy")
    ]
    file = spec(folder, {"copy": ".", "exclude": ["spec.yaml", "script.yaml", "out/"]})
    (folder / "out").mkdir()
    (folder / "out/link").symlink_to("/etc")
    (folder / "outer").write_text("kept")

    [copy] = frozen(load_spec(file), tmp_path).workspaces.values()

    assert [path.name for path in copy.iterdir()] == ["outer"]
