import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proctor.canonical import digest_bytes
from proctor.workspace.changed import has_edits
from proctor.workspace.diff import diff
from proctor.workspace.hunks import render_hunks
from proctor.workspace.snapshot import snapshot

from .trees import Tree, read, trees, write


def apply(patch: bytes, *, to: Path) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.environ["PATH"], "HOME": str(to), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CEILING_DIRECTORIES": "/"}
    command = ["git", "apply", "--whitespace=nowarn", "--allow-empty", "-"]
    return subprocess.run(command, cwd=to, input=patch, env=env, capture_output=True, timeout=60)


@pytest.mark.long
@given(base=trees(), now=trees())
@settings(max_examples=40, deadline=None)
def test_git_applies_the_diff_of_any_two_text_trees(base: Tree, now: Tree) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        was, became = write(root / "was", base), write(root / "became", now)
        patch = diff(was, became)
        assert patch.decode().encode() == patch
        assert patch == diff(was, became)
        assert bool(patch) == (snapshot(was).digest != snapshot(became).digest)
        assert not has_edits(diff(was, was).decode())
        done = apply(patch, to=was)
        assert (done.returncode, done.stderr) == (0, b"")
        assert read(was) == read(became)


@given(old=st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n"])), new=st.lists(st.sampled_from([b"a\n", b"b\n", b"d\n"])))
@example(old=[b"a\n"] * 9, new=[b"a\n"] * 12)  # alike from both ends, the ends overlapping
@settings(deadline=None)
def test_the_lines_of_hunks_are_those_that_were_and_became(old: list[bytes], new: list[bytes]) -> None:
    body = [line for line in render_hunks(b"".join(old), b"".join(new)).splitlines() if not line.startswith(b"@@")]
    removed = sorted(line[1:] for line in body if line.startswith(b"-"))
    added = sorted(line[1:] for line in body if line.startswith(b"+"))
    kept = sorted(line[1:] for line in body if line.startswith(b" "))
    was, became = sorted(line.strip() for line in old), sorted(line.strip() for line in new)
    assert len(was) - len(removed) == len(became) - len(added) >= len(kept)
    assert all(
        part.count(line) <= whole.count(line) for part, whole in ((removed, was), (added, became)) for line in part
    )


@pytest.mark.requirement("attempt.workspace")
def test_a_diff_reads_as_git_writes_it(tmp_path: Path) -> None:
    was = write(
        tmp_path / "was", {"greet.py": b"name = 'Bob'\nprint(name)\n", "gone": b"x\n", "run": b"#!\n", "l": "run"}
    )
    now = write(
        tmp_path / "now",
        {"greet.py": b"name = 'Ada'\nprint(name)\n", "run*": b"#!\n", "new.txt": b"no end", "l": "gone", "logs": None},
    )
    assert diff(was, now).decode() == (
        "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "diff --git a/greet.py b/greet.py\n--- a/greet.py\n+++ b/greet.py\n"
        "@@ -1,2 +1,2 @@\n-name = 'Bob'\n+name = 'Ada'\n print(name)\n"
        "diff --git a/l b/l\n--- a/l\n+++ b/l\n@@ -1 +1 @@\n"
        "-run\n\\ No newline at end of file\n+gone\n\\ No newline at end of file\n"
        "# new folder logs (empty)\n"
        "diff --git a/new.txt b/new.txt\nnew file mode 100644\n--- /dev/null\n+++ b/new.txt\n"
        "@@ -0,0 +1 @@\n+no end\n\\ No newline at end of file\n"
        "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n"
    )


def test_what_is_no_text_is_told_by_size_and_digest_and_git_will_not_apply_it(tmp_path: Path) -> None:
    was = write(tmp_path / "was", {"pic": b"\x00\x01"})
    now = write(tmp_path / "now", {"pic": b"\x00\x02\x03", "latin": b"caf\xe9\n"})
    patch = diff(was, now)
    latin, one, two = digest_bytes(b"caf\xe9\n"), digest_bytes(b"\x00\x01"), digest_bytes(b"\x00\x02\x03")
    assert patch.decode() == (
        "diff --git a/latin b/latin\nnew file mode 100644\nBinary files /dev/null and b/latin differ\n"
        f"# b/latin: 5 bytes, {latin}, not text\n"
        "diff --git a/pic b/pic\nBinary files a/pic and b/pic differ\n"
        f"# a/pic: 2 bytes, {one}, not text\n"
        f"# b/pic: 3 bytes, {two}, not text\n"
    )
    assert apply(patch, to=was).returncode != 0


def test_a_file_too_large_to_show_and_a_diff_too_large_to_keep_say_so(tmp_path: Path) -> None:
    now = write(tmp_path / "now", {"a": b"1\n", "big": b"x" * 101, "c": b"2\n", "d": b"3\n"})
    whole = diff(None, now, max_file_bytes=100).decode()
    assert "# b/big: 101 bytes" in whole
    assert "too large to show" in whole
    cut = diff(None, now, max_file_bytes=100, max_total_bytes=whole.index("diff --git a/c")).decode()
    assert cut == whole[: whole.index("diff --git a/c")] + "# cut: 2 changed paths left out, from c on\n"


def test_texts_that_no_matcher_could_compare_in_time_are_still_applied_whole(tmp_path: Path) -> None:
    lines = [b"%d\n" % number for number in range(9000)]
    was = write(tmp_path / "was", {"f": b"same\n" + b"".join(lines) + b"end\n"})
    now = write(tmp_path / "now", {"f": b"same\n" + b"other\n".join(lines) + b"end\n"})
    patch = diff(was, now)
    assert patch.count(b"@@ -") == 1
    shutil.copytree(was, tmp_path / "again")
    assert apply(patch, to=tmp_path / "again").returncode == 0
    assert read(tmp_path / "again") == read(now)
