"""Which line of the spec an error comes from that was found when the spec met this machine."""

from collections.abc import Iterator
from contextlib import contextmanager

from proctor.errors import InputError
from proctor.spec.load import LoadedSpec


@contextmanager
def blamed(loaded: LoadedSpec, *, key: str = "") -> Iterator[None]:
    """An input error raised inside is told with its place: `key`, and what the error itself says of the way on."""
    try:
        yield
    except InputError as error:
        where = ".".join(part for part in (key, error.key) if part)
        raise InputError(
            error.code, error.what, file=loaded.file, line=loaded.line_of(where), key=where, suggestion=error.suggestion
        ) from error
