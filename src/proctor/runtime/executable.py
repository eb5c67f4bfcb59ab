"""Find an agent program, hash it once after each change, and compare it with the wheel it was installed from."""

import base64
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import anyio.to_thread
import msgspec

from proctor import decoding, places
from proctor.contain.bundled import bundled_file
from proctor.contain.identity import ProcessIdentity, command_line
from proctor.contain.launch import wrap
from proctor.errors import HangupError, MachineError
from proctor.fact import Authority, Fact
from proctor.runtime.base import Executable, HostRequest, Launcher
from proctor.transport.process import AgentProcess, StopDeadlines, open_process, run_once

AGENTS_VARIABLE: Final = "PROCTOR_AGENTS"
"""Names a folder of agents that are installed for Proctor only: wheels below `python`, npm packages below `node`."""

_VERSION_S: Final = 30.0
_LAUNCH_S: Final = 10.0


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


# ── launchers, and the program that really runs ──


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """A command of an agent program that answers one line of input with output, and then waits for more input."""

    arguments: tuple[str, ...]
    line: bytes


async def follow_launcher(request: HostRequest, greeting: Greeting, *, env: Mapping[str, str]) -> Executable:
    """Return the program that really runs. A script is run once, to see which program answers for it.

    What a script starts can change while the script does not, so this is never cached. A script that starts no other
    program, or that does not answer, is the program itself. Raises MachineError if it cannot be started.
    """
    program = request.program
    if not await anyio.to_thread.run_sync(_is_script, Path(program.start_path)):
        return program
    argv = [program.start_path, *greeting.arguments]
    marker = f"{request.process}.launcher"
    plan = wrap(request.containment, argv, env={**request.env, **env}, cwd=request.home, marker=marker)
    found: Executable | None = None
    with anyio.move_on_after(_LAUNCH_S), suppress(HangupError):
        async with open_process(plan, intents=request.intents, deadlines=StopDeadlines(eof_s=0, term_s=0)) as process:
            await process.send(greeting.line + b"\n")
            if await process.receive():
                # While the process runs: its executable can be read even if the file has been replaced.
                found = await anyio.to_thread.run_sync(_native, program, process.writers())
    return found or program


def _is_script(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(2) == b"#!"
    except OSError:
        return False


def _native(program: Executable, writers: Sequence[ProcessIdentity]) -> Executable | None:
    """Return what the last of the processes runs, if the launcher started it. None if that is the launcher itself."""
    files = list(_files_of(writers[-1])) if writers else []
    if not files or files[-1].path == program.start_path:
        return None
    return msgspec.structs.replace(
        program,
        real_path=files[-1].path,
        sha256=files[-1].sha256,
        size_bytes=files[-1].size_bytes,
        launcher=Launcher(path=program.real_path, sha256=program.sha256),
    )


_SCRIPTS: Final = frozenset({".cjs", ".js", ".mjs", ".py"})
"""Endings of scripts, which may lack a `#!` line."""


class _RunningFile(NamedTuple):
    path: str
    sha256: str
    size_bytes: int


def _files_of(process: ProcessIdentity) -> Iterator[_RunningFile]:
    """Yield the executable of a process, then the first of its arguments that is a script, if there is one.

    A process may replace its command line, and then its script is not found. Files that cannot be read are left out.
    Other files, such as settings, are arguments of the executable itself.
    """
    # Through /proc, the executable can be read even if the file has been replaced or has another name outside.
    files = {process.exe or "": Path(f"/proc/{process.pid}/exe")}
    words = (Path(word) for word in command_line(process.pid)[1:] if word.startswith("/"))
    arguments = (str(path) for path in words if path.is_file() and (path.suffix in _SCRIPTS or _is_script(path)))
    files |= {word: Path(word) for word in islice(arguments, 1)}
    for path, file in files.items():
        with suppress(OSError, MachineError):
            status = file.stat()
            yield _RunningFile(path, _cached_sha256(file, status), status.st_size)


def running_fact(program: Executable, process: AgentProcess) -> Fact:
    """Return the fact `runningProgram`: the program that answers, and whether it is the one that was located.

    Call it after the first output: a launcher may need a moment to start the program.
    """
    running = [list(_files_of(writer)) for writer in process.writers()]
    executables = [files[0] for files in running if files]
    if not executables:
        return Fact(value=None, authority=Authority.UNKNOWN, source="no process of the agent could be examined")
    located = next((file for files in running for file in files if file.sha256 == program.sha256), None)
    file = located or executables[-1]
    # A script whose interpreter shows another command line can neither be recognized nor ruled out.
    is_located = True if located is not None else None if _is_script(Path(program.real_path)) else False
    return Fact(
        value={"path": file.path, "sha256": file.sha256, "isLocated": is_located},
        authority=Authority.OBSERVED,
        source="/proc/PID/exe of the process that answers",
    )


def refuse_other_program(program: Executable, running: Fact) -> None:
    """Raise MachineError if the program that runs is not the one that was located. Unknown is not refused."""
    if running.value is not None and running.value["isLocated"] is False:
        what = f"{running.value['path']} runs (sha256 {running.value['sha256']}), but {program.real_path} was located"
        raise MachineError("machine.binary-changed", f"{what} (sha256 {program.sha256})")


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
    files = {executable.real_path: executable.sha256}
    if executable.launcher is not None:
        files[executable.launcher.path] = executable.launcher.sha256
    changed = [now for name, before in files.items() if (now := _sha256_now(Path(name))) != before]
    return Fact(
        value=f"changed: {', '.join(changed)}" if changed else "same",
        authority=Authority.OBSERVED,
        source="the file and its launcher after the session, hashed again if its size, times or inode changed",
    )


def _sha256_now(file: Path) -> str:
    try:
        return _cached_sha256(file, file.stat())
    except (OSError, MachineError) as error:
        return f"unreadable: {error}"


# ── cached digests and versions ──


# Caches of this process, used by every session: sha256 by file, version by the program's cache key.
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
    """Return what the program prints for `--version`, run once for each program. None if it fails or prints nothing."""
    digest = request.program.cache_key
    if (version := _versions.get(digest)) is not None:
        return version
    known = await anyio.to_thread.run_sync(_read_cache, "versions.json")
    if digest not in known:
        argv = [request.program.start_path, "--version"]
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
        return decoding.decode((places.cache_dir() / file_name).read_bytes(), dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _write_cache(file_name: str, known: Mapping[str, str]) -> None:
    with suppress(OSError):  # the value is then computed again next time
        places.write_private(places.cache_dir() / file_name, msgspec.json.encode(known))
