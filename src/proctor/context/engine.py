"""The contract of a context engine, which decides what the model should know in a turn."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from proctor.context.budget import ASSUMED_RATIO, Budget, TokenRatio
from proctor.context.history import History
from proctor.context.project import ContextProjection
from proctor.context.reference import Reference
from proctor.event.message import Message
from proctor.event.row import CommitGuarantee
from proctor.event.usage import Usage
from proctor.ids import EntryId, SessionKey
from proctor.runtime.base import Tool

CommitResult = Literal["committed", "duplicate"]
"""What an engine answers to a commit: it has taken the turn in now, or it had it before."""

MaintainReason = Literal["bootstrap", "turn", "compaction"]
"""What a maintenance follows."""

ForgetReason = Literal["reset", "delete"]
"""Why an engine forgets a session: its history begins again, or it is deleted."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an engine is."""

    id: str
    """Id of the engine: the name of its entry point, as a session's `context` names it."""
    name: str
    """Name for people."""
    version: str
    """Version. Another version is another policy: threads in the mode `thread_bootstrap` start again."""
    owns_compaction: bool = False
    """Whether `compact` of this engine is the compaction of the session. The agent's own then runs after it."""
    maintenance: Literal["foreground", "background"] = "foreground"
    """Whether the next turn waits for `maintain`."""
    requires: tuple[str, ...] = ()
    """Capabilities without which the engine cannot work on a runtime, such as `takes_history`."""
    commits: CommitGuarantee = "exactly-once"
    """How often a completed turn reaches the engine. Proctor sets it to `at-least-once` where it uses an adapter."""


class AssembleResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the model should know in a turn, beside the prompt and what its thread holds already."""

    messages: tuple[Message, ...]
    """Entries of the history, unchanged, and messages of the engine, whose ids have no `#`. In order, each once."""
    estimated_tokens: int | None = None
    """The engine's own estimate of their tokens. Null if it makes none."""
    system_addition: str | None = None
    """Instructions for the developer or system role. Null for none."""
    references: tuple[Reference, ...] = ()
    """Documents, with less authority than the prompt."""
    projection: ContextProjection = ContextProjection()
    """How the messages reach the agent's thread."""
    may_overflow: bool = False
    """Whether the messages may exceed the budget: the policy is then not applied, and what does not fit is dropped."""


class TurnCommit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A completed turn."""

    key: EntryId
    """Id of the turn. The same key with other messages is an error of the caller."""
    messages: tuple[Message, ...]
    """Its entries: the prompt, steers, and everything that the agent said and did. Nothing else."""
    model: str | None
    """Name of the model. Null if it is unknown."""
    budget: Budget
    """Budget of the turn."""
    usage: Usage | None
    """Tokens of the turn, with their source. Null if they are unknown."""


class CompactStatus(StrEnum):
    """What a compaction achieved."""

    COMPACTED = "compacted"
    NOT_NEEDED = "not_needed"
    NO_PROGRESS = "no_progress"
    ABORTED = "aborted"
    FAILED = "failed"


class CompactResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a compaction achieved."""

    status: CompactStatus
    """Whether the context is shorter, and if not, why."""
    tokens_before: int | None = None
    """Tokens of the context before. Null if they are unknown."""
    tokens_after: int | None = None
    """Tokens of the context after. Null if they are unknown."""
    reason: str | None = None
    """What happened, in a sentence. Null if the status says it all."""
    successor: SessionKey | None = None
    """The session whose context it is afterwards. A session other than this one is refused. Null for this one."""
    details: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """More about it, any JSON object."""


class Cancel(Protocol):
    """Whether a call of an engine is still wanted. Code that runs in a thread should look at it from time to time."""

    @property
    def is_set(self) -> bool:
        """Whether the caller has stopped waiting for this call."""


Rewrite = Callable[[Mapping[EntryId, Message]], Awaitable[int]]
"""Stores replacements for entries of the history, by their ids, and returns how many were stored.

The entries themselves never change. A replacement has the id of its entry, and the same kind of part; a call keeps its
tool, and a result its call. Raises ProctorError for any other, and while a turn runs: maintenance may reach into one.
"""

Complete = Callable[[str], Awaitable[str]]
"""Calls a model with a prompt and returns its answer. Raises ProctorError if that fails or exceeds its limits."""


