"""The name of every file and folder under the evidence root."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.disk import make_folder, replace_file
from proctor.ids import CampaignId, ProcessId, RunId, SessionKey, TrialId

if TYPE_CHECKING:
    # Takes a tenth of a second to import, and code that only reads evidence does not need it.
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
"""Signature of the seal. It is the only file that may be added after the seal, and is not covered by it."""

STREAMS = (FRAMES, TOOL_CALLS, TRANSCRIPT, PROBES)
"""The hash-chained files of an attempt."""
SEALED = (ATTEMPT, PROMPT, FRAMES, TOOL_CALLS, TRANSCRIPT, RUNNER_REF, FEEDBACK, PROBES, WORKSPACE_DIFF, REPORT)
"""The files that every attempt has. The seal covers them and the files that probes keep."""

_PROBE_FILE = re.compile(r"probe-\d{1,4}-[a-z]{1,20}-[a-z0-9][a-z0-9.-]{0,59}")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+=-]{0,199}")


def probe_file_prefix(index: int, phase: str) -> str:
    """Return the beginning of the names of files that a probe keeps.

    >>> probe_file_prefix(0, "final")
    'probe-1-final-'
    """
    return f"probe-{index + 1}-{phase}-"


def is_probe_file(name: str) -> bool:
    """Return whether a file of an attempt is one that a probe keeps, such as a screenshot.

    >>> [is_probe_file(name) for name in ("probe-1-final-page.png", "probes.jsonl", "probe-1-final-../x")]
    [True, False, False]
    """
    return _PROBE_FILE.fullmatch(name) is not None


def signature_path(path: Path) -> Path:
    """Return the path of the signature of a seal or of a process.json."""
    return path.with_name(f"{path.name}.sig")


def is_valid_name(name: str) -> bool:
    """Return whether an id can be the name of a folder.

    >>> [is_valid_name(name) for name in ("shop-1", "ada@example.org", "../shop", "")]
    [True, True, False, False]
    """
    return _NAME.fullmatch(name) is not None


def _inside(folder: Path, name: str) -> Path:
    """Return the path of an entry named by an id.

    Ids become paths only here, so that none leads out of the root. Raises EvidenceError for an id that is not a plain
    name.
    """
    if not is_valid_name(name):
        raise EvidenceError(
            "evidence.containment", f"{name!r} is not a valid name for an evidence folder", file=str(folder)
        )
    return folder / name


def _folders(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink())


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths in one folder. Each kind of folder is a subclass without fields: equal if kind and folder are."""

    folder: Path


class AttemptPaths(Paths):
    """Paths in the folder of one attempt."""

    __slots__ = ()

    def create(self) -> None:
        """Create the folder. Raises MachineError if it exists: attempts are never reused."""
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


class RuntimePaths(Paths):
    """Paths in the folder of one agent process, for what does not belong to a single attempt."""

    __slots__ = ()

    def create(self) -> None:
        make_folder(self.folder)

    @property
    def frames(self) -> Path:
        return self.folder / FRAMES

    @property
    def record(self) -> Path:
        return self.folder / "process.json"


class RunPaths(Paths):
    """Paths in the folder of one run."""

    __slots__ = ()

    def attempt(self, trial: TrialId, *, n: int) -> AttemptPaths:
        return AttemptPaths(_inside(self.folder / "attempts", f"{trial}.{n}"))

    def runtime(self, process_id: ProcessId) -> RuntimePaths:
        return RuntimePaths(_inside(self.folder / "runtimes", process_id))

    def attempts(self) -> Iterator[AttemptPaths]:
        yield from map(AttemptPaths, _folders(self.folder / "attempts"))

    def runtimes(self) -> Iterator[RuntimePaths]:
        yield from map(RuntimePaths, _folders(self.folder / "runtimes"))


class RegradePaths(Paths):
    """Paths in the folder of one regrade. Its record is written last."""

    __slots__ = ()

    def create(self) -> None:
        make_folder(self.folder)

    @property
    def record(self) -> Path:
        return self.folder / "regrade.json"

    @property
    def rows(self) -> Path:
        return self.folder / "regrade.probes.jsonl"


