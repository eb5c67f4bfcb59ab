"""The options of a replay: which attempt, how fast, in chunks of which size, and where the agent is killed."""

import random
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from proctor import decoding
from proctor.errors import InputError

_MOST_BYTES: Final = 4096


class AtByte(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A position in the agent's output, in bytes."""

    byte: Annotated[int, Meta(ge=0)]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a flow that replays an attempt."""

    attempt: Annotated[str, Meta(min_length=1)]
    """The folder of the attempt to replay."""
    speed: Literal[0, "real"] = 0
    """0 replays without pauses, `real` with the recorded ones."""
    chunk_bytes: Annotated[int, Meta(ge=1)] | None = None
    """Size of the chunks that the output is cut into; with `seed`, the largest size."""
    seed: int | None = None
    """Cuts the output into chunks of random size, the same for the same seed."""
    kill_at: Annotated[int, Meta(ge=1)] | AtByte | None = None
    """The first row that is not replayed any more, or a byte of the output."""

    def chunk_sizes(self) -> Iterator[int] | None:
        """Return the sizes of the chunks, the same for the same seed. None means the default size."""
        if self.seed is None:
            return None if self.chunk_bytes is None else repeat(self.chunk_bytes)
        chance, most = random.Random(self.seed), self.chunk_bytes or _MOST_BYTES  # noqa: S311  no secret depends on it
        return (chance.randint(1, most) for _ in repeat(None))


NAMES: Final = frozenset(Options.__struct_fields__)


def read_options(options: Mapping[str, Any]) -> Options:
    """Decode the options. Raises InputError if they are not valid."""
    if "attempt" not in options:
        what = "a replay needs `attempt`: the folder of the attempt to replay"
        raise InputError("spec.missing-key", what, key="attempt")
    try:
        return decoding.convert(options, Options)
    except msgspec.ValidationError as error:
        raise InputError("spec.type", str(error)) from error
