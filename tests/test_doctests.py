"""The examples in docstrings are true.

One test per module, listed by name: with `--doctest-modules` every worker would import and search all of `src`.
"""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("src/proctor", "tools", "examples/plugins/notes/src/proctor_notes", "examples/plugins/pi/src/proctor_pi")


def modules_with_examples() -> list[str]:
    found = []
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            if ">>> " in file.read_text():
                parts = file.relative_to((ROOT / package).parent).with_suffix("").parts
                found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(found)


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings_hold(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0, "`>>>` is in a place where doctest does not look"
    assert result.failed == 0
