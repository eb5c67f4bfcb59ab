"""Decide whether a sitting continues the session's native thread or starts one. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from proctor.context.model import Binding
from proctor.ids import ProcessId, RuntimeId, ThreadId, TurnId


class ThreadReason(StrEnum):
    """Why a sitting continues the session's thread, or starts a new one."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadDecision:
    """How a sitting opens its native thread."""

    how: Literal["start", "resume", "fork"]
    reason: ThreadReason
    thread: ThreadId | None = None
    """The thread to continue or to fork. None to start one."""
    through: TurnId | None = None
    """Of a fork: the last turn that it gets. None for all, if the thread was not continued since."""


def decide_thread(
    binding: Binding | None, *, runtime_id: RuntimeId, tools: str, process: ProcessId | None
) -> ThreadDecision:
    """Decide for a sitting on this runtime, with these tools, in this process of a pool or in its own.

    >>> binding = Binding(runtime_id=RuntimeId("codex_app_server"), thread=ThreadId("t"), tools="none")
    >>> decide_thread(binding, runtime_id=RuntimeId("claude_code"), tools="none", process=None).reason.value
    'another runtime'
    """
    if binding is None:
        return ThreadDecision(how="start", reason=ThreadReason.NONE)
    if binding.runtime_id != runtime_id:
        return ThreadDecision(how="start", reason=ThreadReason.RUNTIME)
    if binding.process != process:
        return ThreadDecision(how="start", reason=ThreadReason.PROCESS)
    if binding.tools != tools:
        return ThreadDecision(how="start", reason=ThreadReason.TOOLS)
    if binding.is_fork:
        return ThreadDecision(how="fork", reason=ThreadReason.FORK, thread=binding.thread)
    return ThreadDecision(how="resume", reason=ThreadReason.SAME, thread=binding.thread)
