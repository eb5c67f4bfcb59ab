"""Sample lines of an agent's protocol, with which the conformance suite injects faults into it."""

from collections.abc import Callable
from dataclasses import dataclass

STRANGER = "proctor-stranger"
"""The id of a request that no agent sends. The reply repeats it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Sample lines and line predicates of an agent's protocol. A runtime has them as its attribute `samples`."""

    unknown_frame: bytes
    """A well-formed message of a type that the protocol does not have."""
    unknown_request: bytes | None
    """A request with the id STRANGER and a method that the protocol does not have. None if the agent never asks."""
    is_delta: Callable[[bytes], bool]
    """Whether a line is a piece of a reply that is still being streamed."""
    is_turn_end: Callable[[bytes], bool]
    """Whether a line ends a turn."""
    has_deltas: bool = True
    """False if the agent reports replies only when they are complete."""

    def is_of_turn(self, line: bytes) -> bool:
        """Return whether the line only occurs while a turn runs, or ends it."""
        return self.is_delta(line) or self.is_turn_end(line)


def samples_of(runtime: object) -> Samples | None:
    """Return the samples of a runtime. None if it has none, as when its agent has no line protocol."""
    samples = getattr(runtime, "samples", None)
    return samples if isinstance(samples, Samples) else None
