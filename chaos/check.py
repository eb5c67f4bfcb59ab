"""Checks after each seed: nothing lost or duplicated, valid evidence, no leftover processes, the same results."""

import json
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from chaos.play import Stage
from chaos.processes import alive
from chaos.same import but_for_times
from proctor.attempt.recheck import examine_run
from proctor.evidence.artifacts import AttemptReport
from proctor.evidence.layout import RootPaths

GONE_S = 5.0


def problems_of(stage: Stage, *, results: Mapping[str, Any]) -> Iterator[str]:
    """Yield every problem. `results` are those of a run without faults."""
    campaign = stage.campaign()
    if campaign is None:
        yield "no campaign began"
        return
    with closing(sqlite3.connect(f"file:{campaign.ledger}?mode=ro", uri=True)) as ledger:
        [(word,)] = ledger.execute("pragma integrity_check")
        if word != "ok":
            yield f"the ledger: {word}"
        trials = [trial for (trial,) in ledger.execute("select id from trial order by id")]
        rows = ledger.execute("select trial, n, run, state, outcome, code from attempt order by trial, n").fetchall()
    tried = defaultdict(list)
    for trial, n, run, state, outcome, code in rows:
        tried[trial].append((n, run, state, outcome, code))
    yield from _one_result_each(trials, tried)
    yield from _ledger_is_disk(stage.root, rows)
    yield from _evidence_is_valid(stage.root, {f"{trial}.{n}" for trial, n, _, state, *_ in rows if state == "sealed"})
    if (found := results_of(stage)) != results:
        differing = sorted(trial for trial in {*found, *results} if found.get(trial) != results.get(trial))
        yield f"results differ from those of a run without faults in {differing}"
    yield from _no_process_left(stage.folder)


def _one_result_each(trials: list[str], tried: Mapping[str, list[tuple[Any, ...]]]) -> Iterator[str]:
    for trial in trials:
        attempts = tried.get(trial, [])
        if [n for n, *_ in attempts] != list(range(1, len(attempts) + 1)):
            yield f"{trial}: attempts {[n for n, *_ in attempts]}"
        completed = [n for n, _, state, outcome, _ in attempts if (state, outcome) == ("sealed", "completed")]
        if completed != [len(attempts)]:
            yield f"{trial}: of {attempts} completed are {completed}"
        if any(state == "running" for _, _, state, *_ in attempts):
            yield f"{trial}: still running"


def _ledger_is_disk(root: Path, rows: list[tuple[Any, ...]]) -> Iterator[str]:
    """Check that the sealed attempts on disk and in the ledger are the same, and that the ledger lists every folder."""
    folders = {
        (run.folder.name, paths.folder.name): paths.seal.exists()
        for run in RootPaths(root).runs()
        for paths in run.attempts()
    }
    listed = {(run, f"{trial}.{n}"): state == "sealed" for trial, n, run, state, *_ in rows}
    for place, is_sealed in folders.items():
        if listed.get(place) is not is_sealed:
            yield f"{place}: sealed on disk {is_sealed}, in the ledger {listed.get(place)}"
    if lost := [place for place, is_sealed in listed.items() if is_sealed and place not in folders]:
        yield f"lost: {lost}"


def _evidence_is_valid(root: Path, sealed: set[str]) -> Iterator[str]:
    """Check that sealed attempts are valid, and that the others are at worst partial."""
    for run in RootPaths(root).runs():
        for found in examine_run(run, is_strict=True):
            fine = ("valid",) if found.name in sealed else ("valid", "partial")
            if found.status not in fine:
                yield f"{run.folder.name}/{found.name}: {found.status} {found.findings[:3]}"


def results_of(stage: Stage) -> dict[str, Any]:
    """Return the result of each trial and the report, without ids and times, which differ between runs."""
    results: dict[str, Any] = {"report": _report(stage)}
    for run in RootPaths(stage.root).runs():
        for paths in run.attempts():
            if not paths.seal.exists():
                continue
            report = msgspec.json.decode(paths.report.read_bytes(), type=AttemptReport)
            if report.outcome == "completed":
                metrics = report.metrics
                results[paths.folder.name.rpartition(".")[0]] = {
                    "judged": (report.claimed, report.verified, report.reasons, report.expectation),
                    "did": (metrics.turns, metrics.tool_calls, metrics.tool_failures, metrics.tool_calls_by_kind),
                    "used": metrics.total_tokens,
                    "left": report.workspace_digest_after,
                }
    return results


def _report(stage: Stage) -> Any:
    campaign = stage.campaign()
    assert campaign is not None
    words = [sys.executable, "-m", "proctor", "campaign", "report", campaign.folder.name, "--json"]
    env = {**stage.env, "PROCTOR_ROOT": str(stage.root)}
    done = subprocess.run(words, cwd=stage.folder, env=env, capture_output=True, timeout=60, check=False)
    return done.returncode, but_for_times(json.loads(done.stdout))


def _no_process_left(folder: Path) -> Iterator[str]:
    end_s = time.monotonic() + GONE_S
    while left := alive(folder):
        if time.monotonic() > end_s:
            yield f"left running: {left}"
            return
        time.sleep(0.05)
