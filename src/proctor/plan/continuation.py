"""Decide whether an attempt continues the one before it, after a wait for a rate limit or a quota. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from proctor.ids import Digest, ProcessId, RuntimeId, ThreadId
from proctor.plan.recover import Remedy

WAITS = (Remedy.YIELD, Remedy.PARK)
"""The remedies after which an attempt can be continued: the provider refused more work for a while."""


class FreshStart(StrEnum):
    """Why an attempt starts fresh, and does not continue the attempt of its trial before it."""

    UNSEALED = "unsealed"
    """The attempt before it has no intact seal, so that it is unknown how its turn ended."""
    NO_WAIT = "no-wait"
    """The attempt before it did not end in a rate limit or an exhausted quota."""
    THREAD_GONE = "thread-gone"
    """The agent does not have the thread any more."""
    NO_PROGRESS = "no-progress"
    """The turn of the attempt before it had produced neither text nor a tool call, and nothing was continued."""
    ANOTHER_RUNTIME = "another-runtime"
    """The flow has moved on to another runtime of its chain."""
    CANNOT_RESUME = "cannot-resume"
    """The runtime does not support `thread_resume`."""
    NO_THREAD = "no-thread"
    """The agent had not named its thread."""
    PROCESS_GONE = "process-gone"
    """The shared process that had the thread has ended."""
    HOME_MISSING = "home-missing"
    """The agent's home was not kept, or was removed."""
    SESSION_MISSING = "session-missing"
    """The session of the flow's context engine was not kept, or was removed."""
    WORKSPACE_MISSING = "workspace-missing"
    """The workspace was not kept, was removed, or cannot be read as a whole."""
    WORKSPACE_CHANGED = "workspace-changed"
    """The workspace is not what the attempt before it left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedEnd:
    """How the attempt before ended, by its sealed files."""

    remedy: Remedy
    has_lost_thread: bool
    """Whether it ended because the agent did not have the thread that it was to continue."""
    has_progress: bool
    """Whether its turn produced text or a tool call, or it continues an attempt whose turn did."""
    runtime_id: RuntimeId
    process: ProcessId | None
    """The agent process that it used."""
    thread: ThreadId | None
    workspace_digest: Digest | None
    """Digest of the workspace that it left. None if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptState:
    """What there is to continue with now."""

    runtime_id: RuntimeId
    can_resume: bool
    """Whether the runtime supports `thread_resume`."""
    is_shared: bool
    """Whether attempts share an agent process."""
    process: ProcessId | None
    """The shared process that runs now. None if none could be started, or if each attempt has its own."""
    has_home: bool
    """Whether the agent's home exists."""
    has_session: bool
    """Whether the session of the flow's context engine exists. True without an engine."""
    has_thread: bool | None
    """Whether the agent has stored the thread. None if the runtime cannot tell without its program."""
    workspace_digest: Digest | None
    """Digest of the workspace. None if it does not exist or cannot be read as a whole."""


def why_fresh(before: SealedEnd | None, now: KeptState) -> FreshStart | None:
    """Return why an attempt starts fresh; None if it continues the one before it.

    `before` is None if the attempt before it has no intact seal.

    >>> now = KeptState(
    ...     runtime_id=RuntimeId("codex"), can_resume=True, is_shared=False, process=None, has_home=True,
    ...     has_session=True, has_thread=True, workspace_digest=Digest("sha256:1"),
    ... )
    >>> why_fresh(None, now).value
    'unsealed'
    """
    if before is None:
        return FreshStart.UNSEALED
    return _why_not_continued(before) or _why_not_possible(before, now)


def _why_not_continued(before: SealedEnd) -> FreshStart | None:
    """Return what about the attempt before keeps it from being continued."""
    if before.has_lost_thread:
        return FreshStart.THREAD_GONE
    if before.remedy not in WAITS:
        return FreshStart.NO_WAIT
    if not before.has_progress:
        return FreshStart.NO_PROGRESS
    return FreshStart.NO_THREAD if before.thread is None else None


def _why_not_possible(before: SealedEnd, now: KeptState) -> FreshStart | None:
    """Return what has changed since the attempt before, or cannot be done."""
    if now.runtime_id != before.runtime_id:
        return FreshStart.ANOTHER_RUNTIME
    if not now.can_resume:
        return FreshStart.CANNOT_RESUME
    if now.is_shared and (now.process is None or now.process != before.process):
        return FreshStart.PROCESS_GONE
    if not now.has_home:
        return FreshStart.HOME_MISSING
    if not now.has_session:
        return FreshStart.SESSION_MISSING
    if now.has_thread is False:
        return FreshStart.THREAD_GONE
    if now.workspace_digest is None:
        return FreshStart.WORKSPACE_MISSING
    return None if now.workspace_digest == before.workspace_digest else FreshStart.WORKSPACE_CHANGED
