"""A secret flows through all that is written; it reaches no file, and would if the file's writer did not redact."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.campaign import freeze, process
from proctor.campaign import open as opening
from proctor.campaign.run import CampaignResult
from proctor.errors import MachineError
from proctor.evidence import layout
from proctor.evidence.layout import RuntimePaths
from proctor.evidence.recorder import ChainedLog, FrameLog
from proctor.evidence.redact import Redactor
from proctor.evidence.seal import seal_process
from proctor.report.write_report import write_report
from tests.lab import DONE, Lab, mission

pytestmark = pytest.mark.real_agent

SECRET = "zq7-tripwire-84f1c2d9e0"
PLANTED = re.compile(rb"tripwire-[0-9a-f]{32}|" + SECRET.encode())

PROCESS_FRAMES = "runtimes/frames.jsonl"
FRAMES = "attempts/frames.jsonl"
# Made of what is masked already.
CLAIMED = {"attempts/attempt.report.json", "attempts/feedback.json", "attempts/runner.ref.json"}
FOLDS = {"attempts/tool.calls.jsonl", "attempts/transcript.jsonl"}
LEDGER = "campaigns/ledger.db"  # the summaries of sealed attempts
OTHERS = {
    "attempts/attempt.json",
    "attempts/prompt.txt",
    "attempts/probes.jsonl",
    "attempts/workspace.diff",
    "campaigns/plan.json",
    "campaigns/spec.snapshot/spec.yaml",
    "campaigns/spec.snapshot/script-0.yaml",
    "campaigns/spec.snapshot/index.json",
    "runtimes/process.json",
}


def place(lab: Lab, file: Path) -> str:
    """A file of evidence without the ids on the way to it."""
    campaign_or_run, *more = file.relative_to(lab.root).parts
    if not more:
        return campaign_or_run
    _, *rest = more
    return "/".join([rest[0], *rest[2:]] if campaign_or_run == "runs" else [campaign_or_run, *rest])


def told(lab: Lab, what: Callable[[bytes], Any]) -> set[str]:
    files = (file for file in lab.root.rglob("*") if file.is_file())
    return {place(lab, file) for file in files if what(file.read_bytes()) or what(file.name.encode())}


def switch_off(lab: Lab, monkeypatch: pytest.MonkeyPatch, places: set[str]) -> None:
    """Redaction by the writers of these files, and by no other."""
    blind = Redactor([])

    def eyes(path: Path, redactor: Redactor | None) -> Redactor | None:
        return blind if redactor is not None and place(lab, path) in places else redactor

    def by_path(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Path, *rest: Any, redactor: Redactor | None = None, **more: Any) -> Any:
            return function(path, *rest, redactor=eyes(path, redactor), **more)

        return call

    def sealed(paths: RuntimePaths, *rest: Any, redactor: Redactor, **more: Any) -> Any:
        return seal_process(paths, *rest, redactor=eyes(paths.record, redactor) or redactor, **more)

    for kind in (FrameLog, ChainedLog):
        made: Any = kind.__init__

        def init(log: Any, path: Path, *, made: Any = made, redactor: Any = None, **more: Any) -> None:
            made(log, path, redactor=eyes(path, redactor), **more)

        monkeypatch.setattr(kind, "__init__", init)
    for module in (layout, freeze, opening):
        monkeypatch.setattr(module, "write_artifact", by_path(layout.write_artifact))
    for module in (layout, freeze):
        monkeypatch.setattr(module, "write_text_artifact", by_path(layout.write_text_artifact))
    monkeypatch.setattr(process, "seal_process", sealed)


def run_with_a_secret_everywhere(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> CampaignResult:
    """In prompt, command, output, answer, file, file name, probe, expectation, environment, script name and stderr."""
    monkeypatch.setenv("TRIPWIRE_TOKEN", SECRET)
    said = f"It is {SECRET}, I think.\n{DONE % SECRET}"
    spec = lab.write_spec(
        [
            mission(
                "everywhere",
                {"run": f"printf '%s\\n' {SECRET} | tee {SECRET}.txt"},
                {"say": {"text": said, "chunk_chars": 3}},
                prompt=f"The password is {SECRET}; keep it.",
                # What it prints is redacted before it is cut; its words, by the writer.
                probes=[{"kind": "headless_run", "command": f"cat *.txt; : {SECRET}"}],
                expect={"answer": f"not {SECRET}"},
            )
        ],
        # Codex prints what it asks the model for on stderr.
        flow={"env": {"NOTE": SECRET, "RUST_LOG": "codex_core=debug"}},
    )
    script = spec.parent / "everywhere.yaml"
    spec.write_text(spec.read_text().replace(script.name, f"{SECRET}.yaml"))
    script.rename(script.with_name(f"{SECRET}.yaml"))
    return lab.run(spec, is_unjudgeable_allowed=True)


@pytest.mark.requirement("evidence.redaction")
def test_a_secret_that_flows_through_every_writer_reaches_no_file(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_with_a_secret_everywhere(lab, monkeypatch)
    assert told(lab, PLANTED.search) == set()
    masked = re.compile(rb"\[redacted:(TRIPWIRE_TOKEN|PROCTOR_TRIPWIRE)\]")
    assert told(lab, masked.search) == {FRAMES, PROCESS_FRAMES, *FOLDS, *OTHERS, *CLAIMED, LEDGER}
    lab.assert_all_evidence_is_valid()
    # Why an attempt has no seal is told in the campaign's report, and nowhere else.
    reasons = {each.attempt_id: f"ValueError: {SECRET}" for each in result.attempts}
    write_report(result.paths, root=lab.root, redactor=result.redactor, reasons=reasons)
    assert told(lab, PLANTED.search) == set()
    assert told(lab, re.compile(rb"ValueError: \[redacted:TRIPWIRE_TOKEN\]").search) == {"campaigns/report.json"}


@pytest.mark.requirement("evidence.redaction")
@pytest.mark.parametrize("off", [FRAMES, PROCESS_FRAMES, *sorted(OTHERS)])
def test_a_writer_that_does_not_redact_leaks_into_its_own_file_or_is_found_out_first(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    switch_off(lab, monkeypatch, {off})
    code = None
    try:
        [attempt] = run_with_a_secret_everywhere(lab, monkeypatch).attempts
        code = attempt.error and attempt.error.code
    except MachineError as error:
        code = error.code
    # Where the tripwire comes by that every run plants, it does so first: the run finds out, and nothing is written.
    is_found_out = off in {FRAMES, PROCESS_FRAMES}
    assert told(lab, PLANTED.search) == (set() if is_found_out else {off})
    assert code == ("run.redaction" if is_found_out else None)
    assert ("attempts/seal.json" in told(lab, bytes)) != is_found_out
