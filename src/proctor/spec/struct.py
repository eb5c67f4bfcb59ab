"""The root of all spec structs, and the words that their fields share."""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

Duration: TypeAlias = str | int | float
"""As written: `90s`, `2m`, `500ms` or plain seconds. `spec.duration` turns it into seconds."""

Text: TypeAlias = Annotated[str, Meta(min_length=1)]
Texts: TypeAlias = list[Text]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
"""A limit. Nought is one; no limit is None."""

Command: TypeAlias = Annotated[list[str], Meta(min_length=1)] | Text
"""A list is argv; a string is given to `bash -c`."""


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Root of all spec structs: unknown keys are errors."""
