"""Signing the seals of a place, once it has been found to be as it was sealed."""

import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec

from proctor.errors import EvidenceError, InputError
from proctor.evidence.disk import beside
from proctor.evidence.layout import signature_beside
from proctor.evidence.sign import SignatureCheck, sign_files
from proctor.evidence.validate import Status
from proctor.report.place import Place
from proctor.surface.examine import examine_place
from proctor.surface.still import still
from proctor.surface.verify import seal_of, sealed_at

# What stands for itself in a list of allowed signers: no pattern, no second name, no comment.
_IDENTITY = re.compile(r"[A-Za-z0-9][^\s,*?!\"]*")


class Signing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which seals were signed, which had a signature already, and the line that lets others check."""

    exit: int
    signed: tuple[str, ...]
    kept: tuple[str, ...]
    fingerprint: str | None
    allowed_signer: str | None


def sign_place(place: Place, *, key: Path, identity: str | None = None) -> Signing:
    """Sign what is sealed and has no signature yet. EvidenceError where anything is invalid: then nothing is signed.

    MachineError while it is being run or let go of: what is signed is to stay.
    """
    if not os.path.isfile(key):  # noqa: PTH113  one that is denied is none
        raise InputError("sign.key", "there is no such file", file=str(key))
    name = _identity(key, identity)
    with still(place):
        return _sign(place, key=key, name=name)


def _sign(place: Place, *, key: Path, name: str | None) -> Signing:
    sealed = list(sealed_at(place))
    for paths in sealed:
        # What a signing that was cut off left behind.
        with suppress(OSError):
            beside(signature_beside(seal_of(paths))).unlink()
    found = examine_place(place, is_strict=True)
    for each in found.examined:
        if each.status is Status.INVALID:
            problem = each.problems[0]
            what = f"{each.kind} {each.name} is invalid, so nothing was signed: {problem.detail}"
            raise EvidenceError(
                problem.code, what, file=problem.file, suggestion=f"proctor validate --strict {place.folder}"
            )
    if not sealed:
        raise EvidenceError("evidence.partial", "nothing here has a seal", file=str(place.folder))
    check = SignatureCheck(None)
    is_kept = {paths: check.check(seal_of(paths)) is not None for paths in sealed}
    to_sign = [paths for paths in sealed if not is_kept[paths]]
    signer = sign_files([seal_of(paths) for paths in to_sign], key=key) if to_sign else None
    return Signing(
        exit=found.exit,
        signed=tuple(str(seal_of(paths)) for paths in to_sign),
        kept=tuple(str(seal_of(paths)) for paths in sealed if is_kept[paths]),
        fingerprint=None if signer is None else signer.fingerprint,
        allowed_signer=None if signer is None else signer.allowed_line(name or signer.fingerprint),
    )


def _identity(key: Path, given: str | None) -> str | None:
    """The name asked for, else the key's own comment, where that can stand for somebody."""
    if given is not None:
        if not _IDENTITY.fullmatch(given):
            raise InputError("usage", f"{given!r} cannot name a signer: no spaces, commas, quotes, * ? or !")
        return given
    public = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    try:
        comment = public.read_text(encoding="utf-8", errors="replace").strip().split(maxsplit=2)[2]
    except (OSError, IndexError):
        return None
    return comment if _IDENTITY.fullmatch(comment) else None
