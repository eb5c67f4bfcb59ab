"""The context engine of one sitting: created with its tools and its model, and closed when the sitting is over."""

import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
import anyio.to_thread

from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.config.model import ConfigFile
from proctor.context.budget import budget_for
from proctor.context.engine import Complete, CreateEngine, EngineContext, EngineInfo, EngineSetup, ForgetReason
from proctor.context.engine_use import EngineUse
from proctor.context.guard import CancelSignal, EngineHealth, GuardedEngine, create_in_time
from proctor.context.hooks import CompactionHook, PromptHook
from proctor.context.kept_session import KeptSession, tools_digest
from proctor.context.model import SessionSettings
from proctor.context.payload import Payload
from proctor.context.project import ProjectionMode
from proctor.context.registry import engine_by_id
from proctor.errors import EngineError, InputError, ProctorError, RefusedError
from proctor.event.row import FailurePolicy
from proctor.evidence.artifacts import ContextRef
from proctor.evidence.disk import make_folder
from proctor.evidence.layout import SessionPaths
from proctor.evidence.reader import Finding
from proctor.ids import ProcessId, SessionKey
from proctor.runtime.base import LimitsPrompts, Tool
from proctor.runtime.capability import WORDS, missing_capability
from proctor.runtime.intake import ThreadIntake, intake_of
from proctor.runtime.proof import ProofState
from proctor.runtime.resolve import Candidate
from proctor.spec.context_settings import ContextSettings
from proctor.spec.source_file import SourceFile

log: Final = logging.getLogger("proctor.context.engine")

NO_ENGINE: Final = "none"
"""The engine with which only the native thread remembers what was said."""

DEFAULT_ENGINE: Final = "lossless"
"""The engine of a session with an id, if neither its caller nor the config names one."""

MOST_COMPLETIONS: Final = 24
COMPLETIONS_S: Final = 600.0
"""So many calls of a model may one engine make within this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRequest:
    """The context engine that a session asks for."""

    settings: ContextSettings
    source: SourceFile[ConfigFile] | None = None
    """The config file that has the settings. None if the caller gave them."""
    complete: Complete | None = None
    """Calls a model for the engine. None if the settings say how, or it cannot."""
    before_prompt_build: tuple[PromptHook, ...] = ()
    before_compaction: tuple[CompactionHook, ...] = ()
    after_compaction: tuple[CompactionHook, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SittingAgent:
    """What the engine of a sitting must know of the agent."""

    candidate: Candidate
    options: Mapping[str, Any]
    """The flow's `options.<runtime id>`."""
    model: str | None
    """Name of the model."""
    process: ProcessId | None
    """The process of a pool. None for its own."""
    tools: tuple[Tool, ...]
    """The caller's tools."""
    takes_more_tools: bool
    """Whether tools of the engine can be offered too. A thread keeps the tools that it was started with."""
    complete: Complete | None = None
    """Calls the agent as a model. None if that is not possible."""
    is_origin_continued: bool = False
    """Whether the session that this one was forked from may have continued its thread since."""


@asynccontextmanager
async def open_engine(
    asked: ContextRequest, create: CreateEngine, kept: KeptSession, agent: SittingAgent, *, clock: Clock
) -> AsyncIterator[tuple[EngineUse, tuple[Tool, ...]]]:
    """Create the engine. Yields how it is used, and the tools that it offers to the agent.

    Raises InputError for an option that does not exist, MachineError or EvidenceError if it cannot use its folder, and
    under `strict` EngineError and RefusedError if it cannot work on the runtime.
    """
    settings, capabilities = asked.settings, agent.candidate.runtime.capabilities
    folder = kept.paths.engine(settings.engine)
    make_folder(folder, exist_ok=True)
    setup = EngineSetup(session=kept.header.id, folder=folder, options=settings.options)
    try:
        engine = await create_in_time(settings.engine, create, setup)
    except InputError as error:
        if asked.source is None or error.file is not None:
            raise
        key = error.key or "context.options"
        raise asked.source.error(error.code, error.what, key=key, suggestion=error.suggestion) from error
    guard = GuardedEngine(engine, clock=clock)
    try:
        unmet: ProctorError | None = find_unmet(guard.info, agent.candidate, policy=settings.policy)
        tools: tuple[Tool, ...] = ()
        try:
            if capabilities.dynamic_tools and agent.takes_more_tools:
                tools = _without_taken(await guard.tools(), agent.tools, engine=settings.engine)
        except EngineError as error:
            unmet = unmet or error
        if unmet is not None and settings.policy == "strict":
            raise unmet
        yield _use_of(asked, guard, agent, tools, clock=clock, unmet=unmet), tools
    finally:
        # Shielded: the engine of a cancelled caller is closed too, and the guard limits how long that takes.
        with anyio.CancelScope(shield=True):
            await close_engine(guard)


