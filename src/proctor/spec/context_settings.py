"""Which context engine a session or a flow uses, and how."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from proctor.event.row import FailurePolicy
from proctor.spec.struct import Spec, Text


class ContextSettings(Spec, frozen=True, kw_only=True):
    """`context`: a context engine, which decides what the model should know in each turn."""

    engine: Text
    """Id of the engine: `none`, `window`, `lossless`, or a plugin that the config names."""

    policy: FailurePolicy = "degrade"
    """What follows if the engine fails: `degrade` runs the turn without it, `strict` refuses the turn. Default
    `degrade`."""

    mode: Literal["per_turn", "thread_bootstrap"] | None = None
    """When the agent's thread is given the context: what it lacks in each turn, or all of it once per epoch of the
    engine. Default: what the engine asks for."""

    window: Annotated[int, Meta(ge=1)] | None = None
    """Tokens of the model's context window, where the agent does not report it. Default: 128,000."""

    tools: Literal["elided", "shape", "whole"] | None = None
    """How much of tool calls and their results is given. Default: `whole` as items of the agent, `shape` as text."""

    complete: Literal["agent"] | None = None
    """How the engine calls a model: `agent` asks the session's own agent, read-only, in a separate attempt. A flow
    cannot set it. Default: it cannot call one."""

    options: dict[str, Any] = {}
    """Options of the engine. Default: none."""