class PromptCache(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the agent reported of its provider's prompt cache in the last turn. A number it did not report is null."""

    read_tokens: int | None = None
    """Tokens that were read from the cache."""
    write_tokens: int | None = None
    """Tokens that were written to the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """What an engine may know and use in one call. A capability that is not safe in this call is None."""

    session: SessionKey
    """Id of the session."""
    model: str | None
    """Name of the model. None if it is unknown."""
    tools: frozenset[str]
    """Names of the tools that Proctor really offers to the agent in this session."""
    budget: Budget
    """How many tokens of context fit."""
    ratio: TokenRatio = ASSUMED_RATIO
    """How to estimate tokens: `estimate_messages(messages, ratio=ctx.ratio)`."""
    citations: str | None = None
    """The setting `citations` of the session's `context.options`. None if it is not set."""
    usage: Usage | None = None
    """Tokens of the last turn, with their source. None if they are unknown."""
    prompt_cache: PromptCache | None = None
    """The prompt cache in the last turn. None if the agent reported nothing."""
    cancel: Cancel
    """Whether this call is still wanted."""
    rewrite: Rewrite | None = None
    """Replaces entries in the history. None before and during a turn."""
    history: History | None = None
    """The entries that are stored, in `commit_turn` of an engine that commits at least once. None otherwise."""
    complete: Complete | None = None
    """Calls a model. None if the session was opened without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSetup:
    """What an engine is created with."""

    session: SessionKey
    """Id of the session."""
    folder: Path
    """Where the engine may keep files. It exists, belongs to this engine and session, and is removed with the session.

    Nothing that the engine is given has secrets in it. The folder is covered by the lock of the session.
    """
    options: Mapping[str, Any]
    """The session's `context.options`."""


class ContextEngine(Protocol):
    """Decides what the model should know. One object serves one session, and gets one call at a time.

    Only a maintenance in the background may run beside other calls. Each method may be a coroutine function, or a plain
    function, which then runs in a thread. Each call has a deadline. An engine may also have a method
    `tools() -> Sequence[Tool]`, called once after its creation: tools for the agent, on runtimes that take them. And it
    may have a method `find_damage() -> str | None`, for `proctor session verify`.

    An entry point in the group `proctor.engines` names a callable that takes an `EngineSetup` and returns an engine. It
    raises InputError for options that it does not accept.
    """

    @property
    def info(self) -> EngineInfo: ...

    def bootstrap(self, ctx: EngineContext, history: History) -> Awaitable[None] | None:
        """Take in the history of a session that was used before: what was imported, or said without this engine.

        Called on the first turn of each sitting if there is a history. Much of it may be known already.
        """

    def assemble(
        self, ctx: EngineContext, history: History, prompt: Message
    ) -> Awaitable[AssembleResult] | AssembleResult:
        """Return what the model should know in the turn that begins with this prompt. Must not change anything."""

    def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> Awaitable[CommitResult] | CommitResult:
        """Take in a completed turn. Return `duplicate` if the key was committed before.

        Must be durable on return. Raise an error for a known key with other messages.
        """

    def maintain(self, ctx: EngineContext, reason: MaintainReason) -> Awaitable[None] | None:
        """Do work that need not be done in a turn."""

    def compact(
        self,
        ctx: EngineContext,
        *,
        force: bool,
        target: Literal["budget", "threshold"],
        focus: str | None,
    ) -> Awaitable[CompactResult] | CompactResult:
        """Shorten the context, to the budget or to the engine's own threshold, with attention to `focus`."""

    def forget(self, ctx: EngineContext, reason: ForgetReason) -> Awaitable[None] | None:
        """Remove what is known of the session. After a reset, the history begins again."""

    def close(self) -> Awaitable[None] | None:
        """Release everything. Nothing is called after it."""


CreateEngine = Callable[[EngineSetup], ContextEngine]
"""Creates an engine for a session. Raises InputError if it does not accept the options."""


class OffersTools(Protocol):
    """The part of an engine that offers tools to the agent."""

    def tools(self) -> Sequence[Tool]:
        """Return the tools. Their names and schemas stay the same for the life of the session."""


class FindsDamage(Protocol):
    """The part of an engine that can check what it keeps."""

    def find_damage(self) -> Awaitable[str | None] | str | None:
        """Return what is damaged in the files of the engine, in words; None if nothing is. Must not change anything.

        Called only after the creation of an engine that is used for nothing else, also while another process uses the
        session.
        """
