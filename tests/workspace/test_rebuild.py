"""Rebuilding a tree from its diff gives the same digest, or says why it cannot."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.workspace.diff import diff
from proctor.workspace.rebuild import RebuildError, rebuild
from proctor.workspace.snapshot import snapshot

NAMES = st.sampled_from(["a", "b b", "é", "dir/a", "dir/b", "dir/sub/c", "x/y/z"])
TEXTS = st.sampled_from(["", "one\n", "one\ntwo\n", "no end", "\n\n", "# cut: 1\n", "-- a/b\n"])
TREES = st.tuples(
    st.dictionaries(NAMES, st.tuples(TEXTS, st.booleans())), st.sets(st.sampled_from(["e", "dir", "e/f"]))
)


def write_tree(root: Path, tree: tuple[dict[str, tuple[str, bool]], set[str]]) -> None:
    root.mkdir()
    for folder in tree[1]:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name, (text, is_executable) in tree[0].items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
        (root / name).chmod(0o755 if is_executable else 0o644)


@pytest.mark.long
@pytest.mark.requirement("probe.check")
@settings(max_examples=60, deadline=None)
@given(base=TREES, now=TREES)
def test_rebuilt_tree_has_the_digest_of_the_original(
    base: tuple[dict[str, tuple[str, bool]], set[str]], now: tuple[dict[str, tuple[str, bool]], set[str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        write_tree(top / "base", base)
        write_tree(top / "now", now)
        (top / "layer").mkdir()
        text = diff(top / "base", top / "now").decode()
        rebuild(text, tree=shutil.copytree(top / "base", top / "tree"), layer=top / "layer")
        assert snapshot(top / "tree").digest == snapshot(top / "now").digest


@pytest.mark.requirement("probe.check")
def test_rebuild_says_why_a_tree_cannot_be_rebuilt(tmp_path: Path) -> None:
    base, now = tmp_path / "base", tmp_path / "now"
    base.mkdir()
    now.mkdir()
    (now / "big").write_text("x\n" * 200_000)
    for text, why in (
        (diff(base, now).decode(), "too large to show"),
        (diff(base, now, max_total_bytes=10).decode(), "truncated: 1 changed paths left out"),
        ("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", "workspace.diff does not apply"),
    ):
        layer = tmp_path / "layer"
        shutil.rmtree(layer, ignore_errors=True)
        layer.mkdir()
        with pytest.raises(RebuildError, match=why):
            rebuild(text, tree=base, layer=layer)
