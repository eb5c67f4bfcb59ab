"""Raise several input errors together, in order."""

from collections.abc import Iterable
from typing import Final, NoReturn

from proctor.errors import CollectedInputError, InputError
from proctor.spec.literal import mask_secrets

MAX_ERRORS: Final = 100


def raise_collected(errors: Iterable[InputError]) -> NoReturn:
    """Raise one error as itself, or several as one CollectedInputError with at most MAX_ERRORS.

    Files are in the order of their first error, and the errors of a file in the order of their lines.
    """
    ordered = list(errors)
    files = {error.file: at for at, error in reversed(list(enumerate(ordered)))}
    ordered.sort(key=lambda error: (files[error.file], error.line or 0))
    masked = [_mask(error) for error in ordered[:MAX_ERRORS]]
    raise masked[0] if len(masked) == 1 else CollectedInputError(tuple(masked))


def _mask(error: InputError) -> InputError:
    """Mask secrets in the texts of an error: a user may write one in place of a name, an id or a path."""
    key, suggestion = (text and mask_secrets(text) for text in (error.key, error.suggestion))
    what = mask_secrets(error.what)
    if (what, key, suggestion) == (error.what, error.key, error.suggestion):
        return error
    return InputError(error.code, what, file=error.file, line=error.line, key=key, suggestion=suggestion)
