"""Sample lines of `codex exec` for the conformance suite."""

from typing import Final

import msgspec

from proctor import decoding
from proctor.runtime.codex_exec import wire
from proctor.runtime.samples import Samples


def _is_turn_end(line: bytes) -> bool:
    try:
        return decoding.decode(line, wire.Envelope).type in wire.ENDS
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


# It sends no requests, and reports an answer only when it is complete.
SAMPLES: Final = Samples(
    unknown_frame=b'{"type":"no.such.event"}',
    unknown_request=None,
    is_delta=lambda _: False,
    has_deltas=False,
    is_turn_end=_is_turn_end,
)
