import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from proctor.errors import CODES, ProctorError
from proctor.workspace.prepare import prepare
from proctor.workspace.remove import remove
from proctor.workspace.snapshot import EMPTY, snapshot

from .trees import Tree, trees, write


def refusal(source: Path | None, into: Path) -> tuple[str, str]:
    with pytest.raises(ProctorError) as caught:
        prepare(source, into=into)
    assert caught.value.code in CODES
    return caught.value.code, caught.value.what


@given(tree=trees())
@settings(max_examples=30, deadline=None)
@pytest.mark.requirement("attempt.workspace")
def test_a_copy_has_its_sources_digest_and_is_the_owners_alone(tree: Tree) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, into = write(Path(folder) / "source", tree), Path(folder) / "scratch" / "into"
        prepare(source, into=into)
        assert snapshot(into) == snapshot(source)
        assert into.stat().st_mode & 0o777 == 0o700
        remove(into)
        assert list(into.parent.iterdir()) == []


def test_no_source_gives_an_empty_folder_and_an_existing_one_is_refused(tmp_path: Path) -> None:
    prepare(None, into=tmp_path / "w")
    assert snapshot(tmp_path / "w") == EMPTY
    assert (tmp_path / "w").stat().st_mode & 0o777 == 0o700
    assert refusal(None, tmp_path / "w")[0] == "machine.unwritable"


def test_modes_and_times_are_kept_and_a_folder_that_cannot_be_written_is_filled(tmp_path: Path) -> None:
    source = write(tmp_path / "s", {"locked/f": b"x", "run*": b"y"})
    (source / "locked").chmod(0o555)
    os.utime(source / "locked" / "f", ns=(1, 2_000_000_000))
    prepare(source, into=tmp_path / "w")
    copied = [(tmp_path / "w" / name).stat() for name in ("locked", "locked/f", "run")]
    assert [status.st_mode & 0o777 for status in copied] == [0o555, 0o644, 0o755]
    assert copied[1].st_mtime_ns == 2_000_000_000
    assert copied[1].st_ino != (source / "locked" / "f").stat().st_ino


@pytest.mark.parametrize(
    ("tree", "name"),
    [
        ({"l": "/etc/passwd"}, "l"),
        ({"l": "../other"}, "l"),
        ({"d/l": "../../other"}, "d/l"),
        # Inside by its words, outside by its way: `d` is the root itself.
        ({"d": ".", "l": "d/../s/f", "f": b"x"}, "l"),
        ({"deep/er": None, "d": "deep/er", "l": "d/../../../s/f", "f": b"x"}, "l"),
        ({"a": "b", "b": "../out"}, "a"),
        ({"a": "b", "b": "/etc"}, "a"),
    ],
)
def test_a_link_that_leads_out_at_any_step_is_refused_by_name(tmp_path: Path, tree: Tree, name: str) -> None:
    source = write(tmp_path / "s", tree)
    code, what = refusal(source, tmp_path / "w")
    assert code == "workspace.link-out"
    assert what.startswith(f"{name} is a link to ")
    assert not (tmp_path / "w").exists()


def test_links_that_stay_inside_dangle_or_loop_are_copied_as_they_are(tmp_path: Path) -> None:
    tree: Tree = {"d/up": "../f", "f": b"x", "dangling": "./d//nowhere", "loop": "loop", "round": "d/../d/up"}
    prepare(write(tmp_path / "s", tree), into=tmp_path / "w")
    assert snapshot(tmp_path / "w") == snapshot(tmp_path / "s")
    assert snapshot(tmp_path / "w").by_path["dangling"].target == "./d//nowhere"


def test_a_pipe_in_the_source_is_refused_by_name(tmp_path: Path) -> None:
    source = write(tmp_path / "s", {"d": None})
    os.mkfifo(source / "d" / "pipe")
    assert refusal(source, tmp_path / "w") == ("workspace.special-file", "d/pipe is a fifo, which cannot be copied")


def git(*args: str, cwd: Path) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.invalid", "-c", "init.defaultBranch=main"]
    env = {"PATH": os.environ["PATH"], "HOME": str(cwd), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *identity, *args], cwd=cwd, env=env, check=True, capture_output=True, timeout=60)


def test_a_copy_never_reaches_the_users_own_repository(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    git("init", ".", cwd=mine)
    git("commit", "--allow-empty", "-m", "first", cwd=mine)
    git("worktree", "add", "../tree", cwd=mine)
    git("clone", "--shared", str(mine), "../shared", cwd=mine)
    git("clone", str(mine), "../clone", cwd=mine)
    reasons = {name: refusal(tmp_path / name, tmp_path / "w") for name in ("tree", "shared", "clone")}
    assert {code for code, _ in reasons.values()} == {"workspace.git"}
    assert "points to another repository" in reasons["tree"][1]
    assert "borrows its objects" in reasons["shared"][1]
    assert "local remote" in reasons["clone"][1]
    prepare(mine, into=tmp_path / "w")
    git("log", cwd=tmp_path / "w")


def test_a_missing_source_a_file_and_a_source_around_the_copy_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert refusal(tmp_path / "nowhere", tmp_path / "w")[0] == "spec.missing-file"
    assert refusal(tmp_path / "file", tmp_path / "w")[0] == "spec.missing-file"
    assert refusal(tmp_path, tmp_path / "cache" / "w")[0] == "workspace.inside-itself"


def test_a_source_larger_than_can_be_hashed_is_refused_before_a_byte_is_copied(tmp_path: Path) -> None:
    source = write(tmp_path / "s", {})
    with (source / "huge").open("wb") as file:
        file.truncate(2**42)
    assert refusal(source, tmp_path / "w")[0] == "workspace.too-large"
    assert not (tmp_path / "w").exists()


def test_a_tree_deeper_than_any_path_and_any_stack_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    folder = os.open(root, os.O_RDONLY)
    for _ in range(1050):
        os.mkdir("deep", dir_fd=folder)
        inner = os.open("deep", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    (root / "out").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    assert snapshot(root).entries[-1].path == "out"
    remove(root)
    remove(root)
    assert [place.name for place in tmp_path.iterdir()] == ["kept"]
