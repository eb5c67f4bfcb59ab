"""SSH signatures beside seals: made and checked by ssh-keygen, offline, of the seal's very bytes."""

import base64
import binascii
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proctor.errors import EvidenceError, InputError, MachineError, disk_refusal
from proctor.evidence.disk import replace_file
from proctor.evidence.layout import signature_beside
from proctor.evidence.reader import read_bytes

NAMESPACE = "proctor-seal"
"""What such a signature is for: one that the same key made for anything else does not count."""

_MAX_BYTES = 16 * 1024
_AT_ONCE = 1000
# Somebody may have to type a passphrase, or touch a key.
_SIGN_S = 120
_CHECK_S = 30
_REFUSED = 255


class Signature(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A signature that holds. `identity` is None where no list of allowed signers says whose key it is."""

    fingerprint: str
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key as SSH spells it on the wire."""

    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")

    def allowed_line(self, identity: str) -> str:
        """What lets others check: a line for their list of allowed signers."""
        kind = next(_strings(self.blob)).decode()
        return f'{identity} namespaces="{NAMESPACE}" {kind} {base64.b64encode(self.blob).decode()}'


def sign_files(files: Sequence[Path], *, key: Path) -> PublicKey:
    """Put a signature beside each of these. InputError where the key cannot sign, MachineError where ssh-keygen cannot.

    The bytes are copied, and all copies signed by one call, so that a passphrase is asked for once.
    """
    signer = None
    for start in range(0, len(files), _AT_ONCE):
        batch = files[start : start + _AT_ONCE]
        with _copies([read_bytes(file) for file in batch]) as copies:
            done = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, *map(str, copies), deadline_s=_SIGN_S)
            if done.returncode != 0:
                raise InputError("sign.key", _last_line(done.stderr), file=str(key))
            for file, copy in zip(batch, copies, strict=True):
                made = signature_beside(copy).read_bytes()
                signer = _signer(made, file=file.name)
                replace_file(signature_beside(file), made)
    assert signer is not None, "there is something to sign"
    return signer


@contextmanager
def _copies(contents: Sequence[bytes]) -> Iterator[list[Path]]:
    """Private files with these contents, for ssh-keygen to open: what lies in evidence may be a pipe, or change."""
    try:
        scratch = tempfile.TemporaryDirectory(prefix="proctor-")
    except OSError as error:
        raise disk_refusal(error, path=Path(tempfile.gettempdir())) from error
    with scratch:
        copies = [Path(scratch.name, str(number)) for number in range(len(contents))]
        for copy, data in zip(copies, contents, strict=True):
            replace_file(copy, data, is_durable=False)
        yield copies


def load_allowed(path: Path) -> bytes:
    """A list of allowed signers, in the format that `man ssh-keygen` describes. Read once: it may be a pipe."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError("sign.allowed-signers", f"{error.strerror}", file=str(path)) from error


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """Checks signatures against a list of allowed signers; without one, that whatever key made them, they hold."""

    allowed: bytes | None
    _names: dict[bytes, tuple[str, ...]] = field(default_factory=dict)

    def check(self, file: Path) -> Signature | None:
        """Who signed this file; None where it has no signature. EvidenceError where it has one that does not hold."""
        beside = signature_beside(file)
        if not os.path.lexists(beside):
            return None
        made, data = read_bytes(beside, limit_bytes=_MAX_BYTES), read_bytes(file)
        signer = _signer(made, file=beside.name)
        with _copies([made, self.allowed or b""]) as (copy, allowed):
            if self.allowed is not None:
                if signer.blob not in self._names:
                    self._names[signer.blob] = _names_of(copy, allowed)
                for name in self._names[signer.blob]:
                    if _holds("verify", copy, data, "-f", str(allowed), "-I", name):
                        return Signature(identity=name, fingerprint=signer.fingerprint)
            if not _holds("check-novalidate", copy, data):
                what = f"not a signature of {file.name} as it is now"
                raise EvidenceError("evidence.signature", what, file=beside.name)
        if self.allowed is not None:
            what = f"nobody allowed to sign seals has the key {signer.fingerprint}"
            raise EvidenceError("evidence.signer", what, file=beside.name)
        return Signature(fingerprint=signer.fingerprint)


def _names_of(signature: Path, allowed: Path) -> tuple[str, ...]:
    found = _ssh_keygen("find-principals", "-f", str(allowed), "-s", str(signature))
    return tuple(found.stdout.decode(errors="replace").splitlines())


def _holds(operation: str, signature: Path, data: bytes, *more: str) -> bool:
    return _ssh_keygen(operation, *more, "-n", NAMESPACE, "-s", str(signature), data=data).returncode == 0


def _ssh_keygen(
    operation: str, *words: str, data: bytes = b"", deadline_s: float = _CHECK_S
) -> "subprocess.CompletedProcess[bytes]":
    """Ends with 0 or with a refusal; anything else is a MachineError."""
    program = shutil.which("ssh-keygen")
    if program is None:
        raise MachineError("machine.ssh-keygen", "there is no ssh-keygen on PATH")
    try:
        # Not contained like an agent: it is the user's own program, and may need their terminal and their SSH agent.
        done = subprocess.run(
            [program, "-Y", operation, *words], input=data, capture_output=True, timeout=deadline_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        what = f"ssh-keygen -Y {operation} did not end within {deadline_s:.0f} s"
        raise MachineError("machine.ssh-keygen", what) from error
    except OSError as error:
        raise MachineError("machine.ssh-keygen", f"{program}: {error.strerror}") from error
    if done.returncode not in (0, _REFUSED):
        what = f"ssh-keygen -Y {operation} ended with {done.returncode}: {_last_line(done.stderr)}"
        raise MachineError("machine.ssh-keygen", what)
    return done


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


# ── what a signature file holds ──
# PROTOCOL.sshsig in the sources of OpenSSH.

_FIRST, _LAST = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_PREAMBLE = b"SSHSIG\x00\x00\x00\x01"


def _signer(made: bytes, *, file: str) -> PublicKey:
    """The key that a signature names, which only ssh-keygen can say to be the key that made it."""
    try:
        first, *body, last = made.decode("ascii").strip().splitlines()
        held = base64.b64decode("".join(body), validate=True)
        if (first, last) != (_FIRST, _LAST) or not held.startswith(_PREAMBLE):
            raise ValueError("no SSH signature")
        strings = _strings(held[len(_PREAMBLE) :])
        key, namespace = next(strings), next(strings)
        next(_strings(key)).decode("ascii")
    except (ValueError, StopIteration, binascii.Error) as error:
        raise EvidenceError("evidence.signature", "not an SSH signature", file=file) from error
    if namespace != NAMESPACE.encode():
        raise EvidenceError("evidence.signature", f"made for {ascii(namespace)[2:-1]}, not for seals", file=file)
    return PublicKey(key)


def _strings(data: bytes) -> Iterator[bytes]:
    r"""SSH's strings, each with its length before it.

    >>> list(_strings(b"\0\0\0\2ab\0\0\0\0"))
    [b'ab', b'']
    """
    while data:
        length = int.from_bytes(data[:4])
        if len(data) < 4 + length:
            raise ValueError("cut short")
        yield data[4 : 4 + length]
        data = data[4 + length :]
