"""What a runtime can be asked to do: claims, the profiles they come to, and the refusal of what is not claimed."""

from enum import StrEnum

import msgspec

from proctor.errors import RefusedError
from proctor.ids import StrategyId


class Claims(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a runtime says it can do. A claim is not a proof."""

    thread_start: bool = False
    thread_resume: bool = False
    turn_steer: bool = False
    interrupt: bool = False
    event_stream: bool = False
    parallel_sessions: bool = False
    approvals: bool = False
    dynamic_tools: bool = False
    compaction: bool = False
    structured_output: bool = False


class Capability(StrEnum):
    """A name for what can be expected of a runtime. It says no more than the claims it stands for."""

    REPLAY_ONLY = "replay-only"
    HEADLESS_LIMITED = "headless-limited"
    INTERACTIVE_APPROVALS = "interactive-approvals"
    FULL_APP_SERVER = "full-app-server"


LEAST: dict[Capability, frozenset[str]] = {
    Capability.REPLAY_ONLY: frozenset({"event_stream"}),
    Capability.HEADLESS_LIMITED: frozenset({"thread_start", "event_stream"}),
    Capability.INTERACTIVE_APPROVALS: frozenset({"thread_start", "event_stream", "interrupt", "approvals"}),
    Capability.FULL_APP_SERVER: frozenset(Claims.__struct_fields__),
}
"""What a runtime of each profile claims at least."""

WORDS: dict[str, str] = {
    "thread_start": "start a thread",
    "thread_resume": "resume or fork a thread",
    "turn_steer": "be spoken to while a turn runs",
    "interrupt": "be interrupted",
    "event_stream": "tell what happens while it happens",
    "parallel_sessions": "carry several sessions at once",
    "approvals": "ask before it acts",
    "dynamic_tools": "call tools of yours",
    "compaction": "shorten its history",
    "structured_output": "answer by a schema",
}


def demand(claims: Claims, capability: str, *, strategy: StrategyId) -> None:
    """RefusedError, before anything is sent, where the runtime does not claim it."""
    if not getattr(claims, capability):
        what = f"{strategy} cannot {WORDS[capability]} ({capability} is not among its claims)"
        raise RefusedError("runtime.capability", what)
