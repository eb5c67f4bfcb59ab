"""Sample lines of Claude Code for the conformance suite."""

from typing import Final

import msgspec

from proctor.runtime.claude_code import wire
from proctor.runtime.claude_code.route import open_envelope
from proctor.runtime.samples import STRANGER, Samples


def _is_delta(line: bytes) -> bool:
    event = open_envelope(line).event
    return event is not None and event.delta is not None and event.delta.text is not None


SAMPLES: Final = Samples(
    unknown_frame=b'{"type":"no_such_frame","uuid":"unknown"}',
    unknown_request=msgspec.json.encode(
        wire.Envelope(type="control_request", request_id=STRANGER, request=wire.Request(subtype="no_such_request"))
    ),
    is_delta=_is_delta,
    is_turn_end=lambda line: open_envelope(line).type == "result",
)
