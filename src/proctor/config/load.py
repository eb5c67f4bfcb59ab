"""Load the config: the nearest proctor.toml in a folder or its parents, and the user's config file."""

from pathlib import Path
from typing import Final

from proctor import places
from proctor.config.model import Config, ConfigFile
from proctor.config.tree import read_toml
from proctor.errors import InputError
from proctor.spec.source_file import SourceFile, decode_tree, read_source

PROJECT: Final = "proctor.toml"


def load_config(start: Path) -> Config:
    """Load the config for specs in `start`. Raises InputError with all errors of a file."""
    folder = start.absolute()
    nearest = next((each / PROJECT for each in (folder, *folder.parents) if _is_file(each / PROJECT)), None)
    paths = [path for path in (nearest, places.config_file()) if path is not None and _is_file(path)]
    return Config(home=paths[0] if paths else folder / PROJECT, files=tuple(map(_read, paths)))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a parent folder that is not accessible
        return False


def _read(path: Path) -> SourceFile[ConfigFile]:
    data = read_source(path)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("config.syntax", f"not UTF-8: {error.reason}", file=str(path), line=line) from error
    return decode_tree(read_toml(text, file=str(path)), ConfigFile, file=str(path))
