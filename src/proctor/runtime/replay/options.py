"""What a flow says of a replay: which attempt, how fast, in what pieces, and where the agent is to die this time."""

import random
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from proctor.errors import InputError

_MOST_BYTES: Final = 4096


class AtByte(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """After so many bytes of what the agent says."""

    byte: Annotated[int, Meta(ge=0)]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`attempt` is its folder; `kill_at` the row of its frames that does not come any more, or a byte."""

    attempt: Annotated[str, Meta(min_length=1)]
    speed: Literal[0, "real"] = 0
    chunk_bytes: Annotated[int, Meta(ge=1)] | None = None
    seed: int | None = None
    kill_at: Annotated[int, Meta(ge=1)] | AtByte | None = None

    def chunk_sizes(self) -> Iterator[int] | None:
        """The same for the same seed."""
        if self.seed is None:
            return None if self.chunk_bytes is None else repeat(self.chunk_bytes)
        chance, most = random.Random(self.seed), self.chunk_bytes or _MOST_BYTES  # noqa: S311  no secret depends on it
        return (chance.randint(1, most) for _ in repeat(None))


NAMES: Final = frozenset(Options.__struct_fields__)


def read_options(options: Mapping[str, Any]) -> Options:
    """InputError where they are not what a replay needs."""
    if "attempt" not in options:
        what = "a replay needs `attempt`: the folder of the attempt to replay"
        raise InputError("spec.missing-key", what, key="attempt")
    try:
        return msgspec.convert(options, Options)
    except msgspec.ValidationError as error:
        raise InputError("spec.type", str(error)) from error
