"""Supervisor rows that a session records for its normalizer."""

from typing import Any, Final

import msgspec

from proctor import decoding
from proctor.event.model import Tokens
from proctor.event.row import StepTaken

STARTED: Final = "turn started as a process"
HALTED: Final = "turn interrupted"
USAGE_BEFORE: Final = "thread usage before the turn, from Codex's rollout file"
TURN_USAGE: Final = "turn usage, from Codex's rollout file"


def usage_step(step: str, tokens: Tokens) -> StepTaken:
    return StepTaken(step=step, detail={"tokens": msgspec.to_builtins(tokens)})


def tokens_in(detail: dict[str, Any]) -> Tokens | None:
    try:
        return decoding.convert(detail.get("tokens"), Tokens)
    except msgspec.ValidationError:
        return None
