"""The excerpt of a diff: source files first, generated ones folded, bounded whatever the diff contains."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.workspace.diff import diff
from proctor.workspace.excerpt import excerpt, file_diffs, last_lines

pytestmark = pytest.mark.trust


def new_file(name: str, *lines: str) -> str:
    body = "".join(f"+{line}\n" for line in lines)
    header = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
    return f"{header}@@ -0,0 +1,{len(lines)} @@\n{body}"


NOISE = (
    new_file("node_modules/x/index.js", *"abc")
    + new_file("package-lock.json", *map(str, range(500)))
    + new_file("src/__pycache__/calc.pyc", "x")
    + new_file("static/app.min.js", "x" * 90)
    + new_file("static/bundle.js", "y" * 5000)
)


def test_excerpt_shows_source_files_and_counts_generated_ones() -> None:
    found = excerpt(NOISE + new_file("src/calc.py", "a = 1"), max_lines=20, max_files=5)
    assert found is not None
    assert [(each.file, each.lines) for each in found.files] == [("src/calc.py", ("@@ -0,0 +1,1 @@", "+a = 1"))]
    assert (found.generated_files, found.generated_lines) == (5, 506)


def test_excerpt_leaves_lines_to_the_file_after_a_large_one() -> None:
    large = new_file("a.py", *map(str, range(1000)))
    found = excerpt(large + new_file("b.py", "b = 1"), max_lines=20, max_files=5)
    assert found is not None
    assert [(each.file, len(each.lines), each.lines_left_out) for each in found.files] == [
        ("a.py", 10, 991),
        ("b.py", 2, 0),
    ]


def test_excerpt_counts_the_files_that_it_does_not_show() -> None:
    found = excerpt("".join(new_file(f"f{n}.py", "x") for n in range(9)), max_lines=20, max_files=5)
    assert found is not None
    assert (len(found.files), found.files_left_out) == (5, 4)
    assert excerpt("", max_lines=20, max_files=5) is None


def test_content_of_a_file_is_never_taken_for_another_file(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        folder.mkdir()
    (after / "a b.py").write_text("x\rdiff --git a/etc b/etc\n--- a/etc\n+++ b/etc\n\u2028# new file etc\n")
    [one] = file_diffs(diff(before, after).decode())
    assert (one.file, one.added, one.removed) == ("a b.py", 4, 0)


def test_name_that_is_not_text_is_shown_quoted(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        folder.mkdir()
    (after / os.fsdecode(b"caf\xe9.py")).write_text("x\n")
    found = excerpt(diff(before, after).decode(), max_lines=9, max_files=9)
    assert found is not None
    assert msgspec.json.encode([each.file for each in found.files]) == b'["\\"caf\\\\351.py\\""]'


@given(text=st.text(alphabet=st.characters(codec="utf-8")), lines=st.integers(0, 30))
def test_excerpt_of_any_text_is_bounded(text: str, lines: int) -> None:
    found = excerpt(text + NOISE + text, max_lines=lines, max_files=3, max_chars=40)
    assert found is not None
    shown = [line for each in found.files for line in each.lines]
    assert len(found.files) <= 3
    assert len(shown) <= lines
    assert all(len(line) <= 40 for line in shown)


@given(text=st.text(alphabet=st.characters(codec="utf-8")), lines=st.integers(0, 9))
def test_last_lines_of_any_output_are_bounded_and_have_no_escape_sequence(text: str, lines: int) -> None:
    found = last_lines(f"\x1b[31m{text}\x1b[0m\x1b]0;title\x07", max_lines=lines, max_chars=30)
    assert len(found) <= lines
    assert all(len(line) <= 30 and "\n" not in line and "\r" not in line for line in found)
