"""SSH signatures of seals, made and checked offline with ssh-keygen."""

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

from proctor.errors import EvidenceError, InputError, MachineError, disk_error
from proctor.evidence.disk import replace_file
from proctor.evidence.layout import signature_path
from proctor.evidence.reader import read_bytes

NAMESPACE = "proctor-seal"
"""Namespace of the signatures. A signature that the same key made for another purpose does not count."""

_MAX_BYTES = 16 * 1024
_BATCH_FILES = 1000
# The user may have to type a passphrase or touch a hardware key.
_SIGN_S = 120
_CHECK_S = 30
_REFUSED = 255


class Signature(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A valid signature."""

    fingerprint: str
    """Fingerprint of the key that made it, as `ssh-keygen -l` prints it."""
    identity: str | None = None
    """Principal of the key in the list of allowed signers. Null if no list was given."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key in SSH's wire format."""

    blob: bytes

    @property
    def fingerprint(self) -> str:
        """The fingerprint as `ssh-keygen -l` prints it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")

    def allowed_line(self, identity: str) -> str:
        """Return the line for a file of allowed signers, with which others check the signatures."""
        kind = next(_strings(self.blob)).decode()
        return f'{identity} namespaces="{NAMESPACE}" {kind} {base64.b64encode(self.blob).decode()}'


def sign_files(files: Sequence[Path], *, key: Path) -> PublicKey:
    """Sign each file with a private key, write the signatures next to the files, and return the public key.

    The files are copied and the copies signed in one call, so that ssh-keygen asks for a passphrase once. Raises
    InputError if the key cannot sign, and MachineError if ssh-keygen cannot run.
    """
    signer = None
    for start in range(0, len(files), _BATCH_FILES):
        batch = files[start : start + _BATCH_FILES]
        with _copies([read_bytes(file) for file in batch]) as copies:
            done = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, *map(str, copies), deadline_s=_SIGN_S)
            if done.returncode != 0:
                raise InputError("sign.key", _last_line(done.stderr), file=str(key))
            for file, copy in zip(batch, copies, strict=True):
                made = signature_path(copy).read_bytes()
                signer = _signer(made, file=file.name)
                replace_file(signature_path(file), made)
    assert signer is not None, "there is something to sign"
    return signer


@contextmanager
def _copies(contents: Sequence[bytes]) -> Iterator[list[Path]]:
    """Write contents to private temporary files for ssh-keygen: a file in evidence may be a pipe, or may change."""
    try:
        scratch = tempfile.TemporaryDirectory(prefix="proctor-")
    except OSError as error:
        raise disk_error(error, path=Path(tempfile.gettempdir())) from error
    with scratch:
        copies = [Path(scratch.name, str(number)) for number in range(len(contents))]
        for copy, data in zip(copies, contents, strict=True):
            replace_file(copy, data, is_durable=False)
        yield copies


def load_allowed(path: Path) -> bytes:
    """Read a file of allowed signers, in the format of `man ssh-keygen`. Raises InputError if it cannot be read.

    It is read once, because it may be a pipe.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError("sign.allowed-signers", f"{error.strerror}", file=str(path)) from error


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """Checks signatures."""

    allowed: bytes | None
    """Content of a file of allowed signers. Without one, a valid signature of any key is accepted."""
    _names: dict[bytes, tuple[str, ...]] = field(default_factory=dict)

    def check(self, file: Path) -> Signature | None:
        """Return the signature of a file; None if it has none.

        Raises EvidenceError if the signature is invalid or of a key that is not allowed.
        """
        path = signature_path(file)
        if not os.path.lexists(path):
            return None
        signature, data = read_bytes(path, limit_bytes=_MAX_BYTES), read_bytes(file)
        signer = _signer(signature, file=path.name)
        with _copies([signature, self.allowed or b""]) as (copy, allowed):
            if self.allowed is not None:
                if signer.blob not in self._names:
                    self._names[signer.blob] = _find_principals(copy, allowed)
                for name in self._names[signer.blob]:
                    if _is_valid("verify", copy, data, "-f", str(allowed), "-I", name):
                        return Signature(identity=name, fingerprint=signer.fingerprint)
            if not _is_valid("check-novalidate", copy, data):
                what = f"the signature does not match the current {file.name}"
                raise EvidenceError("evidence.signature", what, file=path.name)
        if self.allowed is not None:
            what = f"no allowed signer has the key {signer.fingerprint}"
            raise EvidenceError("evidence.signer", what, file=path.name)
        return Signature(fingerprint=signer.fingerprint)


def _find_principals(signature: Path, allowed: Path) -> tuple[str, ...]:
    result = _ssh_keygen("find-principals", "-f", str(allowed), "-s", str(signature))
    return tuple(result.stdout.decode(errors="replace").splitlines())


def _is_valid(operation: str, signature: Path, data: bytes, *more: str) -> bool:
    return _ssh_keygen(operation, *more, "-n", NAMESPACE, "-s", str(signature), data=data).returncode == 0


def _ssh_keygen(
    operation: str, *words: str, data: bytes = b"", deadline_s: float = _CHECK_S
) -> "subprocess.CompletedProcess[bytes]":
    """Run `ssh-keygen -Y`, which must exit with 0 or with a refusal. Raises MachineError otherwise."""
    program = shutil.which("ssh-keygen")
    if program is None:
        raise MachineError("machine.ssh-keygen", "ssh-keygen is not on PATH")
    try:
        # Not contained like an agent, because it may need the user's terminal and SSH agent.
        done = subprocess.run(
            [program, "-Y", operation, *words], input=data, capture_output=True, timeout=deadline_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        what = f"ssh-keygen -Y {operation} did not end within {deadline_s:.0f} s"
        raise MachineError("machine.ssh-keygen", what) from error
    except OSError as error:
        raise MachineError("machine.ssh-keygen", f"{program}: {error.strerror}") from error
    if done.returncode not in (0, _REFUSED):
        what = f"ssh-keygen -Y {operation} exited with {done.returncode}: {_last_line(done.stderr)}"
        raise MachineError("machine.ssh-keygen", what)
    return done


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output on stderr"


# ── the format of a signature file ──
# See PROTOCOL.sshsig in the sources of OpenSSH.

_FIRST, _LAST = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_PREAMBLE = b"SSHSIG\x00\x00\x00\x01"


def _signer(signature: bytes, *, file: str) -> PublicKey:
    """Return the key that a signature names. Only ssh-keygen can tell whether that key made it.

    Raises EvidenceError if the file is not a signature of a seal.
    """
    try:
        first, *body, last = signature.decode("ascii").strip().splitlines()
        blob = base64.b64decode("".join(body), validate=True)
        if (first, last) != (_FIRST, _LAST) or not blob.startswith(_PREAMBLE):
            raise ValueError("not an SSH signature")
        strings = _strings(blob[len(_PREAMBLE) :])
        key, namespace = next(strings), next(strings)
        next(_strings(key)).decode("ascii")
    except (ValueError, StopIteration, binascii.Error) as error:
        raise EvidenceError("evidence.signature", "not an SSH signature", file=file) from error
    if namespace != NAMESPACE.encode():
        raise EvidenceError(
            "evidence.signature", f"the namespace is {ascii(namespace)[2:-1]}, not {NAMESPACE}", file=file
        )
    return PublicKey(key)


def _strings(data: bytes) -> Iterator[bytes]:
    r"""Yield SSH's length-prefixed strings. Raises ValueError if the data is cut short.

    >>> list(_strings(b"\0\0\0\2ab\0\0\0\0"))
    [b'ab', b'']
    """
    while data:
        length = int.from_bytes(data[:4])
        if len(data) < 4 + length:
            raise ValueError("cut short")
        yield data[4 : 4 + length]
        data = data[4 + length :]