async def close_engine(guard: GuardedEngine) -> None:
    """Close an engine. What it has committed is durable, so a failure is only logged."""
    try:
        await guard.close()
    except EngineError as error:
        log.warning("the engine was not closed", extra={"engineId": guard.info.id, "reason": error.code})


def _use_of(
    asked: ContextRequest,
    guard: GuardedEngine,
    agent: SittingAgent,
    tools: tuple[Tool, ...],
    *,
    clock: Clock,
    unmet: ProctorError | None,
) -> EngineUse:
    settings = asked.settings
    complete = asked.complete or (agent.complete if settings.complete == "agent" else None)
    offered = (*agent.tools, *tools)
    return EngineUse(
        guard=guard,
        unmet=unmet,
        policy=settings.policy,
        mode=None if settings.mode is None else ProjectionMode(settings.mode),
        window=settings.window,
        payload=None if settings.tools is None else Payload(settings.tools),
        options=settings.options,
        complete=None if complete is None else LimitedModel(complete, engine=settings.engine, clock=clock),
        model=agent.model,
        tools=frozenset(tool.name for tool in offered),
        tools_digest=tools_digest(offered),
        intake=_intake(agent.candidate, agent.options),
        process=agent.process,
        is_origin_continued=agent.is_origin_continued,
        before_prompt_build=asked.before_prompt_build,
        before_compaction=asked.before_compaction,
        after_compaction=asked.after_compaction,
    )


def _intake(candidate: Candidate, options: Mapping[str, Any] | None = None) -> ThreadIntake:
    """Return how the runtime takes messages: not as items, if the conformance suite has refuted that it can.

    With the flow's `options` of the runtime, also how long a prompt may be.
    """
    runtime, proofs = candidate.runtime, candidate.proofs
    is_refuted = (
        proofs is not None and proofs.capability_state("takes_history", runtime.capabilities) is ProofState.FAILED
    )
    return intake_of(
        runtime.capabilities,
        refuted="the conformance suite failed `takes_history` with this program" if is_refuted else None,
        is_forgetful=getattr(runtime, "forgets_turns", False),
        reference_bytes=getattr(runtime, "reference_bytes", None),
        prompt_bytes=runtime.prompt_bytes(options)
        if options is not None and isinstance(runtime, LimitsPrompts)
        else None,
    )


def context_ref(info: EngineInfo) -> ContextRef:
    """Return what attempt.json says of an engine."""
    return ContextRef(engine=info.id, owns_compaction=info.owns_compaction)


def find_unmet(info: EngineInfo, candidate: Candidate, *, policy: FailurePolicy) -> RefusedError | None:
    """Return what the engine needs of the runtime under this policy, and the runtime cannot do. None if nothing."""
    capabilities, runtime_id = candidate.runtime.capabilities, candidate.runtime_id
    for name in info.requires:
        if name not in WORDS:
            return RefusedError("runtime.capability", f"the engine {info.id} requires {name!r}, which is no capability")
        if not getattr(capabilities, name):
            return missing_capability(name, runtime_id=runtime_id)
    if policy == "strict" and _intake(candidate).form is None:
        return missing_capability("takes_history", runtime_id=runtime_id)
    return None


