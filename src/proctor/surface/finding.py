"""One thing that the doctor looked at."""

from typing import Any, Literal

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`fail` is what Proctor cannot do without, or what is broken; `warn` is worth knowing."""

    name: str
    status: Literal["ok", "warn", "fail"]
    what: str
    more: tuple[str, ...] = ()
    todo: str | None = None
    facts: dict[str, Any] = {}
