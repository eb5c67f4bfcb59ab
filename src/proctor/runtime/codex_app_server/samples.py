"""Sample lines of the app-server protocol for the conformance suite."""

import msgspec

from proctor import decoding
from proctor.runtime.codex_app_server import wire
from proctor.runtime.samples import STRANGER, Samples


class _Method(msgspec.Struct, frozen=True):
    method: str = ""


def _method(line: bytes) -> str:
    try:
        return decoding.decode(line, _Method).method
    except msgspec.DecodeError:
        return ""


SAMPLES = Samples(
    unknown_frame=b'{"method":"no/such/notification","params":{"threadId":7}}',
    unknown_request=msgspec.json.encode({"id": STRANGER, "method": "no/such/request", "params": {}}),
    is_delta=lambda line: _method(line) in wire.TEXT_DELTAS,
    is_turn_end=lambda line: _method(line) == "turn/completed",
)
