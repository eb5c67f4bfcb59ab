"""Adds the line of the spec to errors found when the spec is checked against this machine."""

from collections.abc import Iterator
from contextlib import contextmanager

from proctor.errors import InputError
from proctor.spec.load import LoadedSpec


@contextmanager
def locate_errors(loaded: LoadedSpec, *, key: str = "") -> Iterator[None]:
    """Add file, line and key to an input error raised inside. The error's own key is appended to `key`."""
    try:
        yield
    except InputError as error:
        where = ".".join(part for part in (key, error.key) if part)
        raise InputError(
            error.code, error.what, file=loaded.file, line=loaded.line_of(where), key=where, suggestion=error.suggestion
        ) from error
