"""Shorten the context of a session: the engine's, if it owns the compaction, and the agent's own."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from proctor.context.engine import CompactResult, CompactStatus, EngineContext
from proctor.context.guard import GuardedEngine
from proctor.errors import EngineError
from proctor.event.model import CompactionEnded
from proctor.event.outcome import Ending, Outcome
from proctor.ids import RuntimeId


class Compaction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a compaction achieved."""

    status: CompactStatus
    """Whether the context is shorter, and if not, why."""
    tokens_before: int | None = None
    """Tokens of the context before. Null if they are unknown."""
    tokens_after: int | None = None
    """Tokens of the context after. Null if they are unknown."""
    reason: str | None = None
    """What happened, in a sentence. Null if the status says it all."""
    code: str | None = None
    """Error code, if it failed or was aborted."""
    details: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """More about it. `codexNativeCompaction` or `claudeCodeNativeCompaction` is what the agent's own achieved."""


async def compact_by_engine(guard: GuardedEngine, ctx: EngineContext, *, focus: str | None) -> Compaction:
    """Have the engine shorten its context, to its own threshold. Raises no error: a failure is a status."""
    try:
        result = await guard.compact(ctx, force=True, target="threshold", focus=focus)
    except EngineError as error:
        result = CompactResult(status=CompactStatus.FAILED, reason=error.what)
    return Compaction(
        status=result.status,
        tokens_before=result.tokens_before,
        tokens_after=result.tokens_after,
        reason=result.reason,
        details=result.details,
    )


_NATIVE: Final[Mapping[str, str]] = {
    "codex_app_server": "codexNativeCompaction",
    "claude_code": "claudeCodeNativeCompaction",
}
_OTHER_NATIVE: Final = "nativeCompaction"

NATIVE_DETAILS: Final = frozenset((*_NATIVE.values(), _OTHER_NATIVE))
"""Names under which `details` may have the agent's own compaction, another Compaction."""


def native_compaction(ending: Ending, ended: CompactionEnded | None) -> Compaction:
    """Return what the agent's own compaction achieved. `ended` is its report; None if there was none."""
    before = None if ended is None else ended.tokens_before
    after = None if ended is None else ended.tokens_after
    status, reason = CompactStatus.COMPACTED, None
    if ending.outcome is Outcome.CANCELLED:
        status, reason = CompactStatus.ABORTED, ending.detail
    elif ending.outcome is not Outcome.COMPLETED or (ended is not None and ended.ok is False):
        problem = None if ended is None else ended.problem
        status = CompactStatus.FAILED
        reason = ending.detail or problem or "the agent reports that its compaction failed"
    elif ended is None:
        status, reason = CompactStatus.NOT_NEEDED, "the agent had nothing to shorten"
    elif before is not None and after is not None and after >= before:
        status, reason = CompactStatus.NO_PROGRESS, "the agent's summary is as long as what it replaces"
    return Compaction(status=status, tokens_before=before, tokens_after=after, reason=reason, code=ending.code)


def with_native(compaction: Compaction, native: Compaction, *, runtime_id: RuntimeId) -> Compaction:
    """Return the engine's compaction with the agent's own in its details. The agent's failure fails nothing."""
    name = _NATIVE.get(runtime_id, _OTHER_NATIVE)
    return replace(compaction, details={**compaction.details, name: msgspec.to_builtins(native)})
