"""What an in-toto Statement says of sealed evidence: the digest of every file, and what the attempts came to."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Part, ProcessRecord, RunnerRef
from proctor.evidence.layout import AttemptPaths, RuntimePaths
from proctor.evidence.reader import read_artifact
from proctor.evidence.seal import measure, read_seal, read_stamped
from proctor.evidence.sign import Signature
from proctor.fact import UNKNOWN, Fact
from proctor.ids import AttemptId, CampaignId, FlowId, MissionId, ProcessId, RunId, StrategyId

Sealed = AttemptPaths | RuntimePaths


class Subject(Part, frozen=True, kw_only=True):
    """One file, named by run, attempt or process, and file."""

    name: str
    digest: dict[str, str]


class AttestedAttempt(Part, frozen=True, kw_only=True):
    """What the sealed files of one attempt say. Claimed and verified are two facts."""

    attempt_id: AttemptId
    run_id: RunId
    campaign_id: CampaignId
    mission_id: MissionId
    flow_id: FlowId
    strategy: StrategyId
    outcome: Outcome
    code: str | None
    claimed: bool | None
    verified: bool | None
    reasons: tuple[str, ...]
    identity: Fact
    containment: Fact
    sealed_at_ms: int
    seal_digest: str
    signature: Signature | None


class AttestedProcess(Part, frozen=True, kw_only=True):
    """One runtime process that carried attempts."""

    process_id: ProcessId
    strategy: StrategyId
    frames_in: int
    seal_digest: str
    signature: Signature | None


class Predicate(Part, frozen=True, kw_only=True):
    """`established` says in words how far all of this may be trusted."""

    established: tuple[str, ...]
    attempts: tuple[AttestedAttempt, ...]
    processes: tuple[AttestedProcess, ...]


class Statement(Part, frozen=True, kw_only=True):
    """An in-toto Statement of version 1, with a predicate of our own."""

    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(
        default="https://in-toto.io/Statement/v1", name="_type"
    )
    subject: tuple[Subject, ...]
    predicate_type: Literal["urn:proctor:evidence:v1"] = "urn:proctor:evidence:v1"
    predicate: Predicate


def attest(sealed: Sequence[tuple[Sealed, Signature | None]], *, established: Iterable[str]) -> Statement:
    """Of evidence that was just found to be valid; equal evidence gives equal bytes. EvidenceError where it is gone."""
    return Statement(
        subject=tuple(subject for paths, _ in sealed for subject in _subjects(paths)),
        predicate=Predicate(
            established=tuple(established),
            attempts=tuple(_attempt(paths, by) for paths, by in sealed if isinstance(paths, AttemptPaths)),
            processes=tuple(_process(paths, by) for paths, by in sealed if isinstance(paths, RuntimePaths)),
        ),
    )


def _subjects(paths: Sealed) -> Iterator[Subject]:
    folder = paths.folder.absolute()
    place = f"{folder.parent.parent.name}/{folder.name}"
    if isinstance(paths, AttemptPaths):
        for name, file in read_seal(paths.seal).files.items():
            yield Subject(name=f"{place}/{name}", digest={"sha256": file.sha256})
        files = [paths.seal]
    else:
        files = [paths.frames, paths.record]
    for path in files:
        yield Subject(name=f"{place}/{path.name}", digest={"sha256": measure(path).sha256})


def _attempt(paths: AttemptPaths, signature: Signature | None) -> AttestedAttempt:
    record = read_artifact(paths.attempt, AttemptRecord)
    report = read_artifact(paths.report, AttemptReport)
    facts = read_artifact(paths.runner_ref, RunnerRef).facts
    seal = read_seal(paths.seal)
    return AttestedAttempt(
        attempt_id=record.attempt_id,
        run_id=record.run_id,
        campaign_id=record.campaign_id,
        mission_id=record.mission_id,
        flow_id=record.flow_id,
        strategy=record.strategy,
        outcome=report.outcome,
        code=report.code,
        claimed=report.claimed,
        verified=report.verified,
        reasons=report.reasons,
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
        strategy=record.strategy,
        frames_in=record.frames_in,
        seal_digest=f"sha256:{record.sha256}",
        signature=signature,
    )
