"""Find an agent program, hash it once after each change, and compare it with the wheel it was installed from."""

import base64
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Final

import anyio
import msgspec

from proctor import places
from proctor.contain.bundled import bundled_file
from proctor.contain.launch import wrap
from proctor.errors import MachineError
from proctor.fact import Authority, Fact
from proctor.runtime.base import Executable, HostRequest
from proctor.transport.process import run_once

AGENTS_VARIABLE: Final = "PROCTOR_AGENTS"
"""Names a folder of agents that are installed for Proctor only: wheels below `python`, npm packages below `node`."""

_VERSION_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSource:
    """The places where an agent program can be found."""

    name: str
    """The program's name in messages."""
    command: str
    """Its command on PATH."""
    override: str
    """The environment variable that names the program's file and takes precedence."""
    package: str
    """The wheel that contains the program."""
    module: str
    """The module of that wheel."""
    file: str
    """The program's path inside the module."""
    install: str
    """What to install, for messages."""
    is_package_itself: bool = False
    """Whether the wheel contains only the program and has the same version."""


def agents_dir() -> Path | None:
    """Return the folder that PROCTOR_AGENTS names, or else the current one in the user's cache. None if missing."""
    value = os.environ.get(AGENTS_VARIABLE)
    folder = Path(value) if value else places.cache_dir() / "agents" / "current"
    return folder.resolve() if folder.is_dir() else None


def find(program: ProgramSource) -> Executable:
    """Find a program: the override, then its wheel in this environment or in `agents_dir`, then the command on PATH.

    Raises MachineError if none of them exists.
    """
    if override := os.environ.get(program.override):
        fix = f"or unset {program.override}, which names this file"
        return identify(Path(override), source="env-override", install=f"{program.install}, {fix}")
    folder = agents_dir()
    if (bundled := bundled_file(program.module, program.file)) is not None:
        return _identify_in_wheel(program, bundled, in_folder=None)
    if folder is not None and (installed := folder / "python" / program.module / program.file).is_file():
        return _identify_in_wheel(program, installed, in_folder=folder / "python")
    on_path = shutil.which(program.command)
    if on_path is None:
        what = f"{program.name} was not found: install {program.install}, or set {program.override}"
        raise MachineError("machine.binary-missing", what)
    return identify(Path(on_path), source="system-path", install=program.install)


def _identify_in_wheel(program: ProgramSource, path: Path, *, in_folder: Path | None) -> Executable:
    executable = identify(path, source="bundled-package", install=program.install)
    search = sys.path if in_folder is None else [str(in_folder)]
    try:
        wheel = next(iter(Distribution.discover(name=program.package, path=search)))
    except (StopIteration, PackageNotFoundError):
        return executable
    # The lock pins the wheel, and the wheel's RECORD pins the file.
    recorded = {str(file): file.hash for file in wheel.files or ()}.get(f"{program.module}/{program.file}")
    locked = None
    if recorded is not None and recorded.mode == "sha256":
        locked = base64.urlsafe_b64decode(recorded.value + "=" * (-len(recorded.value) % 4)).hex()
    return msgspec.structs.replace(
        executable,
        locked_sha256=locked,
        package=f"{program.package} {wheel.version}",
        package_version=wheel.version if program.is_package_itself else None,
    )


def identify(path: Path, *, source: str, install: str) -> Executable:
    """Return the identity of a program file.

    Raises MachineError if there is no executable file at the path. `install` completes its message: what to install.
    """
    try:
        real = path.resolve(strict=True)
        status = real.stat()
        is_runnable = real.is_file() and os.access(real, os.X_OK)
    except OSError as error:
        raise MachineError("machine.binary-missing", f"{path}: {error.strerror}; install {install}") from error
    if not is_runnable:
        raise MachineError("machine.binary-missing", f"{path} is not executable; install {install}")
    return Executable(
        path=str(path),
        real_path=str(real),
        sha256=_cached_sha256(real, status),
        size_bytes=status.st_size,
        source=source,
        shims=tuple(_shims(path)),
    )


def _shims(path: Path) -> Iterator[str]:
    """Yield the targets of the symbolic links that lead from a path to the file."""
    while path.is_symlink():
        path = path.parent / path.readlink()
        yield str(path)


def identity_fact(executable: Executable) -> Fact:
    is_locked = executable.is_locked
    return Fact(
        value=msgspec.to_builtins(executable),
        authority=Authority.VERIFIED if is_locked else Authority.OBSERVED,
        source="sha256 of the file, equal to the one in its wheel's RECORD" if is_locked else "sha256 of the file",
    )


def recheck(executable: Executable) -> Fact:
    """Return the fact whether the file is still the one that was started. Called after a session."""
    real = Path(executable.real_path)
    try:
        now = _cached_sha256(real, real.stat())
    except (OSError, MachineError) as error:
        now = f"unreadable: {error}"
    return Fact(
        value="same" if now == executable.sha256 else f"changed: {now}",
        authority=Authority.OBSERVED,
        source="the file after the session, hashed again if its size, times or inode changed",
    )


# ── cached digests and versions ──


# Caches of this process, used by every session: sha256 by file, version by sha256.
_identities: dict[str, str] = {}
_versions: dict[str, str] = {}


def _cached_sha256(file: Path, status: os.stat_result) -> str:
    # Hashing 300 MB takes 0.4 s. Any change to the file changes one of these five numbers.
    key = f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"
    if (digest := _identities.get(key)) is not None:
        return digest
    known = _read_cache("identities.json")
    if key not in known:
        try:
            with file.open("rb") as stream:
                known[key] = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise MachineError("machine.binary-missing", f"{file} cannot be read: {error.strerror}") from error
        _write_cache("identities.json", known)
    _identities[key] = known[key]
    return known[key]


async def reported_version(
    request: HostRequest, *, env: Mapping[str, str], timeout_s: float = _VERSION_S
) -> str | None:
    """Return what the program prints for `--version`, run once for each digest. None if it fails or prints nothing."""
    digest = request.program.sha256
    if (version := _versions.get(digest)) is not None:
        return version
    known = await anyio.to_thread.run_sync(_read_cache, "versions.json")
    if digest not in known:
        argv = [request.program.real_path, "--version"]
        plan = wrap(
            request.containment, argv, env={**request.env, **env}, cwd=request.home, marker=f"{request.process}.version"
        )
        done = await run_once(plan, intents=request.intents, timeout_s=timeout_s, max_output_bytes=4096)
        output = done.stdout.decode(errors="replace").strip()
        if done.exit is None or done.exit.code != 0 or not output:
            return None
        known[digest] = output
        await anyio.to_thread.run_sync(_write_cache, "versions.json", known)
    _versions[digest] = known[digest]
    return known[digest]


def _read_cache(file_name: str) -> dict[str, str]:
    try:
        return msgspec.json.decode((places.cache_dir() / file_name).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _write_cache(file_name: str, known: Mapping[str, str]) -> None:
    path = places.cache_dir() / file_name
    draft = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):  # the value is then computed again next time
        draft.write_bytes(msgspec.json.encode(known))
        draft.replace(path)
