"""A laboratory: writes specs and scripts, runs campaigns on the real agent, and reads what they left."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import yaml

from proctor.attempt.recheck import examine_run
from proctor.campaign.agents import Between
from proctor.campaign.run import CampaignResult, run_campaign
from proctor.campaign.stops import StopSignals
from proctor.campaign.watch import CampaignWatcher
from proctor.event.row import Row
from proctor.evidence.artifacts import AttemptReport, RunnerRef
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths
from proctor.runtime.base import Decide
from proctor.spec.load import load_spec
from proctor.surface.cli.app import answer

DONE = 'PROCTOR-RESULT: {"done": true, "answer": "%s"}'
DEADLINE_S = 150


def say_done(answer: str = "") -> dict[str, str]:
    """The step with which an agent claims to be done."""
    return {"say": DONE % answer}


def tried_once(trials: int) -> dict[str, Any]:
    """The schedule by which so many trials all begin together, and none is tried again, whatever becomes of another."""
    return {"parallel": trials, "retries": 0, "longest_wait": "1ms"}


def mission(id_: str, *steps: Mapping[str, Any], prompt: str = "Do it.", **more: Any) -> dict[str, Any]:
    """A mission together with its script, which the lab writes to a file of its own."""
    return {"id": id_, "prompt": prompt, "steps": list(steps), **more}


@dataclass(slots=True)
class Lab:
    """Everything lies under one folder of the test's own."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    is_other_agent_allowed: bool = False

    @property
    def root(self) -> Path:
        return self.folder / "evidence"

    def write_spec(
        self, missions: Sequence[Mapping[str, Any]], *, flow: Mapping[str, Any] | None = None, **top: Any
    ) -> Path:
        """A spec file with its scripts beside it."""
        place = self.folder / "spec"
        place.mkdir(exist_ok=True)
        rows = []
        for each in missions:
            if not each["steps"]:  # a real model has no script
                rows.append({key: value for key, value in each.items() if key != "steps"})
                continue
            script = place / f"{each['id']}.yaml"
            script.write_text(yaml.safe_dump({"version": 1, "steps": each["steps"]}))
            rows.append({**{key: value for key, value in each.items() if key != "steps"}, "script": script.name})
        whole = {
            "version": 1,
            "campaign": "lab",
            "missions": rows,
            "flows": [{"id": "codex", "runtime": ["codex_app_server"], **(flow or {})}],
            **top,
            # What one attempt comes to is what most want to see.
            "schedule": {"retries": 0, **top.get("schedule", {})},
        }
        file = place / "spec.yaml"
        file.write_text(yaml.safe_dump(whole, sort_keys=False))
        return file

    def workspace(self, name: str, files: Mapping[str, str]) -> str:
        """A folder to copy, named as a spec names it."""
        place = self.folder / "spec" / name
        place.mkdir(parents=True)
        for path, text in files.items():
            (place / path).write_text(text)
        return name

    def run(
        self,
        spec: Path,
        *,
        stops: StopSignals | None = None,
        watcher: CampaignWatcher | None = None,
        between: Between | None = None,
        is_scratch_kept: bool = False,
        resume: CampaignPaths | None = None,
        is_unjudgeable_allowed: bool = False,
        decide: Decide | None = None,
    ) -> CampaignResult:
        """The campaign in this process, bounded."""

        async def bounded() -> CampaignResult:
            with anyio.fail_after(DEADLINE_S):
                return await run_campaign(
                    load_spec(spec),
                    root=self.root,
                    watcher=watcher or CampaignWatcher(),
                    stops=stops,
                    between=between,
                    is_scratch_kept=is_scratch_kept,
                    resume=resume,
                    is_unjudgeable_allowed=is_unjudgeable_allowed,
                    decide=decide,
                )

        return anyio.run(bounded)

    def proctor(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        """The command in this process, in the lab's folder: a new one takes a third of a second to start."""
        stdout, stderr = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
            patch.chdir(self.folder)
            for name, value in {"PROCTOR_ROOT": str(self.root), **self.env, **env}.items():
                patch.setenv(name, value)
            code = answer(words)
        return subprocess.CompletedProcess(words, code, stdout.getvalue(), stderr.getvalue())

    def proctor_process(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        """The command in another process, bounded: for tests of what only a whole process shows."""
        return subprocess.run(
            [sys.executable, "-m", "proctor", *words],
            env={**os.environ, "PROCTOR_ROOT": str(self.root), **self.env, **env},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    def start(self, *words: str, **env: str) -> "subprocess.Popen[bytes]":
        """The command, left running."""
        return subprocess.Popen(
            [sys.executable, "-m", "proctor", *words],
            env={**os.environ, "PROCTOR_ROOT": str(self.root), **self.env, **env},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    # ── reading ──

    def attempts(self) -> dict[str, AttemptPaths]:
        """Every attempt folder, by attempt id."""
        return {paths.folder.name: paths for run in RootPaths(self.root).runs() for paths in run.attempts()}

    def agents_used(self) -> set[str]:
        """The sha256 of every program that an attempt here ran on."""
        refs = [runner_ref_of(paths) for paths in self.attempts().values() if paths.runner_ref.exists()]
        return {ref.facts["identity"].value["sha256"] for ref in refs if "identity" in ref.facts}

    def assert_all_evidence_is_valid(self) -> None:
        for run in RootPaths(self.root).runs():
            for found in examine_run(run, is_strict=True):
                assert (found.status, found.findings) == ("valid", ())


def rows_of(paths: AttemptPaths) -> list[Row]:
    return [msgspec.json.decode(line, type=Row) for line in paths.frames.read_bytes().splitlines()]


def jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def report_of(paths: AttemptPaths) -> AttemptReport:
    return msgspec.json.decode(paths.report.read_bytes(), type=AttemptReport)


def runner_ref_of(paths: AttemptPaths) -> RunnerRef:
    return msgspec.json.decode(paths.runner_ref.read_bytes(), type=RunnerRef)


def processes_with(text: str) -> list[int]:
    """Live processes whose command line holds this text; zombies have none."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in line:
                found.append(int(entry.name))
    return found


def wait_until(holds: Callable[[], bool], *, deadline_s: float = 30.0) -> None:
    """Poll for something another process does; fails at the deadline."""
    end_s = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end_s, f"not so within {deadline_s} s"
        time.sleep(0.02)


def overloaded(line: bytes) -> bytes:
    """What a busy app-server answers to a request instead of this reply."""
    return refusal(line, code=-32001, message="Server overloaded; retry later.")


def refusal(line: bytes, *, code: int, message: str) -> bytes:
    return json.dumps({"id": json.loads(line)["id"], "error": {"code": code, "message": message}}).encode()
