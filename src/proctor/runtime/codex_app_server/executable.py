"""Which Codex program runs: found, hashed once a change, and compared with what its wheel says it is."""

import base64
import hashlib
import importlib.metadata
import os
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from proctor import places
from proctor.contain.bundled import CODEX_WHEEL, bundled_file
from proctor.errors import MachineError
from proctor.runtime.base import Executable
from proctor.runtime.codex_app_server.claims import INSTALL

PACKAGE = "openai-codex-cli-bin"
OVERRIDE = "PROCTOR_CODEX"


def locate() -> Executable:
    """$PROCTOR_CODEX, else the installed wheel's own binary, else `codex` on PATH."""
    override = os.environ.get(OVERRIDE)
    if override:
        return _identify(Path(override), source="override")
    bundled = bundled_file(CODEX_WHEEL, "bin/codex")
    if bundled is not None:
        return _identify(bundled, source="bundled-package", locked_sha256=_recorded_sha256("bin/codex"))
    on_path = shutil.which("codex")
    if on_path is None:
        raise MachineError("machine.binary-missing", f"no Codex: install {INSTALL}, or set {OVERRIDE}")
    return _identify(Path(on_path), source="system-path")


def _recorded_sha256(name: str) -> str | None:
    """What the wheel's RECORD says the file is: the lock pins the wheel, the wheel pins the file."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if str(file) == f"{CODEX_WHEEL}/{name}" and file.hash is not None and file.hash.mode == "sha256":
            value = file.hash.value
            return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
    return None


def _identify(path: Path, *, source: str, locked_sha256: str | None = None) -> Executable:
    try:
        real = path.resolve(strict=True)
        status = real.stat()
        is_runnable = real.is_file() and os.access(real, os.X_OK)
    except OSError as error:
        raise MachineError("machine.binary-missing", f"{path}: {error.strerror}; install {INSTALL}") from error
    if not is_runnable:
        raise MachineError("machine.binary-missing", f"{path} cannot be executed; install {INSTALL}")
    return Executable(
        path=str(path),
        real_path=str(real),
        sha256=_cached_sha256(real, status),
        size_bytes=status.st_size,
        source=source,
        locked_sha256=locked_sha256,
    )


def _cached_sha256(file: Path, status: os.stat_result) -> str:
    # Hashing 300 MB takes 0.4 s; every kind of change to the file changes one of these five numbers.
    key = "-".join(
        str(n) for n in (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    )
    book = places.cache_dir() / "identities.json"
    try:
        known = msgspec.json.decode(book.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        known = {}
    if key not in known:
        try:
            with file.open("rb") as stream:
                known[key] = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise MachineError("machine.binary-missing", f"{file} cannot be read: {error.strerror}") from error
        draft = book.with_suffix(f".{os.getpid()}")
        with suppress(OSError):  # then it is hashed again next time
            draft.write_bytes(msgspec.json.encode(known))
            draft.replace(book)
    return known[key]
