"""Checks the arguments of the public functions, so that a wrong type is an InputError with the parameter's name."""

import functools
import inspect
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from proctor.errors import InputError


def wrong_argument(function: str, name: str, what: str, *, suggestion: str | None = None) -> InputError:
    """Return the error for an argument that has the wrong type or value."""
    return InputError("spec.type", what, file=function, key=name, suggestion=suggestion)


class ArgumentChecker:
    """Checks arguments of one function by name. Each method raises InputError for a wrong one.

    >>> ArgumentChecker("session").text("login", 5)
    Traceback (most recent call last):
    proctor.errors.InputError: session: login: expected a string, not int
    """

    def __init__(self, function: str) -> None:
        self._function = function

    def instance(
        self, name: str, value: object, kinds: type | tuple[type, ...], *, expected: str, is_optional: bool = False
    ) -> None:
        """Check that a value is an instance of one of these types. `expected` describes them."""
        if not isinstance(value, kinds) and not (is_optional and value is None):
            raise self._unexpected(name, value, f"{expected} or None" if is_optional else expected)

    def text(self, name: str, value: object, *, is_optional: bool = False) -> None:
        self.instance(name, value, str, expected="a string", is_optional=is_optional)

    def prompt(self, name: str, value: object) -> None:
        """Check for a text that can be recorded and sent: without lone surrogates, which have no UTF-8."""
        self.text(name, value)
        try:
            str(value).encode()
        except UnicodeEncodeError as error:
            what = f"expected a text, and the character at position {error.start} is a lone surrogate"
            raise wrong_argument(self._function, name, what) from error

    def path(self, name: str, value: object, *, is_optional: bool = True) -> None:
        self.instance(name, value, (str, os.PathLike), expected="a path", is_optional=is_optional)

    def flag(self, name: str, value: object) -> None:
        self.instance(name, value, bool, expected="True or False")

    def choice(self, name: str, value: object, choices: Collection[str]) -> None:
        """Check that a value is one of these texts."""
        if not isinstance(value, str) or value not in choices:
            shown = f"{value!r}" if isinstance(value, str) else type(value).__name__
            raise wrong_argument(self._function, name, f"expected one of {', '.join(choices)}; not {shown}")

    def duration(self, name: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self._unexpected(name, value, 'seconds or a text like "90s" or "5m"')

    def mapping(self, name: str, value: object, *, is_text: bool = False, is_optional: bool = True) -> None:
        """Check for a mapping with strings as keys, and with `is_text` as values too."""
        expected = "a mapping of strings to strings" if is_text else "a mapping with strings as keys"
        self.instance(name, value, Mapping, expected=expected, is_optional=is_optional)
        for key, item in (value or {}).items() if isinstance(value, Mapping) else ():
            self.instance(name, key, str, expected=expected)
            if is_text:
                # Neither the key nor the value is shown: they may be secrets.
                self.instance(name, item, str, expected=expected)

    def items(
        self, name: str, value: object, kinds: type | tuple[type, ...], *, expected: str, is_optional: bool = False
    ) -> None:
        """Check for a sequence, other than a string, of instances of these types."""
        if value is None and is_optional:
            return
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise self._unexpected(name, value, f"a list of {expected}")
        for at, item in enumerate(value):
            self.instance(f"{name}[{at}]", item, kinds, expected=expected)

    def async_function(self, name: str, value: object, *, expected: str) -> None:
        if not callable(value):
            raise self._unexpected(name, value, expected)
        if not _is_async(value):
            raise wrong_argument(
                self._function,
                name,
                f"expected {expected}, not a synchronous function",
                suggestion="Define it with `async def`. To pass more arguments, use functools.partial, not a lambda.",
            )

    def _unexpected(self, name: str, value: object, expected: str) -> InputError:
        return wrong_argument(self._function, name, f"expected {expected}, not {type(value).__name__}")


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
