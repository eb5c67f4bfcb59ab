"""The config of a place: the nearest proctor.toml upwards, over the user's own."""

from pathlib import Path
from typing import Final

from proctor import places
from proctor.config.model import Config, ConfigFile
from proctor.config.tree import read_toml
from proctor.errors import InputError
from proctor.spec.marked import Marked, decode_tree, read_source

PROJECT: Final = "proctor.toml"


def load_config(start: Path) -> Config:
    """What holds for specs in `start`. InputError with file, line and key for all that is wrong with a file."""
    folder = start.absolute()
    nearest = next((each / PROJECT for each in (folder, *folder.parents) if _is_file(each / PROJECT)), None)
    own = places.config_file()
    found = [path for path in (nearest, own) if path is not None and _is_file(path)]
    return Config(home=found[0] if found else folder / PROJECT, files=tuple(map(_read, found)))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder above that may not be entered
        return False


def _read(path: Path) -> Marked[ConfigFile]:
    data = read_source(path)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("config.syntax", f"not UTF-8: {error.reason}", file=str(path), line=line) from error
    return decode_tree(read_toml(text, file=str(path)), ConfigFile, file=str(path))
