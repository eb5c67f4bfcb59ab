"""What stays inside a workspace, links followed."""

from pathlib import Path

import pytest

from proctor.runtime.codex_app_server.questions import changed_paths
from proctor.runtime.inside_workspace import stays_inside


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """With links that lead out of it and about in it; itself reached by a link."""
    real = tmp_path / "real"
    for folder in (real / "src", real / ".git", tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
    (real / "src/a.py").touch()
    (real / "out").symlink_to(tmp_path / "elsewhere")
    (real / "dangling").symlink_to(tmp_path / "not-there-yet")
    (real / "about").symlink_to(real / "src")
    (real / "hidden").symlink_to(real / ".git")
    (real / "loop").symlink_to(real / "loop")
    (tmp_path / "elsewhere/one").touch()
    (real / "second-name").hardlink_to(tmp_path / "elsewhere/one")
    (tmp_path / "workspace").symlink_to(real)
    return tmp_path / "workspace"


@pytest.mark.parametrize("path", ["src/a.py", "new.txt", "new/er/file", "about/b.py", "src/../c", "src/.gitignore"])
def test_what_lies_below_stays_inside(workspace: Path, path: str) -> None:
    assert stays_inside(workspace, [path])
    assert stays_inside(workspace, [str(workspace / path), str(workspace.resolve() / path)])


@pytest.mark.parametrize(
    "path",
    [
        "../x", "/etc/passwd", "/", ".", "", "out/x", "dangling", "dangling/x", "src/../../x", ".git/config",
        "a/.git/x", "hidden/config", ".codex/config.toml", ".agents/x", ".claude/settings.json",
        "second-name", "nul\0byte",
    ],
)  # fmt: skip
def test_what_leads_out_or_is_run_later_does_not(workspace: Path, path: str) -> None:
    assert not stays_inside(workspace, [path])
    assert not stays_inside(workspace, ["src/a.py", path]), "one of them is enough"


def test_protected_folders_are_added_by_a_runtime(workspace: Path) -> None:
    assert stays_inside(workspace, [".mynah/x"])
    assert not stays_inside(workspace, [".mynah/x"], protected={".mynah"})
    assert not stays_inside(workspace, [".git/config"], protected={".mynah"})


def test_of_no_paths_nothing_is_known(workspace: Path) -> None:
    assert not stays_inside(workspace, [])


@pytest.mark.parametrize("changes", [[5], [{}], [{"path": 5}], [{"path": "a", "kind": {"move_path": 5}}], {"/": None}])
def test_a_change_that_cannot_be_read_could_be_of_any_file(workspace: Path, changes: object) -> None:
    assert not stays_inside(workspace, changed_paths(changes))
