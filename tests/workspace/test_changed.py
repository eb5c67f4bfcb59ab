"""The paths that a workspace.diff tells of are those that were changed, whatever they are called."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.workspace.changed import ChangedPaths, changed_in
from proctor.workspace.diff import diff

NAMES = st.text('ab "\\\n\té(#-+', min_size=1, max_size=6).filter(lambda name: name.strip(".") != "")
TREES = st.dictionaries(
    NAMES, st.sampled_from([b"", b"one\n", b"diff --git a/x b/x\n# new fifo y\n", b"\0\xff"]), max_size=4
)


@settings(max_examples=60)
@given(TREES, TREES)
def test_what_is_read_back_is_what_was_changed(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    with TemporaryDirectory() as folder:
        trees = []
        for name, files in (("base", before), ("now", after)):
            (tree := Path(folder, name)).mkdir()
            for path, data in files.items():
                (tree / path).write_bytes(data)
            trees.append(tree)
        told = diff(*trees).decode()
    changed = sorted({path for path in {*before, *after} if before.get(path) != after.get(path)}, key=os.fsencode)
    assert changed_in(told) == ChangedPaths(paths=tuple(changed))


def test_folders_pipes_and_modes_are_read_back_too(tmp_path: Path) -> None:
    base, now = tmp_path / "base", tmp_path / "now"
    for tree in (base, now):
        tree.mkdir()
        (tree / "run.sh").touch()
    (now / "run.sh").chmod(0o755)
    (now / "made (by hand)").mkdir()
    (now / 'said "so"').mkdir()
    os.mkfifo(now / "pipe")
    os.mkfifo(now / "two\nlines (so)")
    Path(os.fsdecode(os.fsencode(now) + b"/\xff.txt")).touch()
    names = ("made (by hand)", "pipe", "run.sh", 'said "so"', "two\nlines (so)", "\udcff.txt")
    assert changed_in(diff(base, now).decode()) == ChangedPaths(paths=names)


def test_a_diff_that_was_cut_says_so(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("text\n" * 100)
    told = changed_in(diff(None, tmp_path, max_total_bytes=700).decode())
    assert told == ChangedPaths(paths=("a",), is_cut=True)