def _without_taken(tools: Sequence[Tool], taken: Sequence[Tool], *, engine: str) -> tuple[Tool, ...]:
    names = {tool.name for tool in taken}
    for tool in tools:
        if tool.name in names:
            what = f"engine {engine}: its tool {tool.name} has the name of a tool of the caller, so none is offered"
            raise EngineError("engine.bad-result", what)
    return tuple(tools)


class LimitedModel:
    """Calls a model for an engine, at most MOST_COMPLETIONS times in COMPLETIONS_S."""

    def __init__(self, complete: Complete, *, engine: str, clock: Clock) -> None:
        self._complete = complete
        self._engine = engine
        self._clock = clock
        self._calls: deque[float] = deque()

    async def __call__(self, prompt: str) -> str:
        """Return the model's answer. Raises EngineError if the limit is reached or the call fails."""
        now_s = self._clock.steady_s()
        while self._calls and now_s - self._calls[0] >= COMPLETIONS_S:
            self._calls.popleft()
        if len(self._calls) >= MOST_COMPLETIONS:
            limit = f"{MOST_COMPLETIONS} calls of a model in {COMPLETIONS_S / 60:g} minutes"
            raise EngineError("engine.complete", f"engine {self._engine}: it has used its limit of {limit}")
        self._calls.append(now_s)
        try:
            answer = await self._complete(prompt)
        except ProctorError:
            raise
        except Exception as error:  # a function of the caller may raise anything
            raise EngineError("engine.complete", f"{type(error).__name__}: {error}") from error
        if not isinstance(answer, str):
            raise EngineError("engine.complete", f"`complete` returned a {type(answer).__name__}: return a text")
        return answer


def forget_engines(
    paths: SessionPaths, key: SessionKey, settings: SessionSettings | None, reason: ForgetReason
) -> list[str]:
    """Have every engine that was used in a session forget it. Returns what could not be forgotten, and why.

    What an engine keeps in the session's folder is removed with it in any case. The caller holds the session.
    """
    context = None if settings is None else settings.context
    problems: list[str] = []
    for id_ in paths.engine_ids():
        options = context.options if context is not None and context.engine == id_ else {}
        try:
            anyio.run(_forget, id_, EngineSetup(session=key, folder=paths.engine(id_), options=options), reason)
        except ProctorError as error:
            problems.append(f"what the engine {id_} may keep outside of the session: {error.what}")
    return problems


async def _forget(engine_id: str, setup: EngineSetup, reason: ForgetReason) -> None:
    guard = GuardedEngine(await create_in_time(engine_id, engine_by_id(engine_id), setup), clock=SYSTEM_CLOCK)
    try:
        await forget_engine(guard, setup.session, reason)
    finally:
        await close_engine(guard)


async def forget_engine(guard: GuardedEngine, session: SessionKey, reason: ForgetReason) -> None:
    """Have an engine forget a session that is in no sitting. Raises EngineError."""
    budget = budget_for(reported_window=None, configured_window=None, fixed_prompt_tokens=None)
    context = EngineContext(session=session, model=None, tools=frozenset(), budget=budget, cancel=CancelSignal())
    await guard.forget(context, reason)


def check_engine(paths: SessionPaths, engine_id: str) -> Finding | None:
    """Return what is damaged in the state of an engine. None if nothing is, or it cannot be checked."""
    folder = paths.engine(engine_id)
    setup = EngineSetup(session=SessionKey(paths.folder.name), folder=folder, options={})
    try:
        create = engine_by_id(engine_id)
    except ProctorError:
        return None
    try:
        damage = anyio.run(_find_damage, engine_id, create, setup)
    except InputError:
        # It does not work without the options that the session was opened with.
        return None
    except ProctorError as error:
        return Finding(code=error.code, file=str(folder), detail=error.what)
    return None if damage is None else Finding(code="engine.damaged", file=str(folder), detail=damage)


async def _find_damage(engine_id: str, create: CreateEngine, setup: EngineSetup) -> str | None:
    # With its own health: a check is no call of a session.
    engine = await create_in_time(engine_id, create, setup)
    guard = GuardedEngine(engine, clock=SYSTEM_CLOCK, health=EngineHealth())
    try:
        return await guard.find_damage()
    finally:
        await close_engine(guard)
