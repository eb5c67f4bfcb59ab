"""Find pi, a Node script, and identify it by its entry file and its package."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from proctor.errors import MachineError
from proctor.runtime.base import Executable
from proctor.runtime.executable import agents_dir, identify

PACKAGE: Final = "@mariozechner/pi-coding-agent"
OVERRIDE: Final = "PROCTOR_PI"
MINIMUM_VERSION: Final = "0.73.0"
INSTALL: Final = f"{PACKAGE}@0.73.1 from npm"


T = TypeVar("T")


class _Package(msgspec.Struct):
    name: str = ""
    version: str = ""
    integrity: str = ""


class _Installed(msgspec.Struct):
    packages: dict[str, _Package] = {}


def locate(options: Mapping[str, Any]) -> Executable:
    """Find pi: $PROCTOR_PI, then the one in the folder PROCTOR_AGENTS, then `pi` on PATH."""
    if shutil.which("node") is None:
        raise MachineError("machine.binary-missing", "node was not found: pi needs Node 20 or newer on PATH")
    folder = agents_dir()
    ours = None if folder is None else folder / "node" / "node_modules" / PACKAGE / "dist" / "cli.js"
    on_path = shutil.which("pi")
    if named := os.environ.get(OVERRIDE):
        executable = identify(Path(named), source="env-override", install=INSTALL)
    elif ours is not None and ours.is_file():
        executable = identify(ours, source="agents-folder", install=INSTALL)
    elif on_path is not None:
        executable = identify(Path(on_path), source="system-path", install=INSTALL)
    else:
        raise MachineError("machine.binary-missing", f"pi was not found: install {INSTALL}, or set {OVERRIDE}")
    package = _package(Path(executable.real_path))
    if _numbers(package.version) < _numbers(MINIMUM_VERSION):
        what = f"pi {package.version or 'of unknown version'} is older than {MINIMUM_VERSION}; install {INSTALL}"
        raise MachineError("machine.binary-too-old", what)
    words = (package.name, package.version, package.integrity)
    return msgspec.structs.replace(executable, version=package.version, package=" ".join(filter(None, words)))


def installation(program: Executable) -> Path:
    """Return the folder of all packages that pi was installed with. It must be able to read them.

    >>> file = "/opt/agents/node_modules/pi/dist/cli.js"
    >>> installation(Executable(path=file, real_path=file, sha256="", size_bytes=0, source="")).as_posix()
    '/opt/agents/node_modules'
    """
    file = Path(program.real_path)
    folders = [parent for parent in file.parents if parent.name == "node_modules"]
    return folders[-1] if folders else file.parent


def _package(entry: Path) -> _Package:
    """Return the package of the entry file, from its package.json, with the integrity from npm's lock if it matches."""
    folder = next((parent for parent in entry.parents if (parent / "package.json").is_file()), entry.parent)
    package = _read(folder / "package.json", _Package())
    modules = next((parent for parent in folder.parents if parent.name == "node_modules"), folder)
    locked = _read(modules / ".package-lock.json", _Installed()).packages.get(f"node_modules/{package.name}")
    if locked is None or locked.version != package.version:
        return package
    return msgspec.structs.replace(package, integrity=locked.integrity)


def _read(file: Path, default: T) -> T:
    try:
        return msgspec.json.decode(file.read_bytes(), type=type(default))
    except (OSError, msgspec.DecodeError):
        return default


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
