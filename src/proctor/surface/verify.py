"""Verify evidence for a third party: whether it is complete and unchanged, and who signed it."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proctor.errors import EvidenceError, Exit, InputError
from proctor.evidence.disk import replace_file
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths, RunPaths, render_artifact
from proctor.evidence.reader import Finding
from proctor.evidence.sign import Signature, SignatureCheck, load_allowed
from proctor.evidence.statement import Sealed, attest
from proctor.report.campaign import load_campaign_state
from proctor.report.find import Place, find_place, root_of
from proctor.surface.evidence_lock import lock_evidence
from proctor.surface.examine import Examination, ItemStatus, examine_place

INTEGRITY_ONLY = "integrity only: shows damage, not forgery"
_ESTABLISHED = {
    ItemStatus.VALID: "complete: files, chains, seals and derived files agree",
    ItemStatus.ABANDONED: "abandoned: it was cut off, and a later attempt counts",
    ItemStatus.PARTIAL: "partial: the files that exist agree, but some are missing",
    ItemStatus.INVALID: "invalid: nothing is established",
}
_SIGNATURE_FINDINGS = {
    "evidence.unsigned": "not signed, but --signed requires a signature",
    "evidence.signer": "signed, but not by an allowed signer",
}


class SealCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One seal and its signature."""

    kind: str
    """What is sealed: `attempt` or `process`."""
    name: str
    """Id of the attempt or agent process."""
    run_id: str
    """Run that it belongs to."""
    signature: Signature | None
    """The valid signature; null if there is no signature or it is not valid."""
    finding: Finding | None
    """What is wrong with the signature; null if nothing is."""


class Verification(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of `proctor verify`."""

    exit: int
    """Exit code of the command: 0 if everything is valid, 4 if some is partial, 5 if any is invalid."""
    established: tuple[str, ...]
    """What the evidence and its signatures establish, in words."""
    evidence: Examination
    """The strict examination of the evidence."""
    seals: tuple[SealCheck, ...]
    """Every seal and its signature."""
    statement: str | None = None
    """Path of the in-toto statement; null if none was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SealResult:
    paths: Sealed
    signature: Signature | None = None
    finding: Finding | None = None


def place_at(word: str, *, root: RootPaths) -> Place:
    """Return the evidence at a path or with a name. Raises InputError if it does not exist or cannot be read."""
    try:
        return find_place(word, root=root)
    except OSError as error:
        raise InputError("evidence.not-found", f"{word[:80]!r}: {error.strerror}") from error


def sealed_at(place: Place) -> Iterator[Sealed]:
    """Yield the attempts and agent processes that have a seal.

    Folders that cannot be read are left out: the examination reports them.
    """
    match place:
        case AttemptPaths():
            yield from _with_seal([place])
        case RunPaths():
            with suppress(OSError):
                yield from _with_seal([*place.attempts(), *place.runtimes()])
        case CampaignPaths():
            root = root_of(place)
            for run_id in load_campaign_state(place, root=root).run_ids:
                yield from sealed_at(root.run(run_id))
        case RootPaths():
            for run in place.runs():
                yield from sealed_at(run)


def _with_seal(folders: Sequence[Sealed]) -> Iterator[Sealed]:
    yield from (paths for paths in folders if os.path.lexists(seal_of(paths)))


def seal_of(paths: Sealed) -> Path:
    """Return the file that completes an attempt or agent process, and that a signature covers."""
    return paths.seal if isinstance(paths, AttemptPaths) else paths.record


def verify_place(
    place: Place, *, allowed: Path | None = None, is_signed: bool = False, statement: Path | None = None
) -> Verification:
    """Examine evidence strictly and check every signature. `is_signed` requires one by an allowed signer on every seal.

    The statement is written only if everything is valid. Raises InputError if the arguments contradict each other, and
    MachineError if a statement is requested while the evidence is being run or deleted.
    """
    if is_signed and allowed is None:
        what = "--signed needs --allowed-signers, because a signature by an unknown key proves nothing"
        raise InputError("sign.allowed-signers", what)
    if statement is not None and statement.resolve().is_relative_to(place.folder.resolve()):
        raise InputError(
            "usage", "--statement names a file inside the evidence, which would make it invalid", file=str(statement)
        )
    # Evidence that a statement names must not be deleted meanwhile.
    with nullcontext() if statement is None else lock_evidence(place):
        return _verify(place, allowed=allowed, is_signed=is_signed, statement=statement)


def _verify(place: Place, *, allowed: Path | None, is_signed: bool, statement: Path | None) -> Verification:
    check = SignatureCheck(None if allowed is None else load_allowed(allowed))
    examination = examine_place(place, is_strict=True)
    results = [_check(paths, check, is_signed=is_signed) for paths in sealed_at(place)]
    code = Exit.EVIDENCE if any(each.finding for each in results) else Exit(examination.exit)
    established = (_ESTABLISHED[examination.status], *_describe_signers(results))
    has_statement = statement is not None and code is Exit.OK
    if statement is not None and has_statement:
        attested = attest([(each.paths, each.signature) for each in results], established=established)
        replace_file(statement, render_artifact(attested))
    return Verification(
        exit=code,
        established=established,
        evidence=examination,
        seals=tuple(map(_seal_check, results)),
        statement=str(statement) if has_statement else None,
    )


def _check(paths: Sealed, check: SignatureCheck, *, is_signed: bool) -> _SealResult:
    try:
        signature = check.check(seal_of(paths))
        if is_signed and signature is None:
            raise EvidenceError(
                "evidence.unsigned", "the seal has no signature, which --signed requires", file=seal_of(paths).name
            )
    except EvidenceError as error:
        return _SealResult(paths=paths, finding=Finding.of(error))
    return _SealResult(paths=paths, signature=signature)


def _seal_check(result: _SealResult) -> SealCheck:
    folder = result.paths.folder.absolute()
    return SealCheck(
        kind="attempt" if isinstance(result.paths, AttemptPaths) else "process",
        name=folder.name,
        run_id=folder.parent.parent.name,
        signature=result.signature,
        finding=result.finding,
    )


def _describe_signers(results: Sequence[_SealResult]) -> Iterator[str]:
    """Yield what the signatures establish, with the number of seals unless it is true of all."""
    counts = Counter(map(_describe_signer, results))
    for text, seals in counts.items():
        yield text if len(counts) == 1 else f"{seals} of {len(results)} seals: {text}"


def _describe_signer(result: _SealResult) -> str:
    if result.finding is not None:
        return _SIGNATURE_FINDINGS.get(result.finding.code, "the signature is not valid")
    match result.signature:
        case Signature(identity=str() as identity, fingerprint=key):
            return f"signed by {identity} ({key})"
        case Signature(fingerprint=key):
            return f"signed by an unknown key ({key}), {INTEGRITY_ONLY}"
        case _:
            return INTEGRITY_ONLY
