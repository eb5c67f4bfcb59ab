"""The house's sizes: what grows past them is to be cut where it is two things."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "accept", "bench", "chaos", "browser", "examples")
FILE_LINES = 400
FUNCTION_LINES = 80


def sources() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def test_no_file_is_longer_than_400_lines() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}

    assert {path: lines for path, lines in sizes.items() if lines > FILE_LINES} == {}


def test_no_function_is_longer_than_80_lines() -> None:
    long = [
        (str(path.relative_to(ROOT)), node.name, node.end_lineno - node.lineno + 1)
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES
    ]

    assert long == []


def test_every_module_says_in_a_line_what_it_is() -> None:
    assert [
        str(path.relative_to(ROOT))
        for path in sources()
        if path.is_relative_to(ROOT / "src")
        and (source := path.read_text())
        and ast.get_docstring(ast.parse(source)) is None
    ] == []
