"""The capabilities that a runtime declares, the profiles that summarize them, and the check for one of them."""

from enum import StrEnum

import msgspec

from proctor.errors import RefusedError
from proctor.ids import RuntimeId


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a runtime declares that it can do. Only the conformance suite proves it."""

    thread_start: bool = False
    """Start a new thread."""
    thread_resume: bool = False
    """Resume or fork a persistent thread."""
    turn_steer: bool = False
    """Accept text while a turn runs."""
    interrupt: bool = False
    """End a running turn on request."""
    event_stream: bool = False
    """Report what happens while it happens."""
    parallel_sessions: bool = False
    """Carry several sessions on one host at the same time."""
    approvals: bool = False
    """Ask before an action, and wait for the answer."""
    dynamic_tools: bool = False
    """Call tools that the caller offers."""
    compaction: bool = False
    """Shorten the history of a thread on request."""
    structured_output: bool = False
    """Answer a turn with JSON that conforms to a schema."""
    takes_history: bool = False
    """Add messages to a thread, as the agent's own items and without a turn."""
    takes_instructions: bool = False
    """Start a thread with instructions, which reach the model in the developer or system role."""
    takes_turn_instructions: bool = False
    """Take instructions between turns, which reach the model in the developer or system role."""


class CapabilityProfile(StrEnum):
    """A name for a set of declared capabilities."""

    REPLAY_ONLY = "replay-only"
    HEADLESS_LIMITED = "headless-limited"
    INTERACTIVE_APPROVALS = "interactive-approvals"
    FULL_APP_SERVER = "full-app-server"


LEAST: dict[CapabilityProfile, frozenset[str]] = {
    CapabilityProfile.REPLAY_ONLY: frozenset({"event_stream"}),
    CapabilityProfile.HEADLESS_LIMITED: frozenset({"thread_start", "event_stream"}),
    CapabilityProfile.INTERACTIVE_APPROVALS: frozenset({"thread_start", "event_stream", "interrupt", "approvals"}),
    CapabilityProfile.FULL_APP_SERVER: frozenset(Capabilities.__struct_fields__),
}
"""The capabilities that a runtime of each profile declares at least."""

WORDS: dict[str, str] = {
    "thread_start": "start a thread",
    "thread_resume": "resume or fork a thread",
    "turn_steer": "take input while a turn runs",
    "interrupt": "interrupt a turn",
    "event_stream": "report events while they happen",
    "parallel_sessions": "carry several sessions at once",
    "approvals": "ask before it acts",
    "dynamic_tools": "call the caller's tools",
    "compaction": "shorten its history",
    "structured_output": "answer according to a schema",
    "takes_history": "add messages to a thread",
    "takes_instructions": "start a thread with instructions",
    "takes_turn_instructions": "take instructions between turns",
}
"""What each capability means, to follow "cannot" in a message."""


def require_capability(capabilities: Capabilities, capability: str, *, runtime_id: RuntimeId) -> None:
    """Raise RefusedError if the runtime does not declare the capability."""
    if not getattr(capabilities, capability):
        raise missing_capability(capability, runtime_id=runtime_id)


def missing_capability(capability: str, *, runtime_id: RuntimeId) -> RefusedError:
    """Return the error for a capability that the runtime does not declare."""
    what = f"{runtime_id} cannot {WORDS[capability]} ({capability} is not among its capabilities)"
    return RefusedError("runtime.capability", what)
