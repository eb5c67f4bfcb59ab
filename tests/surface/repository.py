"""A small repository of somebody who begins."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

CODE = {
    "calc.py": "def add(a, b):\n    return a + b\n",
    "tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
}


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def make_repository(folder: Path, files: Mapping[str, str] = CODE) -> Path:
    """With all of it in one commit."""
    write(folder, files)
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "-c", "user.name=A", "-c", "user.email=a@example.invalid", "commit", "--quiet", "--message", "one")


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout
