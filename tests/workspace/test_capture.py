"""What an agent left that prevents judging its workspace, and what only the machine prevents."""

import os
import resource
import subprocess
from pathlib import Path

import pytest

from proctor.errors import MachineError
from proctor.workspace import walk as walking
from proctor.workspace.capture import MAX_PATH_BYTES, capture
from proctor.workspace.snapshot import EMPTY, Snapshot, snapshot

from .trees import write


def defect_of(root: Path, base: Snapshot = EMPTY) -> str | None:
    return capture(root, base).defect


def test_capture_of_an_ordinary_tree_has_no_defect(tmp_path: Path) -> None:
    root = write(tmp_path / "w", {"a/b": b"x", "in": "a/b", "python": "/usr/bin/python3", os.fsdecode(b"\xff"): b""})
    os.mkfifo(root / "pipe")
    found = capture(root, EMPTY)
    assert (found.defect, found.snapshot) == (None, snapshot(root))


def test_capture_names_what_prevents_judging(tmp_path: Path) -> None:
    link = write(tmp_path / "link", {"out": "../elsewhere"})  # a probe does not see it
    big = write(tmp_path / "big", {"f": b""})
    os.truncate(big / "f", walking.MAX_TREE_BYTES + 1)
    replaced = tmp_path / "replaced"
    replaced.symlink_to(link)
    assert {root.name: defect_of(root) for root in (link, big, replaced, tmp_path / "gone")} == {
        "link": None,
        "big": "it has 8589934593 bytes; the limit for a workspace is 8589934592 bytes",
        "replaced": "the workspace folder was removed, replaced or made unreadable: Not a directory",
        "gone": "the workspace folder was removed, replaced or made unreadable: No such file or directory",
    }


def test_capture_names_a_path_that_no_copy_can_have(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    steps = MAX_PATH_BYTES // 200 + 1
    subprocess.run(["sh", "-c", f"for i in $(seq {steps}); do mkdir {'d' * 200}; cd {'d' * 200}; done"], cwd=root)
    assert "has more than 3072 bytes" in (defect_of(root) or "")


def test_capture_names_an_endless_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "MAX_ENTRIES", 3)
    assert defect_of(write(tmp_path / "three", {"a": b"", "b/c": b""})) is None
    assert "more than 3 entries" in (defect_of(write(tmp_path / "four", {"a": b"", "b/c": b"", "d": b""})) or "")


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every folder")
def test_capture_names_an_unreadable_folder(tmp_path: Path) -> None:
    root = write(tmp_path / "w", {"closed/f": b""})
    (root / "closed").chmod(0)
    assert defect_of(root) == "closed cannot be read: Permission denied"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_capture_names_a_mount_and_does_not_read_it(tmp_path: Path) -> None:
    root = write(tmp_path / "w", {"m/f": b""})
    if subprocess.run(["mount", "-t", "proc", "proc", root / "m"], capture_output=True).returncode:
        pytest.skip("this machine does not let root mount")
    try:
        found = capture(root, EMPTY)
    finally:
        subprocess.run(["umount", root / "m"], check=True)
    assert found.defect == f"a file system is mounted at {root / 'm'}"
    assert [entry.path for entry in found.snapshot.entries] == ["."]


def test_capture_blames_the_machine_that_has_no_descriptor_left(tmp_path: Path) -> None:
    root = write(tmp_path / "w", {"a": b"x"})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(MachineError) as refused:
            snapshot(root)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert refused.value.code == "machine.exhausted"
