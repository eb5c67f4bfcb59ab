"""Decide whether a turn continues the session's native thread or starts one. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from proctor.context.model import Binding
from proctor.context.project import ContextProjection, ProjectionMode
from proctor.ids import Digest, ProcessId, RuntimeId, ThreadId, TurnId


class ThreadReason(StrEnum):
    """Why a turn continues the session's thread, or starts a new one."""

    NONE = "no thread"
    """The session has no thread yet."""
    SAME = "same thread"
    """The thread can be continued."""
    FORK = "fork"
    """The session was forked, and gets its own thread with the history of the other one."""
    RUNTIME = "another runtime"
    """The thread belongs to another runtime."""
    TOOLS = "other tools"
    """The thread was started with other tools, and agents keep those."""
    PROCESS = "process gone"
    """The thread was in a process of a pool that has ended."""
    MISSING = "thread gone"
    """The agent does not have the thread any more."""
    UNKNOWN = "unknown content"
    """Proctor was killed in a turn or while it gave messages, so it is unknown what the thread holds."""
    COMPACTED = "shortened by the agent"
    """The agent has shortened the thread, and the context engine owns the compaction."""
    FULL = "too little room"
    """What the thread lacks does not fit into the thread, and the context engine owns the compaction."""
    EPOCH = "another epoch"
    """The stable part of the context has changed, and a thread is given it only once."""
    POLICY = "another engine or policy"
    """The thread was given its context by another engine, or with other settings."""
    OVERFLOW = "context overflow"
    """The model refused the turn because its context was too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadDecision:
    """How a turn opens its native thread."""

    how: Literal["start", "resume", "fork"]
    reason: ThreadReason
    thread: ThreadId | None = None
    """The thread to continue or to fork. None to start one."""
    through: TurnId | None = None
    """Of a fork: the last turn that it gets. None for all, if the thread was not continued since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextNeeds:
    """What a context engine needs of the thread in a turn."""

    engine: str
    policy_sha256: Digest
    projection: ContextProjection
    owns_compaction: bool
    has_room: bool = True
    """Whether what the thread lacks fits into it, as far as that is known."""


def decide_thread(
    binding: Binding | None,
    *,
    runtime_id: RuntimeId,
    tools: str,
    process: ProcessId | None,
    needs: ContextNeeds | None = None,
    is_gone: bool = False,
) -> ThreadDecision:
    """Decide for a turn on this runtime, with these tools, in this process of a pool or in its own.

    `needs` is None without a context engine: only the thread then remembers, and a new one is started only if it must
    be. `is_gone` is whether the agent was found not to have the thread.

    >>> binding = Binding(runtime_id=RuntimeId("codex_app_server"), thread=ThreadId("t"), tools="none")
    >>> decide_thread(binding, runtime_id=RuntimeId("claude_code"), tools="none", process=None).reason.value
    'another runtime'
    """
    if binding is None:
        return ThreadDecision(how="start", reason=ThreadReason.NONE)
    lost = _why_lost(binding, runtime_id=runtime_id, tools=tools, process=process, is_gone=is_gone)
    reason = lost or (None if needs is None else _why_replaced(binding, needs))
    if reason is not None:
        return ThreadDecision(how="start", reason=reason)
    if binding.is_fork:
        return ThreadDecision(how="fork", reason=ThreadReason.FORK, thread=binding.thread)
    return ThreadDecision(how="resume", reason=ThreadReason.SAME, thread=binding.thread)


def _why_lost(
    binding: Binding, *, runtime_id: RuntimeId, tools: str, process: ProcessId | None, is_gone: bool
) -> ThreadReason | None:
    """Return why the thread cannot be continued. None if it can."""
    if binding.runtime_id != runtime_id:
        return ThreadReason.RUNTIME
    if binding.process != process:
        return ThreadReason.PROCESS
    if binding.tools != tools:
        return ThreadReason.TOOLS
    return ThreadReason.MISSING if is_gone else None


def _why_replaced(binding: Binding, needs: ContextNeeds) -> ThreadReason | None:
    """Return why the engine needs another thread, although this one could be continued. None if it does not."""
    if binding.is_unknown or binding.is_compacting:
        return ThreadReason.UNKNOWN
    if needs.owns_compaction and binding.is_compacted:
        return ThreadReason.COMPACTED
    if needs.projection.mode is ProjectionMode.THREAD_BOOTSTRAP:
        if (binding.engine, binding.policy_sha256) != (needs.engine, needs.policy_sha256):
            return ThreadReason.POLICY
        if binding.epoch != needs.projection.epoch:
            return ThreadReason.EPOCH
    if needs.owns_compaction and not needs.has_room:
        return ThreadReason.FULL
    return None
