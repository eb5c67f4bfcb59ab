"""The quickstart, run once per session by the real command on the real agent; each test works on a copy."""

import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen
from typing import Any

import pytest

from proctor.surface.cli.app import answer
from tests.lab import Lab
from tests.made_once import made_once

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart.yaml"


@dataclass(frozen=True, slots=True)
class Quickstart:
    """A laboratory with the evidence of it, and what the command said."""

    lab: Lab
    said: "CompletedProcess[str]"

    def folder(self, mission: str) -> Path:
        return self.lab.attempts()[f"{mission}.codex.r1.1"].folder


@pytest.fixture(scope="session", autouse=True)
def _no_width() -> Iterator[None]:
    """Output is as wide as where there is no terminal, whatever the tests run in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        yield


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said, and its exit code."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def ask(lab: Lab, *words: str) -> Said:
    """The command in this process, which takes a tenth of the time of one of its own."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with redirect_stdout(stdout), redirect_stderr(stderr):
        # The runtimes of a user have no evidence root.
        code = answer(words if words[0] == "runtimes" else [*words, "--root", str(lab.root)])
    return Said(code, stdout.getvalue(), stderr.getvalue())


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
    def run(folder: Path) -> None:
        said = Lab(folder).proctor_process("run", str(EXAMPLE))
        (folder / "said.json").write_text(json.dumps([said.returncode, said.stdout, said.stderr]))

    folder = made_once(tmp_path_factory, "quickstart", run)
    return Quickstart(Lab(folder), CompletedProcess((), *json.loads((folder / "said.json").read_text())))


@pytest.fixture
def quickstart(_ran: Quickstart, tmp_path: Path) -> Quickstart:
    lab = Lab(tmp_path)
    shutil.copytree(_ran.lab.root, lab.root)
    return Quickstart(lab, _ran.said)


LOOKS = [
    ("campaign", "status"),
    ("campaign", "list"),
    ("campaign", "report"),
    ("report",),
    ("validate", "--strict"),
    ("campaign", "publish-check"),
    ("attempt", "list"),
    ("gc", "--dry-run", "--older-than", "30d"),
]
"""Every command that only looks at a root."""
