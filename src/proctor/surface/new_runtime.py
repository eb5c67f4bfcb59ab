"""Write the package of a new runtime, which passes the one-turn case of the conformance suite as written."""

import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from proctor.config.plugins import offers_of
from proctor.errors import InputError, disk_error
from proctor.ids import RuntimeId
from proctor.model import dialects
from proctor.runtime import registry
from proctor.spec.model import AUTO

STARTER: Final = Path(__file__).parent / "runtime_starter"
"""The files that are copied. Their runtime has the name `mynah`."""

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_MAX_NAME: Final = 40
_FILES: Final = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "proctor.toml": "proctor.toml",
    "runtime.py": "src/proctor_mynah/__init__.py",
    "dialect.py": "src/proctor_mynah/dialect.py",
    "conformance.py": "tests/test_conformance.py",
    "stand_in.py": "tests/stand_in.py",
}


class NewRuntime(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A package that was written for a new runtime."""

    id: str
    """Id of the runtime."""
    folder: str
    """Folder of the package."""
    files: tuple[str, ...]
    """Files that were written, relative to the folder."""
    next: tuple[str, ...]
    """Commands that install the package and run its test, in this order."""


def write_runtime(name: str, *, parent: Path) -> NewRuntime:
    """Write the package `proctor-NAME` to a new folder below `parent`.

    Raises InputError if the name is not valid or is taken, or if the folder exists. Raises MachineError if the files
    cannot be written.
    """
    _check_name(name)
    folder = parent / f"proctor-{name.replace('_', '-')}"
    files = {_rename(path, name): _rename((STARTER / source).read_text(), name) for source, path in _FILES.items()}
    try:
        folder.mkdir(parents=True)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        (folder / "tests" / "stand_in.py").chmod(0o755)
    except FileExistsError as error:
        what = "the folder exists already, and was not changed"
        suggestion = "Choose another name, or remove the folder."
        raise InputError("usage", what, file=str(folder), suggestion=suggestion) from error
    except OSError as error:
        raise disk_error(error, path=folder) from error
    python = shlex.quote(sys.executable)
    # An environment that uv made has no pip.
    pip = f"uv pip install --python {python}" if find_spec("pip") is None else f"{python} -m pip install"
    commands = (
        f"{pip} --editable {shlex.quote(f'{folder}[test]')}",
        f"{python} -m pytest {shlex.quote(str(folder))}",
    )
    return NewRuntime(id=name, folder=str(folder), files=tuple(files), next=commands)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        what = f"{name!r} cannot be the id of a runtime"
        rule = f"Use at most {_MAX_NAME} lower-case letters, digits and single underscores, with a letter first."
        raise InputError("usage", what, suggestion=rule)
    offers = {**offers_of(dialects.GROUP), **registry.offers()}
    if name == AUTO or name in offers:
        owner = "Proctor itself" if name not in offers else " and ".join(offers[RuntimeId(name)].distributions)
        raise InputError("usage", f"{name!r} is used by {owner}", suggestion="Choose another name.")


def _rename(text: str, name: str) -> str:
    """Replace the name of the starter in all spellings.

    >>> _rename("MynahHost of proctor-mynah reads PROCTOR_MYNAH in proctor_mynah.dialect", "my_bird")
    'MyBirdHost of proctor-my-bird reads PROCTOR_MY_BIRD in proctor_my_bird.dialect'
    """
    spellings = {
        "proctor-mynah": f"proctor-{name.replace('_', '-')}",
        "Mynah": "".join(word.capitalize() for word in name.split("_")),
        "MYNAH": name.upper(),
        "mynah": name,
    }
    return re.sub("|".join(spellings), lambda found: spellings[found[0]], text)
