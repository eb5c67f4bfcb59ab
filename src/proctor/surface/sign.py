"""Sign the seals of evidence that a strict examination finds valid."""

import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec

from proctor.errors import EvidenceError, InputError
from proctor.evidence.disk import draft_path
from proctor.evidence.layout import signature_path
from proctor.evidence.sign import SignatureCheck, sign_files
from proctor.report.find import Place
from proctor.surface.evidence_lock import lock_evidence
from proctor.surface.examine import ItemStatus, examine_place
from proctor.surface.verify import seal_of, sealed_at

# A name that is literal in a list of allowed signers: not a pattern, not a list, not a comment.
_IDENTITY = re.compile(r"[A-Za-z0-9][^\s,*?!\"]*")


class Signing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of `proctor sign`."""

    exit: int
    """Exit code of the command: 0 if the evidence is valid, 4 if it is partial."""
    partial: tuple[str, ...]
    """What is partial, which is why the exit code is 4: kind, name and finding of each."""
    signed: tuple[str, ...]
    """Paths of the seals that were signed now."""
    kept: tuple[str, ...]
    """Paths of the seals that already had a valid signature."""
    fingerprint: str | None
    """Fingerprint of the key, as `ssh-keygen -l` prints it; null if nothing was signed."""
    allowed_signer: str | None
    """Line for a list of allowed signers, with which others can check the signatures; null if nothing was signed."""


def sign_place(place: Place, *, key: Path, identity: str | None = None) -> Signing:
    """Sign every seal without a signature.

    Raises EvidenceError, and signs nothing, if any evidence is invalid or nothing is sealed; InputError if the key or
    identity cannot be used; MachineError while the evidence is being run or deleted, because signed evidence is kept.
    """
    if not os.path.isfile(key):  # noqa: PTH113  Path.is_file raises if a folder above is not readable
        raise InputError("sign.key", "the file does not exist or cannot be read", file=str(key))
    name = _identity(key, identity)
    with lock_evidence(place):
        return _sign(place, key=key, name=name)


def _sign(place: Place, *, key: Path, name: str | None) -> Signing:
    sealed = list(sealed_at(place))
    for paths in sealed:
        # An interrupted signing may have left a temporary file.
        with suppress(OSError):
            draft_path(signature_path(seal_of(paths))).unlink()
    examination = examine_place(place, is_strict=True)
    for each in examination.examined:
        if each.status is ItemStatus.INVALID:
            finding = each.findings[0]
            what = f"{each.kind} {each.name} is invalid, so nothing was signed: {finding.detail}"
            raise EvidenceError(
                finding.code, what, file=finding.file, suggestion=f"proctor validate --strict {place.folder}"
            )
    if not sealed:
        raise EvidenceError("evidence.partial", "there is no seal to sign", file=str(place.folder))
    check = SignatureCheck(None)
    is_signed = {paths: check.check(seal_of(paths)) is not None for paths in sealed}
    to_sign = [paths for paths in sealed if not is_signed[paths]]
    signer = sign_files([seal_of(paths) for paths in to_sign], key=key) if to_sign else None
    return Signing(
        exit=examination.exit,
        partial=tuple(
            f"{each.kind} {each.name}: {each.findings[0].file} {each.findings[0].detail}".rstrip()
            for each in examination.examined
            if each.status is ItemStatus.PARTIAL and each.findings
        ),
        signed=tuple(str(seal_of(paths)) for paths in to_sign),
        kept=tuple(str(seal_of(paths)) for paths in sealed if is_signed[paths]),
        fingerprint=None if signer is None else signer.fingerprint,
        allowed_signer=None if signer is None else signer.allowed_line(name or signer.fingerprint),
    )


def _identity(key: Path, name: str | None) -> str | None:
    """Return the signer's name: `name` if given, else the comment of the public key if it is a valid name."""
    if name is not None:
        if not _IDENTITY.fullmatch(name):
            what = f"{name!r} is not a valid name of a signer: spaces, commas, quotes, *, ? and ! are not allowed"
            raise InputError("usage", what)
        return name
    public = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    try:
        comment = public.read_text(encoding="utf-8", errors="replace").strip().split(maxsplit=2)[2]
    except (OSError, IndexError):
        return None
    return comment if _IDENTITY.fullmatch(comment) else None
