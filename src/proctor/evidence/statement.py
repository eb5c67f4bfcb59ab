"""An in-toto Statement about sealed evidence: the digest of every file and the result of every attempt."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from proctor.evidence.artifacts import Part, ProcessRecord, SealedFile
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.digests import measure, read_stamped
from proctor.evidence.layout import SEAL, AttemptPaths, RuntimePaths
from proctor.evidence.sign import Signature
from proctor.evidence.summary import AttemptSummary, summarize
from proctor.fact import UNKNOWN, Fact
from proctor.ids import AttemptId, CampaignId, FlowId, MissionId, ProcessId, RunId, RuntimeId

Sealed = AttemptPaths | RuntimePaths


class Subject(Part, frozen=True, kw_only=True):
    """One file of the evidence."""

    name: str
    """`<run>/<attempt or process>/<file>`."""
    digest: dict[str, str]
    """Digest of the file, by algorithm name."""


class AttestedAttempt(Part, frozen=True, kw_only=True):
    """The result of one attempt, from its sealed files."""

    attempt_id: AttemptId
    """Id of the attempt."""
    run_id: RunId
    """Id of the run."""
    campaign_id: CampaignId
    """Id of the campaign."""
    mission_id: MissionId
    """Id of the mission."""
    flow_id: FlowId
    """Id of the flow."""
    summary: AttemptSummary
    """How the attempt ended, what was claimed and verified, and what it used."""
    identity: Fact
    """The program that ran."""
    containment: Fact
    """How the program was contained."""
    sealed_at_ms: int
    """Wall-clock time of the seal, in milliseconds since the epoch."""
    seal_digest: str
    """The seal's own digest, as `sha256:<hex>`."""
    signature: Signature | None
    """The signature of seal.json. Null if it is not signed."""


class AttestedProcess(Part, frozen=True, kw_only=True):
    """One agent process that served attempts."""

    process_id: ProcessId
    """Id of the process."""
    runtime_id: RuntimeId
    """Id of the runtime."""
    frames_in: int
    """Number of lines that the process sent, counted at the pipe."""
    seal_digest: str
    """The own digest of process.json, as `sha256:<hex>`."""
    signature: Signature | None
    """The signature of process.json. Null if it is not signed."""


class Predicate(Part, frozen=True, kw_only=True):
    """What the statement says about its subjects."""

    established: tuple[str, ...]
    """How far the evidence can be trusted, one sentence each."""
    attempts: tuple[AttestedAttempt, ...]
    """The attempts."""
    processes: tuple[AttestedProcess, ...]
    """The agent processes."""


class Statement(Part, frozen=True, kw_only=True):
    """An in-toto Statement, version 1, with Proctor's own predicate type."""

    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(
        default="https://in-toto.io/Statement/v1", name="_type"
    )
    """Type of the statement, as in-toto defines it."""
    subject: tuple[Subject, ...]
    """Every file that the statement covers."""
    predicate_type: Literal["urn:proctor:evidence:v1"] = "urn:proctor:evidence:v1"
    """Type of the predicate."""
    predicate: Predicate
    """What the statement says about the files."""


def attest(sealed: Sequence[tuple[Sealed, Signature | None]], *, established: Iterable[str]) -> Statement:
    """Build the statement about evidence that was just validated. Equal evidence gives equal bytes.

    Raises EvidenceError if a file cannot be read any more.
    """
    subjects: list[Subject] = []
    attempts: list[AttestedAttempt] = []
    processes: list[AttestedProcess] = []
    for paths, signature in sealed:
        if isinstance(paths, AttemptPaths):
            with AttemptFiles(paths) as files:
                subjects += _attempt_subjects(files)
                attempts.append(_attempt(files, signature))
        else:
            subjects += (_subject(paths, path.name, measure(path)) for path in (paths.frames, paths.record))
            processes.append(_process(paths, signature))
    predicate = Predicate(established=tuple(established), attempts=tuple(attempts), processes=tuple(processes))
    return Statement(subject=tuple(subjects), predicate=predicate)


def _attempt_subjects(files: AttemptFiles) -> Iterator[Subject]:
    for name, file in files.seal.files.items():
        yield _subject(files.paths, name, file)
    yield _subject(files.paths, SEAL, files.measure(SEAL))


def _subject(paths: Sealed, name: str, file: SealedFile) -> Subject:
    folder = paths.folder.absolute()
    return Subject(name=f"{folder.parent.parent.name}/{folder.name}/{name}", digest={"sha256": file.sha256})


def _attempt(files: AttemptFiles, signature: Signature | None) -> AttestedAttempt:
    record, facts, seal = files.record, files.runner_ref.facts, files.seal
    return AttestedAttempt(
        attempt_id=record.attempt_id,
        run_id=record.run_id,
        campaign_id=record.campaign_id,
        mission_id=record.mission_id,
        flow_id=record.flow_id,
        summary=summarize(record, files.report),
        identity=facts.get("identity", UNKNOWN),
        containment=facts.get("containment", UNKNOWN),
        sealed_at_ms=seal.sealed_at_ms,
        seal_digest=f"sha256:{seal.sha256}",
        signature=signature,
    )


def _process(paths: RuntimePaths, signature: Signature | None) -> AttestedProcess:
    record = read_stamped(paths.record, ProcessRecord)
    return AttestedProcess(
        process_id=record.process_id,
        runtime_id=record.runtime_id,
        frames_in=record.frames_in,
        seal_digest=f"sha256:{record.sha256}",
        signature=signature,
    )
