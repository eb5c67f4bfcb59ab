"""What a session puts on record beside the stream, for the normalizer to read."""

from typing import Any, Final

import msgspec

from proctor.event.model import Tokens
from proctor.event.row import StepTaken

STARTED: Final = "turn started as a process"
HALTED: Final = "turn interrupted"
STOOD: Final = "where the thread stood by its rollout"
COST: Final = "what the turn cost by its rollout"


def counted(step: str, tokens: Tokens) -> StepTaken:
    return StepTaken(step=step, detail={"tokens": msgspec.to_builtins(tokens)})


def tokens_in(detail: dict[str, Any]) -> Tokens | None:
    try:
        return msgspec.convert(detail.get("tokens"), Tokens)
    except msgspec.ValidationError:
        return None
