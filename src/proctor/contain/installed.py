"""Find the files and folders that the programs on a search path need at run time, by following links."""

# ruff: noqa: PTH118, PTH119, PTH120  hundreds of links are followed, and pathlib costs several times the kernel's work
import os
from typing import Final

_PROGRAM_FOLDERS: Final = ("bin", "sbin", "shims")
# Siblings of a program folder that its programs need. Not `share`, `etc` or the whole parent folder: below a home
# those hold key rings, histories and tokens.
_SIBLINGS: Final = ("lib", "lib64", "libexec", "versions", "version", "pyvenv.cfg")


def installed(search_path: str, *, program: str = "") -> frozenset[str]:
    """Return the folders of a search path, their installed siblings such as `lib`, and the same for all link targets.

    Links matter because the python of a virtual environment is a link into another installation. Siblings matter
    because a shim is a script that looks for files next to its own folder. If a link or `program` leads to a file
    outside a program folder such as `bin`, only that file is included.
    """
    paths: set[str] = set()
    folders = [entry for entry in search_path.split(os.pathsep) if entry.startswith("/")]
    files = [program, os.path.realpath(program)] if program.startswith("/") else []
    while folders or files:
        if files:
            file = files.pop()
            folder = os.path.dirname(file)
            if os.path.basename(folder) not in _PROGRAM_FOLDERS:
                paths.add(file)
                continue
        else:
            folder = folders.pop()
        if folder not in paths:
            paths.add(folder)
            folders.append(os.path.realpath(folder))
            files += _link_targets(folder)
            if os.path.basename(folder) in _PROGRAM_FOLDERS:
                paths.update(os.path.join(os.path.dirname(folder), name) for name in _SIBLINGS)
    return frozenset(paths)


def _link_targets(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [os.path.realpath(entry.path) for entry in entries if entry.is_symlink()]
    except OSError:
        return []
