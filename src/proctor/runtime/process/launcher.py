"""The script `proctor`, first on a contained command's PATH, that runs the same Proctor."""

import os
import shlex
import sys
from pathlib import Path

import msgspec

import proctor
from proctor.errors import disk_error

NAME = "proctor"


def packages() -> tuple[Path, ...]:
    """Return the folders of the packages that the script imports. They must be readable."""
    return tuple(Path(module.__path__[0]).resolve() for module in (proctor, msgspec))


def interpreter_folder() -> str:
    return os.path.dirname(sys.executable)  # noqa: PTH120  a virtual environment's python is known by its path


def write_launcher(folder: Path) -> Path:
    """Write the script to a new folder, and return its path."""
    script = folder / NAME
    # Isolated and without `site`, so that neither the workspace nor the user's settings affect imports.
    places = [str(each.parent) for each in packages()]
    code = f"import sys; sys.path += {places!r}; import proctor.__main__ as it; it.main()"
    words = [sys.executable, "-I", "-S", "-c", code]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        script.chmod(0o700)
    except OSError as error:
        raise disk_error(error, path=script) from error
    return script
