"""Globs over paths: refused where they are none, and matched in linear time whatever is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.spec.glob import compile_glob, fits


@pytest.mark.parametrize("glob", ["[z-a]", "[]", "[!]", "[a--b]", "src/[9-0]/**"])
def test_what_is_no_glob_is_refused(glob: str) -> None:
    with pytest.raises(ValueError, match=r"contains no character|comes after"):
        compile_glob(glob)


@pytest.mark.parametrize(
    ("glob", "path"),
    [("**/" * 12 + "x", "a/" * 2000 + "y"), ("*a" * 14 + "c", "a" * 4000), ("?*" * 50 + "/", "b" * 4000)],
)
def test_no_glob_takes_longer_than_the_path_is_long(glob: str, path: str) -> None:
    # A matcher that goes back would not come to an end here.
    assert fits(path, glob) is False


@pytest.mark.parametrize(
    ("path", "glob", "is_one"),
    [
        ("a/b", "a[/]b", False),
        ("a/b", "a[!x]b", False),
        ("a.b", "a[+-9]b", True),
        ("a]b", "a[]]b", True),
        ("a-b", "a[x-]b", True),
        ("a^b", "a[x^]b", True),
        ("a\\b", "a[\\]b", True),
        ("line\nbreak", "line*", True),
        ("caf\u00e9/\udcff", "caf\u00e9/?", True),
        ("\udcff", "\udcfe", False),
    ],
)
def test_characters_are_themselves_and_a_slash_is_never_one_of_several(path: str, glob: str, is_one: bool) -> None:
    assert fits(path, glob) is is_one


@given(st.text(st.characters(exclude_characters="*?[/")))
def test_a_path_fits_itself(path: str) -> None:
    assert fits(path, path)
    assert fits(f"src/{path}", "src/")
