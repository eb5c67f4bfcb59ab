"""Decoding of JSON and built-in values into types, safe on every thread.

msgspec prepares a struct type at its first use, and publishes the preparation before it is complete. A second thread
that uses the type at that moment reads a null pointer, and the process dies with SIGSEGV. Here a type is prepared under
a lock, once. A linter rule keeps the rest of the package from calling msgspec's own decoders.
"""

from _thread import RLock
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

# The same as that of `threading`, without importing that module, which no command that reads evidence needs.
_lock = RLock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


@overload
def json_decoder(type_: type[T]) -> Callable[[bytes | str], T]: ...
@overload
def json_decoder(type_: Any = Any) -> Callable[[bytes | str], Any]: ...
def json_decoder(type_: Any = Any) -> Callable[[bytes | str], Any]:
    """Return the function that decodes JSON into a type.

    >>> json_decoder(list[int])(b"[1, 2]")
    [1, 2]
    """
    return _prepared(type_).decode


@overload
def decode(data: bytes | str, type_: type[T]) -> T: ...
@overload
def decode(data: bytes | str, type_: Any = Any) -> Any: ...
def decode(data: bytes | str, type_: Any = Any) -> Any:
    """Decode JSON into a type; raises `msgspec.ValidationError` or `msgspec.DecodeError`.

    >>> decode(b'{"a": 1}', dict[str, int])
    {'a': 1}
    """
    return _prepared(type_).decode(data)


@overload
def convert(value: Any, type_: type[T]) -> T: ...
@overload
def convert(value: Any, type_: Any) -> Any: ...
def convert(value: Any, type_: Any) -> Any:
    """Convert built-in values, as JSON has them, into a type; raises `msgspec.ValidationError`.

    >>> convert((1, 2), list[int])
    [1, 2]
    """
    _prepared(type_)
    return msgspec.convert(value, type_)


def _prepared(type_: Any) -> msgspec.json.Decoder[Any]:
    decoder = _decoders.get(type_)
    if decoder is None:
        with _lock:
            # It is in the table only when it and every type below it are complete.
            decoder = _decoders[type_] = msgspec.json.Decoder(type_)
    return decoder