class CampaignPaths(Paths):
    """Paths in the folder of one campaign."""

    __slots__ = ()

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
        """State of the current run. Deleted when the run ends."""
        return self.folder / "live.json"

    @property
    def pin(self) -> Path:
        """Marker file that protects the campaign from retention."""
        return self.folder / "pinned"

    @property
    def report(self) -> Path:
        return self.folder / "report.json"

    @property
    def results(self) -> Path:
        return self.folder / "RESULTS.md"

    @property
    def regrades(self) -> Path:
        """Folder of the regrades, which are no part of the original evidence."""
        return self.folder / "regrades"

    def regrade(self, regrade_id: str) -> RegradePaths:
        return RegradePaths(_inside(self.regrades, regrade_id))


class SessionPaths(Paths):
    """Paths in the folder of one session: what continues from sitting to sitting. Their evidence is in runs."""

    __slots__ = ()

    def create(self) -> None:
        """Create the folder, if it does not exist yet."""
        make_folder(self.folder, exist_ok=True)

    @property
    def header(self) -> Path:
        return self.folder / "session.json"

    @property
    def store(self) -> Path:
        return self.folder / "session.db"

    @property
    def engines(self) -> Path:
        """Folder with the state of each context engine, in a folder named after it."""
        return self.folder / "engines"

    def engine_ids(self) -> list[str]:
        """Return the ids of the context engines that have a state in the session."""
        return sorted(each.name for each in self.engines.iterdir()) if self.engines.is_dir() else []

    @property
    def old_engines(self) -> Path:
        """Folder with state of context engines that a rebuild set aside, in a folder named after each."""
        return self.folder / "engines.old"

    def engine(self, id_: str) -> Path:
        """Return the folder with the state of one context engine, which may not exist."""
        return _inside(self.engines, id_)

    @property
    def has_old_layout(self) -> bool:
        """Whether it is a run of conversations, as an unreleased Proctor stored them."""
        return (self.folder / "attempts").is_dir() and not self.header.exists()


class RootPaths(Paths):
    """Paths in an evidence root, by default `.proctor`."""

    __slots__ = ()

    def campaign(self, campaign_id: CampaignId) -> CampaignPaths:
        return CampaignPaths(_inside(self.folder / "campaigns", campaign_id))

    def run(self, run_id: RunId) -> RunPaths:
        return RunPaths(_inside(self.folder / "runs", run_id))

    def session(self, key: SessionKey) -> SessionPaths:
        return SessionPaths(_inside(self.folder / "sessions", key))

    @property
    def health(self) -> Path:
        """Counts of starts and crashes of the agents' programs, over all runs."""
        return self.folder / "health.db"

    def campaigns(self) -> Iterator[CampaignPaths]:
        yield from map(CampaignPaths, _folders(self.folder / "campaigns"))

    def sessions(self) -> Iterator[SessionPaths]:
        yield from map(SessionPaths, _folders(self.folder / "sessions"))

    def runs(self) -> Iterator[RunPaths]:
        """Yield the runs of campaigns and the sittings of sessions."""
        yield from map(RunPaths, _folders(self.folder / "runs"))


def write_artifact(
    path: Path, artifact: msgspec.Struct, *, redactor: "Redactor | None", is_durable: bool = True
) -> bytes:
    """Write an indented JSON file atomically, and return its bytes.

    `redactor=None` is only for artifacts that hold nothing but Proctor's own numbers and names. `is_durable=False` is
    for files of an attempt that will be sealed: the seal syncs every file it names. Raises MachineError if the disk
    refuses.
    """
    encoded = msgspec.json.encode(artifact) if redactor is None else redactor.encoded(artifact)
    data = _indented(encoded)
    replace_file(path, data, is_durable=is_durable)
    return data


def render_artifact(artifact: msgspec.Struct) -> bytes:
    """Return the bytes that `write_artifact` writes without a redactor."""
    return _indented(msgspec.json.encode(artifact))


def _indented(encoded: bytes) -> bytes:
    return msgspec.json.format(encoded, indent=2) + b"\n"


def write_text_artifact(path: Path, text: str, *, redactor: "Redactor", is_durable: bool = True) -> bytes:
    """Redact a text, write it atomically, and return its bytes.

    A lone surrogate, which UTF-8 cannot encode, is written as its escape. Raises MachineError if the disk refuses.
    """
    data = redactor.text(text).text.encode(errors="backslashreplace")
    replace_file(path, data, is_durable=is_durable)
    return data
