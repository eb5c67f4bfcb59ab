"""What a stranger can establish about evidence: that it is whole, and who signed it."""

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
from proctor.evidence.reader import Problem
from proctor.evidence.sign import Signature, SignatureCheck, load_allowed
from proctor.evidence.statement import Sealed, attest
from proctor.evidence.validate import Status
from proctor.report.place import Place, find_place, root_of
from proctor.report.query import find_campaign
from proctor.surface.examine import Examination, examine_place
from proctor.surface.still import still

INTEGRITY_ONLY = "integrity only: shows damage, not forgery"
_WHOLE = {
    Status.VALID: "whole: files, chains, seals and everything derived agree",
    Status.PARTIAL: "partial: what is there agrees, but not all is there",
    Status.INVALID: "invalid: nothing that it says is established",
}
_WRONG = {
    "evidence.unsigned": "not signed, though that is demanded",
    "evidence.signer": "signed by nobody allowed",
}


class SealCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One seal: whose signature it has, if any, and what is wrong with that."""

    kind: str
    name: str
    run_id: str
    signature: Signature | None
    problem: Problem | None


class Verification(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The examination, the signatures, and in words what both establish. `statement` is the file that says so."""

    exit: int
    established: tuple[str, ...]
    evidence: Examination
    seals: tuple[SealCheck, ...]
    statement: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    paths: Sealed
    signature: Signature | None = None
    problem: Problem | None = None


def place_at(word: str, *, root: RootPaths) -> Place:
    """A place by its path or its name; whatever the word is, an InputError where there is none."""
    try:
        return find_place(word, root=root)
    except OSError as error:
        raise InputError("evidence.not-found", f"{word[:80]!r}: {error.strerror}") from error


def sealed_at(place: Place) -> Iterator[Sealed]:
    """Every attempt and runtime process of a place that has a seal; what cannot be read, its examination tells."""
    match place:
        case AttemptPaths():
            yield from _with_seal([place])
        case RunPaths():
            with suppress(OSError):
                yield from _with_seal([*place.attempts(), *place.runtimes()])
        case CampaignPaths():
            root = root_of(place)
            for run_id in find_campaign(root, place).run_ids:
                yield from sealed_at(root.run(run_id))
        case RootPaths():
            for run in place.runs():
                yield from sealed_at(run)


def _with_seal(folders: Sequence[Sealed]) -> Iterator[Sealed]:
    yield from (paths for paths in folders if os.path.lexists(seal_of(paths)))


def seal_of(paths: Sealed) -> Path:
    """The file that makes it complete, and that a signature covers."""
    return paths.seal if isinstance(paths, AttemptPaths) else paths.record


def verify_place(
    place: Place, *, allowed: Path | None = None, is_signed: bool = False, statement: Path | None = None
) -> Verification:
    """Examine strictly and check every signature; `is_signed` demands one on every seal, by somebody allowed.

    The statement is written only where nothing is wrong, and nothing is being run or let go of.
    """
    if is_signed and allowed is None:
        what = "a signature by nobody in particular proves nothing: --signed needs --allowed-signers"
        raise InputError("sign.allowed-signers", what)
    if statement is not None and statement.resolve().is_relative_to(place.folder.resolve()):
        raise InputError("usage", "the statement would lie inside the evidence and damage it", file=str(statement))
    # What a statement names is to be there afterwards.
    with nullcontext() if statement is None else still(place):
        return _verify(place, allowed=allowed, is_signed=is_signed, statement=statement)


def _verify(place: Place, *, allowed: Path | None, is_signed: bool, statement: Path | None) -> Verification:
    check = SignatureCheck(None if allowed is None else load_allowed(allowed))
    examination = examine_place(place, is_strict=True)
    checked = [_check(paths, check, is_signed=is_signed) for paths in sealed_at(place)]
    code = Exit.EVIDENCE if any(each.problem for each in checked) else Exit(examination.exit)
    established = (_WHOLE[examination.status], *_signers(checked))
    is_stated = statement is not None and code is Exit.OK
    if statement is not None and is_stated:
        told = attest([(each.paths, each.signature) for each in checked], established=established)
        replace_file(statement, render_artifact(told))
    return Verification(
        exit=code,
        established=established,
        evidence=examination,
        seals=tuple(map(_told, checked)),
        statement=str(statement) if is_stated else None,
    )


def _check(paths: Sealed, check: SignatureCheck, *, is_signed: bool) -> _Checked:
    try:
        signature = check.check(seal_of(paths))
        if is_signed and signature is None:
            raise EvidenceError("evidence.unsigned", "no signature beside it", file=seal_of(paths).name)
    except EvidenceError as error:
        return _Checked(paths=paths, problem=Problem.of(error))
    return _Checked(paths=paths, signature=signature)


def _told(checked: _Checked) -> SealCheck:
    folder = checked.paths.folder.absolute()
    return SealCheck(
        kind="attempt" if isinstance(checked.paths, AttemptPaths) else "process",
        name=folder.name,
        run_id=folder.parent.parent.name,
        signature=checked.signature,
        problem=checked.problem,
    )


def _signers(checked: Sequence[_Checked]) -> Iterator[str]:
    """What the signatures establish, each thing once, with how many seals it is true of where not of all."""
    said = Counter(map(_said, checked))
    for words, times in said.items():
        yield words if len(said) == 1 else f"{times} of {len(checked)} seals: {words}"


def _said(checked: _Checked) -> str:
    if checked.problem is not None:
        return _WRONG.get(checked.problem.code, "a signature that does not hold")
    match checked.signature:
        case Signature(identity=str() as identity, fingerprint=key):
            return f"signed by {identity} ({key})"
        case Signature(fingerprint=key):
            return f"signed by an unknown key ({key}), {INTEGRITY_ONLY}"
        case _:
            return INTEGRITY_ONLY
