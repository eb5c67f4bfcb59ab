"""Where evidence lives: the name of every file and folder under the evidence root."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.disk import make_folder, replace_file
from proctor.ids import CampaignId, CellId, ProcessId, RunId

if TYPE_CHECKING:
    # A tenth of a second to import, and whoever only reads evidence needs none of it.
    from proctor.evidence.redact import Redactor

ATTEMPT = "attempt.json"
PROMPT = "prompt.txt"
FRAMES = "frames.jsonl"
TOOL_CALLS = "tool.calls.jsonl"
TRANSCRIPT = "transcript.jsonl"
RUNNER_REF = "runner.ref.json"
FEEDBACK = "feedback.json"
PROBES = "probes.jsonl"
WORKSPACE_DIFF = "workspace.diff"
REPORT = "attempt.report.json"
SEAL = "seal.json"

SEAL_SIGNATURE = "seal.json.sig"
"""Not sealed, because it is made of the seal: the one file that may come after it."""

STREAMS = (FRAMES, TOOL_CALLS, TRANSCRIPT, PROBES)
"""The chained files."""
SEALED = (ATTEMPT, PROMPT, FRAMES, TOOL_CALLS, TRANSCRIPT, RUNNER_REF, FEEDBACK, PROBES, WORKSPACE_DIFF, REPORT)
"""Every file of an attempt but the seal."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+=-]{0,199}")


def signature_beside(path: Path) -> Path:
    """Where the signature of a seal or of a process's record lies."""
    return path.with_name(f"{path.name}.sig")


def _inside(folder: Path, name: str) -> Path:
    """An id becomes a path here and nowhere else, so that none leads out of the root."""
    if not _NAME.fullmatch(name):
        raise EvidenceError("evidence.containment", f"{name!r} is no name for a folder of evidence", file=str(folder))
    return folder / name


def _folders(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink())


@dataclass(frozen=True, slots=True)
class AttemptPaths:
    """One attempt's folder."""

    folder: Path

    def create(self) -> None:
        """A folder that exists is an error: attempts are never reused."""
        make_folder(self.folder)

    @property
    def attempt(self) -> Path:
        return self.folder / ATTEMPT

    @property
    def prompt(self) -> Path:
        return self.folder / PROMPT

    @property
    def frames(self) -> Path:
        return self.folder / FRAMES

    @property
    def tool_calls(self) -> Path:
        return self.folder / TOOL_CALLS

    @property
    def transcript(self) -> Path:
        return self.folder / TRANSCRIPT

    @property
    def runner_ref(self) -> Path:
        return self.folder / RUNNER_REF

    @property
    def feedback(self) -> Path:
        return self.folder / FEEDBACK

    @property
    def probes(self) -> Path:
        return self.folder / PROBES

    @property
    def workspace_diff(self) -> Path:
        return self.folder / WORKSPACE_DIFF

    @property
    def report(self) -> Path:
        return self.folder / REPORT

    @property
    def seal(self) -> Path:
        return self.folder / SEAL


@dataclass(frozen=True, slots=True)
class RuntimePaths:
    """What belongs to a runtime process and to no single attempt."""

    folder: Path

    def create(self) -> None:
        make_folder(self.folder)

    @property
    def frames(self) -> Path:
        return self.folder / FRAMES

    @property
    def record(self) -> Path:
        return self.folder / "process.json"


@dataclass(frozen=True, slots=True)
class RunPaths:
    """One run of a campaign."""

    folder: Path

    def attempt(self, cell: CellId, *, n: int) -> AttemptPaths:
        return AttemptPaths(_inside(self.folder / "attempts", f"{cell}.{n}"))

    def runtime(self, process_id: ProcessId) -> RuntimePaths:
        return RuntimePaths(_inside(self.folder / "runtimes", process_id))

    def attempts(self) -> Iterator[AttemptPaths]:
        yield from map(AttemptPaths, _folders(self.folder / "attempts"))

    def runtimes(self) -> Iterator[RuntimePaths]:
        yield from map(RuntimePaths, _folders(self.folder / "runtimes"))


@dataclass(frozen=True, slots=True)
class CampaignPaths:
    """One campaign: what was asked, planned and found."""

    folder: Path

    def create(self) -> None:
        make_folder(self.folder)

    @property
    def spec_snapshot(self) -> Path:
        return self.folder / "spec.snapshot"

    @property
    def snapshot_index(self) -> Path:
        return self.spec_snapshot / "index.json"

    @property
    def plan(self) -> Path:
        return self.folder / "plan.json"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.db"

    @property
    def live(self) -> Path:
        """What it is at now; gone when it is over."""
        return self.folder / "live.json"

    @property
    def pin(self) -> Path:
        """Its presence keeps the campaign, whatever retention says."""
        return self.folder / "pinned"

    @property
    def report(self) -> Path:
        return self.folder / "report.json"

    @property
    def results(self) -> Path:
        return self.folder / "RESULTS.md"


@dataclass(frozen=True, slots=True)
class RootPaths:
    """The evidence root, `.proctor` unless told otherwise."""

    folder: Path

    def campaign(self, campaign_id: CampaignId) -> CampaignPaths:
        return CampaignPaths(_inside(self.folder / "campaigns", campaign_id))

    def run(self, run_id: RunId) -> RunPaths:
        return RunPaths(_inside(self.folder / "runs", run_id))

    def session(self, run_id: RunId) -> RunPaths:
        """Conversations that shared a runtime process lie together, as the attempts of a run do."""
        return RunPaths(_inside(self.folder / "sessions", run_id))

    @property
    def health(self) -> Path:
        """How the agents' programs started, over all runs."""
        return self.folder / "health.db"

    def campaigns(self) -> Iterator[CampaignPaths]:
        yield from map(CampaignPaths, _folders(self.folder / "campaigns"))

    def runs(self) -> Iterator[RunPaths]:
        """Those of campaigns, then conversations."""
        yield from map(RunPaths, _folders(self.folder / "runs"))
        yield from map(RunPaths, _folders(self.folder / "sessions"))


def write_artifact(
    path: Path, artifact: msgspec.Struct, *, redactor: "Redactor | None", is_durable: bool = True
) -> bytes:
    """A JSON file to be read by people too, whole or not at all, and what stands in it now.

    No redactor is right for our own numbers and names only.
    Not durable is right for a file of an attempt that a seal will follow: the seal syncs every file it names.
    """
    encoded = msgspec.json.encode(artifact) if redactor is None else redactor.encoded(artifact)
    data = _indented(encoded)
    replace_file(path, data, is_durable=is_durable)
    return data


def render_artifact(artifact: msgspec.Struct) -> bytes:
    return _indented(msgspec.json.encode(artifact))


def _indented(encoded: bytes) -> bytes:
    return msgspec.json.format(encoded, indent=2) + b"\n"


def write_text_artifact(path: Path, text: str, *, redactor: "Redactor", is_durable: bool = True) -> bytes:
    """A text file, whole or not at all, and what stands in it now.

    A lone surrogate, which UTF-8 cannot spell, is written as its escape.
    """
    data = redactor.text(text).text.encode(errors="backslashreplace")
    replace_file(path, data, is_durable=is_durable)
    return data
