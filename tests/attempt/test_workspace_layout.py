"""The three layouts of a workspace, and what its changes are compared with."""

import stat
from pathlib import Path

import pytest

from proctor.attempt.workspace_layout import EmptyFolder, InPlace, PristineCopy, WorkspaceLayout
from proctor.errors import MachineError
from proctor.workspace.diff import diff
from proctor.workspace.snapshot import EMPTY, snapshot
from tests.workspace.trees import write


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", {"a.txt": b"one\n", "b.txt": b"same\n"})


def layouts(source: Path, scratch: Path) -> list[WorkspaceLayout]:
    return [
        PristineCopy(root=scratch / "copy", base_root=source, digest=snapshot(source).digest),
        InPlace(root=source, base_root=scratch / "judging" / "base"),
    ]


@pytest.mark.requirement("attempt.workspace")
@pytest.mark.parametrize("index", [0, 1])
def test_changes_are_compared_with_the_files_before_the_agent(tmp_path: Path, source: Path, index: int) -> None:
    layout = layouts(source, tmp_path)[index]
    base = layout.create()
    assert base == snapshot(source)
    (layout.root / "a.txt").write_bytes(b"two\n")
    changes = diff(layout.base_root, layout.root, base=base).decode()
    assert "-one\n+two\n" in changes
    assert "b.txt" not in changes


@pytest.mark.requirement("attempt.workspace")
def test_a_pristine_copy_leaves_the_frozen_folder_alone(tmp_path: Path, source: Path) -> None:
    layout = layouts(source, tmp_path)[0]
    layout.create()
    (layout.root / "a.txt").write_bytes(b"two\n")
    assert (source / "a.txt").read_bytes() == b"one\n"


@pytest.mark.requirement("attempt.workspace")
def test_a_pristine_copy_of_a_changed_folder_is_refused(tmp_path: Path, source: Path) -> None:
    layout = layouts(source, tmp_path)[0]
    (source / "a.txt").write_bytes(b"two\n")
    with pytest.raises(MachineError) as error:
        layout.create()
    assert error.value.code == "workspace.base-changed"


def test_a_workspace_in_place_is_not_copied_without_a_diff(tmp_path: Path, source: Path) -> None:
    assert InPlace(root=source, base_root=None).create() == EMPTY
    assert [each.name for each in tmp_path.iterdir()] == ["source"]


def test_an_empty_workspace_belongs_to_its_user_alone(tmp_path: Path) -> None:
    layout = EmptyFolder(root=tmp_path / "workspace")
    assert layout.create() == EMPTY
    assert stat.S_IMODE(layout.root.stat().st_mode) == 0o700
    with pytest.raises(MachineError):
        layout.create()
