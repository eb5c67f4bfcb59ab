"""An attempt's folder sealed by itself, without the attempt."""

from collections.abc import Mapping

from proctor.clock import Clock
from proctor.evidence.artifacts import Seal, StreamHead
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.seal import build_seal, write_seal
from proctor.ids import AttemptId


def seal(paths: AttemptPaths, *, attempt_id: AttemptId, clock: Clock, streams: Mapping[str, StreamHead]) -> Seal:
    sealed = build_seal(paths, attempt_id=attempt_id, clock=clock, streams=streams)
    write_seal(paths, sealed, is_durable=True)
    return sealed
