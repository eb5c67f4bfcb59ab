"""What has to be told of how an agent speaks to whoever breaks its speech without knowing it: the conformance suite."""

from collections.abc import Callable
from dataclasses import dataclass

STRANGER = "proctor-stranger"
"""The id of a request that no agent makes. Whatever answers it says the id again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Lines that the agent could say, and what lines that it does say are. A runtime has it as its `samples`.

    `unknown_request` is one that waits for an answer and has STRANGER for its id; None where the agent never asks.
    `is_delta` finds a piece of an answer while it is being given, `is_turn_end` the line with which a turn is over.
    Where there are no such pieces, because answers come whole, `has_deltas` says so.
    """

    unknown_frame: bytes
    unknown_request: bytes | None
    is_delta: Callable[[bytes], bool]
    is_turn_end: Callable[[bytes], bool]
    has_deltas: bool = True

    def is_of_turn(self, line: bytes) -> bool:
        """Whether it comes only while a turn runs, or as its last."""
        return self.is_delta(line) or self.is_turn_end(line)


def samples_of(runtime: object) -> Samples | None:
    """They are optional: a runtime that does not speak lines has none."""
    samples = getattr(runtime, "samples", None)
    return samples if isinstance(samples, Samples) else None
