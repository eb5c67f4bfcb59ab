"""Compile the patterns of a spec with RE2, which matches in linear time for any pattern. Pure."""

from typing import Any


def compile_pattern(pattern: str) -> Any:
    """Compile a pattern to an object with `search` and `fullmatch`. Raises ValueError if it is invalid.

    >>> compile_pattern("(?i)fixed").search("I FIXED it") is None
    False
    >>> compile_pattern("(")
    Traceback (most recent call last):
    ValueError: missing ): (
    """
    # Imported when used: commands that only read evidence compile no pattern.
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False  # RE2 would print to stderr
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        message = error.args[0] if error.args else "not a pattern"
        raise ValueError(message.decode() if isinstance(message, bytes) else str(message)) from error
