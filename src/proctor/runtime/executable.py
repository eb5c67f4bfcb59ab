"""Which program runs: found, hashed once a change, and compared with what it was installed as."""

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
from proctor.runtime.base import Executable, HostAsk
from proctor.transport.process import run_once

AGENTS_VARIABLE: Final = "PROCTOR_AGENTS"
"""Names a folder that agents are installed in for Proctor alone: wheels below `python`, npm packages below `node`."""

_VERSION_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that a wheel carries, and everywhere else to look for it. `install` says how it is to be had.

    `is_package_itself` where the wheel is nothing but the program, and has its version.
    """

    name: str
    command: str
    override: str
    package: str
    module: str
    file: str
    install: str
    is_package_itself: bool = False


def agents_dir() -> Path | None:
    """The folder that is named, else the one that was installed last into the user's cache."""
    named = os.environ.get(AGENTS_VARIABLE)
    folder = Path(named) if named else places.cache_dir() / "agents" / "current"
    return folder.resolve() if folder.is_dir() else None


def find(program: Program) -> Executable:
    """The override, else the wheel's own in our environment or among our agents, else the command on PATH."""
    if named := os.environ.get(program.override):
        mend = f"or unset {program.override}, which names this one"
        return identify(Path(named), source="env-override", install=f"{program.install}, {mend}")
    folder = agents_dir()
    if (bundled := bundled_file(program.module, program.file)) is not None:
        return _of_wheel(program, bundled, in_folder=None)
    if folder is not None and (installed := folder / "python" / program.module / program.file).is_file():
        return _of_wheel(program, installed, in_folder=folder / "python")
    on_path = shutil.which(program.command)
    if on_path is None:
        what = f"no {program.name}: install {program.install}, or set {program.override}"
        raise MachineError("machine.binary-missing", what)
    return identify(Path(on_path), source="system-path", install=program.install)


def _of_wheel(program: Program, path: Path, *, in_folder: Path | None) -> Executable:
    found = identify(path, source="bundled-package", install=program.install)
    search = sys.path if in_folder is None else [str(in_folder)]
    try:
        wheel = next(iter(Distribution.discover(name=program.package, path=search)))
    except (StopIteration, PackageNotFoundError):
        return found
    # The lock pins the wheel, the wheel's RECORD pins the file.
    recorded = {str(file): file.hash for file in wheel.files or ()}.get(f"{program.module}/{program.file}")
    locked = None
    if recorded is not None and recorded.mode == "sha256":
        locked = base64.urlsafe_b64decode(recorded.value + "=" * (-len(recorded.value) % 4)).hex()
    return msgspec.structs.replace(
        found,
        locked_sha256=locked,
        package=f"{program.package} {wheel.version}",
        package_version=wheel.version if program.is_package_itself else None,
    )


def identify(path: Path, *, source: str, install: str) -> Executable:
    """MachineError, with what to install, where there is no program at the path."""
    try:
        real = path.resolve(strict=True)
        status = real.stat()
        is_runnable = real.is_file() and os.access(real, os.X_OK)
    except OSError as error:
        raise MachineError("machine.binary-missing", f"{path}: {error.strerror}; install {install}") from error
    if not is_runnable:
        raise MachineError("machine.binary-missing", f"{path} cannot be executed; install {install}")
    return Executable(
        path=str(path),
        real_path=str(real),
        sha256=_cached_sha256(real, status),
        size_bytes=status.st_size,
        source=source,
        shims=tuple(_shims(path)),
    )


def _shims(path: Path) -> Iterator[str]:
    """The links that lead from one path to the file."""
    while path.is_symlink():
        path = path.parent / path.readlink()
        yield str(path)


def identity_fact(executable: Executable) -> Fact:
    is_locked = executable.is_locked
    return Fact(
        value=msgspec.to_builtins(executable),
        authority=Authority.VERIFIED if is_locked else Authority.OBSERVED,
        source="sha256 of the file, compared with its wheel's RECORD" if is_locked else "sha256 of the file",
    )


def recheck(executable: Executable) -> Fact:
    """Whether the file is still the one that was started; said after a session."""
    real = Path(executable.real_path)
    try:
        now = _cached_sha256(real, real.stat())
    except (OSError, MachineError) as error:
        now = f"gone: {error}"
    return Fact(
        value="same" if now == executable.sha256 else f"changed: {now}",
        authority=Authority.OBSERVED,
        source="the file after the session: hashed again where anything about it has changed",
    )


# ── what is remembered of a file ──


# What this process itself has looked up, and asks for again with every session: sha256 by file, version by sha256.
_identities: dict[str, str] = {}
_versions: dict[str, str] = {}


def _cached_sha256(file: Path, status: os.stat_result) -> str:
    # Hashing 300 MB takes 0.4 s; every kind of change to the file changes one of these five numbers.
    key = f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"
    if (digest := _identities.get(key)) is not None:
        return digest
    known = _remembered("identities.json")
    if key not in known:
        try:
            with file.open("rb") as stream:
                known[key] = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise MachineError("machine.binary-missing", f"{file} cannot be read: {error.strerror}") from error
        _remember("identities.json", known)
    _identities[key] = known[key]
    return known[key]


async def reported_version(ask: HostAsk, *, env: Mapping[str, str], timeout_s: float = _VERSION_S) -> str | None:
    """What the program says to `--version`, asked once for each digest; None where it says nothing of use."""
    digest = ask.program.sha256
    if (version := _versions.get(digest)) is not None:
        return version
    known = await anyio.to_thread.run_sync(_remembered, "versions.json")
    if digest not in known:
        argv = [ask.program.real_path, "--version"]
        plan = wrap(ask.containment, argv, env={**ask.env, **env}, cwd=ask.home, marker=f"{ask.process}.version")
        done = await run_once(plan, intents=ask.intents, timeout_s=timeout_s, max_output_bytes=4096)
        said = done.stdout.decode(errors="replace").strip()
        if done.exit is None or done.exit.code != 0 or not said:
            return None
        known[digest] = said
        await anyio.to_thread.run_sync(_remember, "versions.json", known)
    _versions[digest] = known[digest]
    return known[digest]


def _remembered(book: str) -> dict[str, str]:
    try:
        return msgspec.json.decode((places.cache_dir() / book).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _remember(book: str, known: Mapping[str, str]) -> None:
    path = places.cache_dir() / book
    draft = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):  # then it is found out again next time
        draft.write_bytes(msgspec.json.encode(known))
        draft.replace(path)
