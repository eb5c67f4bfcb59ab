"""What programs on a search path need beside themselves, found by where they lie and where their links lead."""

# ruff: noqa: PTH118, PTH119, PTH120  hundreds of links are followed, and pathlib costs several times the kernel's work
import os
from typing import Final

_PROGRAMS: Final = ("bin", "sbin", "shims")
# What an installation keeps beside its programs. Not `share`, `etc` or the folder as a whole: below a home those hold
# key rings, histories and tokens.
_BESIDE: Final = ("lib", "lib64", "libexec", "versions", "version", "pyvenv.cfg")


def installed(search_path: str, *, program: str = "") -> frozenset[str]:
    """The folders of the path, what was installed with them, and the same for every place that their links lead to.

    A virtual environment's python is a link into another installation, a shim a script that looks beside itself.
    Where a link, or the `program`, leads to a folder that is not one of programs, only the file counts.
    """
    found: set[str] = set()
    folders = [entry for entry in search_path.split(os.pathsep) if entry.startswith("/")]
    files = [program, os.path.realpath(program)] if program.startswith("/") else []
    while folders or files:
        if files:
            file = files.pop()
            folder = os.path.dirname(file)
            if os.path.basename(folder) not in _PROGRAMS:
                found.add(file)
                continue
        else:
            folder = folders.pop()
        if folder not in found:
            found.add(folder)
            folders.append(os.path.realpath(folder))
            files += _link_targets(folder)
            if os.path.basename(folder) in _PROGRAMS:
                found.update(os.path.join(os.path.dirname(folder), name) for name in _BESIDE)
    return frozenset(found)


def _link_targets(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [os.path.realpath(entry.path) for entry in entries if entry.is_symlink()]
    except OSError:
        return []
