"""`proctor demo`: the quickstart, shipped inside the package."""

import json
from pathlib import Path

import pytest

from proctor.surface.cli.demo import QUICKSTART
from tests.lab import Lab

pytestmark = [pytest.mark.trust, pytest.mark.requirement("surface.package")]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.real_agent
def test_demo_verifies_the_fix_and_not_the_claim(lab: Lab) -> None:
    done = lab.proctor("demo", "--json")

    assert done.returncode == 0, done.stderr
    attempts = json.loads(done.stdout)["attempts"]
    verified = {row["missionId"]: row["summary"]["verified"] for row in attempts}
    assert verified == {"ask": None, "shell": None, "fix": True, "claim": False}


@pytest.mark.parametrize(
    "path",
    ["quickstart.yaml", "workspaces/greeting", *(f"scripts/{name}.yaml" for name in ("ask", "shell", "fix", "claim"))],
)
def test_quickstart_of_the_examples_is_the_shipped_one(path: str) -> None:
    assert (EXAMPLES / path).resolve() == QUICKSTART.parent / path


def test_demo_without_its_extra_names_what_to_install(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("proctor.runtime.executable.bundled_file", lambda *_: None)
    done = lab.proctor("demo")

    assert done.returncode == 3
    assert "pip install 'proctor-harness[codex]'" in " ".join(done.stderr.split())
