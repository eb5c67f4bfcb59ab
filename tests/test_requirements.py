"""Requirements and tests name each other: a row without a test, or a citation of no row, fails."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Rows are added and reworded, never removed.
FEWEST_ROWS = 127


def test_requirement_rows_are_never_removed() -> None:
    rows = [row["id"] for row in tomllib.loads((HERE / "requirements.toml").read_text())["requirement"]]
    assert len(set(rows)) == len(rows)
    assert len(rows) >= FEWEST_ROWS


@pytest.mark.long
def test_every_requirement_is_cited_or_listed_as_not_built() -> None:
    rows = {row["id"] for row in tomllib.loads((HERE / "requirements.toml").read_text())["requirement"]}
    listed = tomllib.loads((HERE / "not_built.toml").read_text())
    not_built, partly = set(listed["not_built"]), set(listed["partly"])
    cited = set(citations())
    assert sorted((cited | not_built | partly) - rows) == [], "named here, but no row"
    assert sorted(not_built & cited) == [], "listed as not built, but cited"
    assert sorted(partly - cited) == [], "listed as partly built, but no test cites it"
    assert sorted(rows - cited - not_built) == [], "rows with no test"


def citations() -> Iterator[str]:
    """Ids in @pytest.mark.requirement(...), read and not run."""
    for file in [file for folder in ("tests", "accept", "examples") for file in (HERE.parent / folder).rglob("*.py")]:
        source = file.read_text()
        for node in ast.walk(ast.parse(source)) if ".requirement(" in source else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requirement":
                yield from (str(arg.value) for arg in node.args if isinstance(arg, ast.Constant))
