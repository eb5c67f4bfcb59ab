"""A campaign on the real pi: its evidence is valid, can be derived again, and contains no secret."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.runtime.base import Executable

SECRET = "hunter2-9f31c7d2e8"
LEAST = 6


def proctor(*words: str, folder: Path) -> Any:
    done = subprocess.run(
        [Path(sys.executable).with_name("proctor"), *words, "--json"],
        cwd=folder,
        env={**os.environ, "MY_SECRET": SECRET},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    return json.loads(done.stdout)


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    said = f"The word is {SECRET}, I am told."
    steps = [
        {"run": 'printf "got ${MY_SECRET:0:7}"; sleep 0.3; echo "${MY_SECRET:7}"'},
        {"say": {"text": said, "chunk_chars": 3}},
        {"say": 'PROCTOR-RESULT: {"done": true, "answer": "42"}'},
    ]
    (tmp_path / "script.yaml").write_text(yaml.safe_dump({"version": 1, "steps": [*steps[:1], {"do": steps[1:]}]}))
    spec = {
        "version": 1,
        "campaign": "pi",
        "missions": [{"id": "m", "prompt": "Do it.", "script": "script.yaml", "expect": {"answer": "42"}}],
        "flows": [{"id": "f", "runtime": ["pi"], "persistence": "persistent", "forward": ["MY_SECRET"]}],
        "secrets": ["MY_SECRET"],
        "model": {"provider": "scripted"},
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    (tmp_path / "proctor.toml").write_text('plugins = ["pi"]\n')
    return tmp_path


@pytest.mark.requirement("runtime.strategy.ids")
def test_campaign_evidence_is_valid_and_contains_no_secret(campaign: Path, program: Executable) -> None:
    proctor("run", "spec.yaml", folder=campaign)

    proctor("validate", "--strict", folder=campaign)
    [attempt] = (campaign / ".proctor" / "runs").glob("*/attempts/*")
    pieces = [SECRET[at : at + LEAST].encode() for at in range(len(SECRET) - LEAST + 1)]
    files = [file for file in (campaign / ".proctor").rglob("*") if file.is_file()]
    assert {file.name for file in files if any(piece in file.read_bytes() for piece in pieces)} == set()
    transcript = [json.loads(line) for line in (attempt / "transcript.jsonl").read_text().splitlines()]
    assert "The word is [redacted:MY_SECRET], I am told." in {line["text"] for line in transcript}
    reference = json.loads((attempt / "runner.ref.json").read_text())
    assert reference["runtimeId"] == "pi"
    assert reference["facts"]["version"]["value"] == program.version
