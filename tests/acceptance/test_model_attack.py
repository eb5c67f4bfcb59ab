"""Another local user attacks the scripted model while a campaign runs: the campaign ends as without the attack."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from proctor.evidence.artifacts import AttemptRecord, ProcessRecord
from proctor.evidence.digests import read_stamped
from proctor.evidence.layout import RootPaths
from proctor.evidence.reader import read_artifact
from tests.lab import Lab, jsonl, mission, report_of, say_done

ATTACKER = Path(__file__).with_name("model_attacker.py")
MISSIONS = ("one", "two", "three", "four")
DEADLINE_S = 150
FILES = 256
"""Open files that the attacked Proctor may have: fewer than the attacker has connections."""


def write_campaign(lab: Lab, gate: Path) -> Path:
    """Four scripts with requests before and after a command that ends only when the gate is open."""
    wait = {"command": f"until [ -e {gate} ]; do sleep 0.05; done", "wait": "60s"}
    return lab.write_spec(
        [
            mission(
                name,
                {"run": wait},
                {"run": f"echo {name} > found.txt"},
                {"do": [{"say": "I found it. "}, {"delay": "200ms"}, say_done(name)]},
                probes=[{"kind": "headless_run", "command": f"grep -qx {name} found.txt"}],
            )
            for name in MISSIONS
        ],
        schedule={"parallel": 4},
    )


def run(lab: Lab, gate: Path, *, attacked: bool) -> tuple["subprocess.CompletedProcess[str]", Any]:
    """Run the campaign in a process with few open files, and meanwhile the attack, whose answers are returned."""
    spec = write_campaign(lab, gate)
    proctor = subprocess.Popen(
        [sys.executable, "-m", "proctor", "run", str(spec), "--json"],
        env={**os.environ, "PROCTOR_ROOT": str(lab.root)},
        cwd=lab.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    resource.prlimit(proctor.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
    attempts = [f"{name}.codex.r1.{n}" for name in MISSIONS for n in (1, 2)]
    attack = [sys.executable, str(ATTACKER), str(proctor.pid), str(gate), *attempts]
    running = [proctor]
    try:
        if attacked:
            running.append(subprocess.Popen(attack, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        stdout, stderr = proctor.communicate(timeout=DEADLINE_S)
        answers = json.loads(running[-1].communicate(timeout=DEADLINE_S)[0]) if attacked else None
    finally:
        for process in running:
            process.kill()
            process.wait()
    return subprocess.CompletedProcess(proctor.args, proctor.returncode, stdout, stderr), answers


def results(lab: Lab) -> Mapping[str, Any]:
    """What each attempt came to, without what differs between any two runs."""
    return {
        name: (
            *(report.outcome, report.code, report.verified),
            read_artifact(paths.attempt, AttemptRecord).trial_digest,
            [(call["name"], call["input"]["command"], call["status"]) for call in jsonl(paths.tool_calls)],
            paths.workspace_diff.read_text(),
        )
        for name, paths in lab.attempts().items()
        for report in [report_of(paths)]
    }


def files_holding(lab: Lab, text: bytes) -> list[str]:
    return [str(file) for file in lab.root.rglob("*") if file.is_file() and text in file.read_bytes()]


@pytest.mark.real_agent
@pytest.mark.proctor_process
@pytest.mark.long
@pytest.mark.requirement("model.scripted")
def test_a_campaign_ends_under_attack_as_without_it(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    gate, calm_lab = lab.folder / "gate", Lab(tmp_path_factory.mktemp("calm"))
    done, answers = run(lab, gate, attacked=True)
    calm, _ = run(calm_lab, gate, attacked=False)
    assert (done.returncode, calm.returncode) == (0, 0), done.stderr + calm.stderr
    assert "Traceback" not in done.stderr
    assert results(lab) == results(calm_lab)
    assert {*answers["guess"]} <= {"404", "closed"}, "no guess was answered"
    assert {*answers["huge"], *answers["garbage"]} <= {"400", "404", "closed", "silent"}
    # The run shows the attack.
    [run_paths], [calm_paths] = (list(RootPaths(each.root).runs()) for each in (lab, calm_lab))
    [record] = [each for each in run_paths.runtimes() if each.folder.name == "model"]
    facts = read_stamped(record.record, ProcessRecord).facts
    counts = facts["refusedClients"].value
    assert {"unknown-path", "malformed", "crowded"} <= counts.keys()
    steps = [row["frame"] for row in jsonl(record.frames)][1:]
    assert len(steps) == min(sum(counts.values()), 500)
    assert {step["step"] for step in steps} == {"model client refused"}
    assert any(step["detail"].get("path") == "/a/one.codex.r1.1/v1/responses" for step in steps)
    assert f"the scripted model refused {sum(counts.values())} clients" in done.stderr
    assert "refused" not in calm.stderr
    assert not any(each.folder.name == "model" for each in calm_paths.runtimes())
    # The tokens are in no file, and evidence is derived from masked frames to the same bytes.
    for each in (lab, calm_lab):
        each.assert_all_evidence_is_valid()
        frames = [paths.frames.read_bytes() for paths in each.attempts().values()]
        assert all(b"proctor_model_[redacted:scan:model]/v1" in data for data in frames)
        assert files_holding(each, b"proctor_model_") == files_holding(each, b"proctor_model_[redacted:scan:model]")
