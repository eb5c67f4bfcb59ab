"""Patterns that a spec writes: RE2's, which take linear time whatever is written and whatever is searched. Pure."""

from typing import Any

import re2  # type: ignore[import-untyped]


def compile_pattern(written: str) -> Any:
    """Something with `search`. ValueError where it is no pattern.

    >>> compile_pattern("(?i)fixed").search("I FIXED it") is None
    False
    >>> compile_pattern("(")
    Traceback (most recent call last):
    ValueError: missing ): (
    """
    options = re2.Options()
    options.log_errors = False  # on stderr, past everybody
    try:
        return re2.compile(written, options)
    except re2.error as error:
        said = error.args[0] if error.args else "not a pattern"
        raise ValueError(said.decode() if isinstance(said, bytes) else str(said)) from error
