"""Identify the programs that a probe runs: the files behind its command and, for scripts, their interpreters."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from proctor.ids import Digest
from proctor.probe.model import ProbeProgram

_SHEBANG_BYTES: Final = 256
_MAX_INTERPRETERS: Final = 4
_MAX_WORDS: Final = 32
_WORD = re.compile(r"[^\s;&|<>(){}'\"`$=\\]+")

# Digests of this process only: a cache on disk could be changed by the agent whose work is judged.
_digests: dict[tuple[int, ...], Digest] = {}


def identify_programs(
    argv: Sequence[str], *, workspace: Path, search_path: str, agent_folders: Sequence[Path] | None = None
) -> tuple[ProbeProgram, ...]:
    """Return the programs of a command, in the order in which they are found.

    These are its first word, the interpreters of each script, and for a shell command (`bash -c`) every word that names
    a program on the search path. `agent_folders` are the only folders that the agent can write to; None if it can write
    wherever Proctor's user can.
    """
    names = [str(workspace / argv[0]) if "/" in argv[0] else argv[0]]
    if tuple(argv[:2]) == ("bash", "-c") and len(argv) == 3:
        names += [word for word in dict.fromkeys(_WORD.findall(argv[2])) if "/" not in word][:_MAX_WORDS]
    found: dict[str, ProbeProgram] = {}
    for at, name in enumerate(names):
        place = shutil.which(name, path=search_path)
        if place is None:
            # A word of a shell command is not always a program.
            found |= {} if at else {name: missing_program(name)}
            continue
        for file in _with_interpreters(place, search_path=search_path):
            program = _identify(file, workspace=workspace, agent_folders=agent_folders)
            found.setdefault(program.path, program)
    return tuple(found.values())


def missing_program(name: str) -> ProbeProgram:
    """Return the record of a program that does not exist."""
    return ProbeProgram(path=name, sha256=None, is_in_workspace=False, is_writable=False)


def _with_interpreters(file: str, *, search_path: str) -> Iterator[str]:
    """Yield the file and, if it is a script, its interpreter, and so on."""
    for _ in range(_MAX_INTERPRETERS):
        yield file
        words = _shebang(file)
        if not words:
            return
        if Path(words[0]).name == "env":
            yield words[0]
            # Options and variables come before the program.
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        place = shutil.which(words[0], path=search_path) if words else None
        if place is None:
            return
        file = place


def _shebang(file: str) -> list[str]:
    """Return the words of the first line of a script after `#!`; none for another file."""
    try:
        with Path(file).open("rb") as stream:
            head = stream.read(_SHEBANG_BYTES)
    except OSError:
        return []
    return os.fsdecode(head[2:].partition(b"\n")[0]).split() if head.startswith(b"#!") else []


def _identify(file: str, *, workspace: Path, agent_folders: Sequence[Path] | None) -> ProbeProgram:
    real = Path(file).resolve()
    top = workspace.resolve()
    is_in_workspace = real.is_relative_to(top)
    # Writing to the folder of the file, or of a link to it, is enough to put another file in its place.
    places = (real, real.parent, Path(file).parent)
    return ProbeProgram(
        path=str(real.relative_to(top)) if is_in_workspace else str(real),
        sha256=_digest(real),
        is_in_workspace=is_in_workspace,
        is_writable=any(_is_in(agent_folders, place) and os.access(place, os.W_OK) for place in places),
    )


def _is_in(folders: Sequence[Path] | None, place: Path) -> bool:
    return folders is None or any(place.resolve().is_relative_to(folder.resolve()) for folder in folders)


def _digest(file: Path) -> Digest | None:
    try:
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            # Any change to the file changes one of these five numbers.
            key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if key not in _digests:
                _digests[key] = Digest(f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}")
            return _digests[key]
    except OSError:
        return None
