"""The base class of all spec structs, and the types that their fields share."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from proctor.ids import RuntimeId, runtime_id_of

T = TypeVar("T")

Duration: TypeAlias = str | int | float
"""A duration as the user writes it: `90s`, `2m`, `500ms` or a number of seconds. `spec.duration` parses it."""

Text: TypeAlias = Annotated[str, Meta(min_length=1)]
Texts: TypeAlias = list[Text]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
"""A limit. 0 means zero, not unlimited; None means no limit."""

Command: TypeAlias = Annotated[list[str], Meta(min_length=1)] | Text
"""A command: a list is argv, a string is run with `bash -c`."""


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base class of all spec structs. An unknown key is an error."""


def by_runtime_id(settings: Mapping[RuntimeId, T]) -> dict[RuntimeId, T]:
    """Return settings with the names of agents replaced by their default runtimes. Raises ValueError if two are equal.

    >>> by_runtime_id({RuntimeId("codex"): 2})
    {'codex_app_server': 2}
    """
    renamed = {runtime_id_of(name): value for name, value in settings.items()}
    if len(renamed) < len(settings):
        raise ValueError(f"two of {', '.join(settings)} name the same runtime")
    return renamed
