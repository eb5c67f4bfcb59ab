"""Sample lines of pi for the conformance suite."""

from typing import Final

import msgspec

from proctor.runtime.samples import STRANGER, Samples
from proctor_pi.wire import read_frame


def _is_delta(line: bytes) -> bool:
    frame = read_frame(line)
    piece = None if frame is None else frame.assistant_message_event
    return piece is not None and piece.type == "text_delta"


def _is_turn_end(line: bytes) -> bool:
    frame = read_frame(line)
    return frame is not None and frame.type == "agent_end"


SAMPLES: Final = Samples(
    unknown_frame=b'{"type":"message_from_mars"}',
    unknown_request=msgspec.json.encode(
        {"type": "extension_ui_request", "id": STRANGER, "method": "input", "title": "?"}
    ),
    is_delta=_is_delta,
    is_turn_end=_is_turn_end,
)
