"""Docstrings that every source file must have."""

import ast
from pathlib import Path

SOURCE_ROOT = Path(__file__).parent.parent / "src"


def test_every_module_has_a_docstring() -> None:
    assert [
        str(path.relative_to(SOURCE_ROOT))
        for path in sorted(SOURCE_ROOT.rglob("*.py"))
        if (source := path.read_text()) and ast.get_docstring(ast.parse(source)) is None
    ] == []
