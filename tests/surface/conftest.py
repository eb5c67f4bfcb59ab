"""The quickstart, run once a session by the real command on the real agent; each test works on a copy."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen

import pytest

from tests.lab import Lab

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart.yaml"


@dataclass(frozen=True, slots=True)
class Quickstart:
    """A laboratory with the evidence of it, and what the command said."""

    lab: Lab
    said: "CompletedProcess[str]"

    def folder(self, mission: str) -> Path:
        return self.lab.attempts()[f"{mission}.codex.r1.1"].folder


@contextmanager
def started(lab: Lab, *words: str) -> "Iterator[Popen[str]]":
    """The command, left running, with its stdout to read; killed if the test leaves it alive."""
    with Popen(
        [sys.executable, "-m", "proctor", *words],
        env={**os.environ, "PROCTOR_ROOT": str(lab.root), **lab.env},
        cwd=lab.folder,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="session")
def _ran(tmp_path_factory: pytest.TempPathFactory) -> Quickstart:
    lab = Lab(tmp_path_factory.mktemp("quickstart"))
    return Quickstart(lab, lab.proctor("run", str(EXAMPLE)))


@pytest.fixture
def quickstart(_ran: Quickstart, tmp_path: Path) -> Quickstart:
    lab = Lab(tmp_path)
    shutil.copytree(_ran.lab.root, lab.root)
    return Quickstart(lab, _ran.said)
