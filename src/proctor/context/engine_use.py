"""A context engine and how one sitting uses it, and the log of what it does."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from proctor.canonical import digest
from proctor.context.engine import Complete, EngineInfo
from proctor.context.guard import GuardedEngine
from proctor.context.hooks import CompactionHook, PromptHook
from proctor.context.keeper import SessionKeeper
from proctor.context.model import RecordedTurn
from proctor.context.payload import Payload
from proctor.context.project import ProjectionMode
from proctor.errors import ProctorError
from proctor.event.row import FailurePolicy
from proctor.ids import Digest, ProcessId
from proctor.runtime.intake import ThreadIntake

log: Final = logging.getLogger("proctor.context")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineUse:
    """A context engine, and how a sitting uses it."""

    guard: GuardedEngine
    policy: FailurePolicy
    unmet: ProctorError | None = None
    """What the engine needs and the runtime cannot do. None if nothing."""
    mode: ProjectionMode | None = None
    """Overrides the engine's own mode. None for that."""
    window: int | None = None
    """Size of the context window, where the agent does not report it."""
    payload: Payload | None = None
    """How much of tool calls is given. None for all of it as items, and its shape as text."""
    options: Mapping[str, Any]
    complete: Complete | None = None
    """Calls a model for the engine."""
    model: str | None
    """Name of the model."""
    tools: frozenset[str]
    """Names of the tools that are offered to the agent."""
    tools_digest: str
    intake: ThreadIntake
    """How the threads of the runtime take messages."""
    process: ProcessId | None
    """The process of a pool that carries the sitting. None for its own."""
    is_origin_continued: bool = False
    """Whether the session that this one was forked from may have continued its thread since."""
    before_prompt_build: tuple[PromptHook, ...] = ()
    before_compaction: tuple[CompactionHook, ...] = ()
    after_compaction: tuple[CompactionHook, ...] = ()

    @property
    def info(self) -> EngineInfo:
        return self.guard.info

    @property
    def is_strict(self) -> bool:
        """Whether a turn that the engine cannot serve is refused."""
        return self.policy == "strict"

    def policy_sha256(self, fingerprint: str | None) -> Digest:
        """Return the digest of what shapes the context, apart from what was said. `fingerprint` is the engine's own."""
        settings = [self.info.id, self.info.version, self.mode, self.window, self.payload, dict(self.options)]
        return digest([*settings, *([] if fingerprint is None else [fingerprint])])


LogEvent = Literal[
    "bootstrap started",
    "bootstrap completed",
    "bootstrap failed",
    "assemble applied",
    "finalize completed",
    "finalize failed",
    "maintenance skipped",
    "native compaction completed alongside context-engine compaction",
]


class ContextLog:
    """Logs what happens to the context of one sitting. Prompts and other texts never get there.

    So the reason of a failure is its code: the message of an engine's error may quote what was said.
    """

    def __init__(self, use: EngineUse, keeper: SessionKeeper) -> None:
        self._use = use
        self._keeper = keeper

    def info(
        self,
        event: LogEvent,
        *,
        turn: RecordedTurn | None = None,
        assembled: int | None = None,
        tokens: int | None = None,
        has_addition: bool | None = None,
        **more: str,
    ) -> None:
        """Log one event. What is not known is None. `more` is a `reason` or a `source`."""
        binding, sitting = self._keeper.binding, self._keeper.sitting
        extra = {
            "sessionId": f"{sitting.run_id}/{sitting.attempt_id}",
            # The id that the user gave may name a person.
            "sessionKey": digest(self._keeper.key)[: len("sha256:") + 12],
            "engineId": self._use.info.id,
            "threadId": None if binding is None else binding.thread,
            "turnId": None if turn is None else turn.id,
            "assembledMessageCount": assembled,
            "estimatedTokens": tokens,
            "hasSystemPromptAddition": has_addition,
            **more,
        }
        log.info(event, extra=extra)

    def info_of_turn(
        self, event: LogEvent, turn: RecordedTurn, *, reason: str | None = None, source: str | None = None
    ) -> None:
        """Log one event of a turn that is over."""
        context, more = turn.context, {"reason": reason, "source": source}
        self.info(
            event,
            turn=turn,
            assembled=None if context is None else context.assembled,
            tokens=None if context is None else context.estimated_tokens,
            has_addition=None,
            **{name: text for name, text in more.items() if text is not None},
        )
