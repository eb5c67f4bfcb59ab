"""A patch is applied to a tree that stays as it is: only the changed files are written, to a folder of their own."""

from pathlib import Path

import pytest

from proctor.errors import InputError
from proctor.workspace.patch import apply_patch, lay_patch
from proctor.workspace.snapshot import snapshot

EDIT = "--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n"
REMOVE = "diff --git a/old.txt b/old.txt\ndeleted file mode 100644\n--- a/old.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n"
ADD = (
    "diff --git a/lib/new.py b/lib/new.py\nnew file mode 100644\n"
    "--- /dev/null\n+++ b/lib/new.py\n@@ -0,0 +1 @@\n+n = 1\n"
)
RENAME = "diff --git a/sub/a b.txt b/sub/c.txt\nsimilarity index 100%\nrename from sub/a b.txt\nrename to sub/c.txt\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    (folder / "sub").mkdir(parents=True)
    for name, text in {"calc.py": "a = 1\n", "old.txt": "old\n", "sub/a b.txt": "b\n", "same": "same\n"}.items():
        (folder / name).write_text(text)
    return folder


def files_in(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.requirement("probe.roles")
@pytest.mark.parametrize("is_in_repository", [False, True])
def test_layer_has_the_changed_files_and_the_tree_stays_as_it_is(
    base: Path, tmp_path: Path, is_in_repository: bool
) -> None:
    if is_in_repository:
        (tmp_path / ".git").mkdir()
    into = tmp_path / "into"
    into.mkdir()
    before = snapshot(base).digest
    layer = lay_patch((EDIT + REMOVE + ADD + RENAME).encode(), base=base, into=into)
    assert files_in(layer.folder) == {"calc.py": "a = 2\n", "lib/new.py": "n = 1\n", "sub/c.txt": "b\n"}
    assert sorted(layer.removed) == ["old.txt", "sub/a b.txt"]
    assert snapshot(base).digest == before


@pytest.mark.parametrize(
    ("patch", "what"),
    [
        (EDIT.replace("-a = 1", "-a = 9"), "patch does not apply"),
        (EDIT.replace("calc.py", "missing.py"), "No such file"),
        (ADD.replace("lib/new.py", "../../new.py"), "invalid path"),
        ("no patch\n", "No valid patches in input"),
        ("", "No valid patches in input"),
    ],
)
def test_patch_that_does_not_apply_is_refused(base: Path, tmp_path: Path, patch: str, what: str) -> None:
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(InputError, match=what) as refused:
        lay_patch(patch.encode(), base=base, into=into)
    assert refused.value.code == "workspace.patch"


def test_patch_does_not_write_through_a_link_of_the_tree(base: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (base / "link").symlink_to(outside)
    into = tmp_path / "into"
    into.mkdir()
    lay_patch(ADD.replace("lib/new.py", "link/new.py").encode(), base=base, into=into)
    assert files_in(outside) == {}


def test_apply_patch_changes_the_tree_itself_and_removes_what_it_empties(tmp_path: Path) -> None:
    tree, layer = tmp_path / "tree", tmp_path / "layer"
    (tree / "old").mkdir(parents=True)
    layer.mkdir()
    (tree / "old" / "gone").write_text("gone\n")
    (tree / "kept").write_text("kept\n")
    patch = (
        "diff --git a/old/gone b/old/gone\ndeleted file mode 100644\n"
        "--- a/old/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
        "diff --git a/new/run b/new/run\nnew file mode 100755\n--- /dev/null\n+++ b/new/run\n@@ -0,0 +1 @@\n+run\n"
        "diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+kept\n"
        "\\ No newline at end of file\n"
    )
    apply_patch(patch.encode(), tree=tree, layer=layer)
    assert sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*")) == ["kept", "link", "new", "new/run"]
    assert (tree / "link").readlink() == Path("kept")
    assert (tree / "new" / "run").stat().st_mode & 0o100


def test_apply_patch_refuses_a_path_through_a_link(tmp_path: Path) -> None:
    tree, layer, outside = tmp_path / "tree", tmp_path / "layer", tmp_path / "outside"
    for folder in (tree, layer, outside):
        folder.mkdir()
    (tree / "link").symlink_to(outside)
    patch = b"diff --git a/link/x b/link/x\nnew file mode 100644\n--- /dev/null\n+++ b/link/x\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(InputError, match="is a link, not a folder"):
        apply_patch(patch, tree=tree, layer=layer)
    assert list(outside.iterdir()) == []
