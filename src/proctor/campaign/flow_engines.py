"""The context engines of flows: checked before anything runs, and opened for each attempt, in a separate session."""

import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from proctor.attempt.model import KeptSitting
from proctor.campaign.locate_error import locate_errors
from proctor.campaign.session_engine import (
    ContextRequest,
    SittingAgent,
    close_engine,
    context_ref,
    find_unmet,
    forget_engine,
    open_engine,
)
from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.config.model import Config
from proctor.context.engine import CreateEngine, EngineInfo, EngineSetup
from proctor.context.engine_use import log
from proctor.context.guard import GuardedEngine, create_in_time
from proctor.context.keeper import SessionKeeper
from proctor.context.kept_session import KeptSession, open_session_at, tools_digest
from proctor.context.model import SessionSettings, Sitting, SittingState
from proctor.context.registry import engine_by_id
from proctor.context.store import refusing_damage
from proctor.errors import EngineError, InputError, MachineError, ProctorError
from proctor.evidence.artifacts import ContextRef
from proctor.evidence.layout import RootPaths, SessionPaths
from proctor.ids import AttemptId, FlowId, RunId, SessionKey
from proctor.plan.model import ResolvedFlow
from proctor.runtime.base import Tool
from proctor.runtime.resolve import Candidate
from proctor.spec.context_settings import ContextSettings
from proctor.spec.load import LoadedSpec
from proctor.workspace.remove import remove

REMOVE_S: Final = 30.0
"""Time limit for removing the session of an attempt, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEngine:
    """The context engine of a flow."""

    settings: ContextSettings
    create: CreateEngine
    info: EngineInfo
    """What the engine says of itself with these options."""

    @property
    def ref(self) -> ContextRef:
        return context_ref(self.info)


def find_flow_engines(
    loaded: LoadedSpec, flows: Sequence[ResolvedFlow], *, config: Config, chains: Mapping[FlowId, Sequence[Candidate]]
) -> dict[FlowId, FlowEngine]:
    """Return the context engines of the flows that have one, by flow. `chains` are the runtimes that each may use.

    Raises InputError, with its place, for an engine that does not exist or cannot be loaded, for an option that it does
    not accept, and if one of the runtimes cannot do what it requires under the policy `strict`.
    """
    found: dict[FlowId, FlowEngine] = {}
    for at, flow in enumerate(flows):
        if flow.context is not None:
            with locate_errors(loaded, key=f"flows[{at}]"):
                found[flow.id] = _find_engine(flow.context, config=config, chain=chains[flow.id])
    return found


def _find_engine(settings: ContextSettings, *, config: Config, chain: Sequence[Candidate]) -> FlowEngine:
    try:
        create = engine_by_id(settings.engine, config)
        with tempfile.TemporaryDirectory(prefix="proctor-engine-") as folder:
            setup = EngineSetup(session=SessionKey("preflight"), folder=Path(folder), options=settings.options)
            info = anyio.run(_try_engine, settings.engine, create, setup)
    except InputError as error:
        key = error.key or "context.engine"
        raise InputError(error.code, error.what, key=key, suggestion=error.suggestion) from error
    except (EngineError, MachineError) as error:
        raise InputError(error.code, error.what, key="context.engine", suggestion=error.suggestion) from error
    for candidate in chain if settings.policy == "strict" else ():
        # Another runtime of the chain is no way out: an engine never changes the choice of runtime.
        if (unmet := find_unmet(info, candidate, policy=settings.policy)) is not None:
            what = f"the engine {settings.engine} requires it under `policy: strict`: {unmet.what}"
            raise InputError(unmet.code, what, key="context.policy")
    return FlowEngine(settings=settings, create=create, info=info)


async def _try_engine(engine_id: str, create: CreateEngine, setup: EngineSetup) -> EngineInfo:
    guard = GuardedEngine(await create_in_time(engine_id, create, setup), clock=SYSTEM_CLOCK)
    await close_engine(guard)
    return guard.info


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlace:
    """Where the session of an attempt is."""

    folder: Path
    """Its folder, named after the session's id. It need not exist."""
    is_kept: bool
    """Whether it outlives the attempt. Otherwise the engine forgets the session, and the folder is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSession:
    """The session of an attempt: the attempt is its sitting, of one turn."""

    context: ContextRef
    kept: KeptSitting | None
    """None if it could not be opened."""
    tools: tuple[Tool, ...]
    """The tools of the engine."""
    refusal: ProctorError | None
    """Why it could not be opened. None if it could."""


@asynccontextmanager
async def open_attempt_session(
    engine: FlowEngine,
    place: SessionPlace,
    *,
    root: RootPaths,
    run_id: RunId,
    attempt: AttemptId,
    flow: ResolvedFlow,
    candidate: Candidate,
    is_ephemeral: bool,
    clock: Clock,
) -> AsyncIterator[AttemptSession]:
    """Open the session of an attempt, and its engine, for as long as the attempt runs.

    Why it cannot be opened is part of the result and not raised: the attempt ends with it.
    """
    opening = _open_sitting(
        engine, place, root, run_id, attempt, flow, candidate, is_ephemeral=is_ephemeral, clock=clock
    )
    is_over = False
    try:
        async with AsyncExitStack() as stack:
            if not place.is_kept:
                stack.push_async_callback(_remove, place.folder)
            try:
                opened = await stack.enter_async_context(opening)
            except ProctorError as error:
                opened = AttemptSession(context=engine.ref, kept=None, tools=(), refusal=error)
            yield opened
            is_over = True
    except ProctorError as error:
        if not is_over:
            raise
        # The attempt is sealed. The next opening of a session that is kept settles what was not stored.
        log.warning(
            "the session of an attempt was not closed", extra={"engineId": engine.info.id, "reason": error.what}
        )


@asynccontextmanager
async def _open_sitting(
    engine: FlowEngine,
    place: SessionPlace,
    root: RootPaths,
    run_id: RunId,
    attempt: AttemptId,
    flow: ResolvedFlow,
    candidate: Candidate,
    *,
    is_ephemeral: bool,
    clock: Clock,
) -> AsyncIterator[AttemptSession]:
    """As `open_attempt_session`, and raise ProctorError if it cannot be opened."""
    asked = ContextRequest(settings=engine.settings)
    async with _open_session(place.folder, root, clock=clock) as kept:
        agent = SittingAgent(
            candidate=candidate,
            options=flow.options.get(candidate.runtime_id, {}),
            model=flow.model.name,
            process=None,
            tools=(),
            takes_more_tools=_takes_tools(kept),
        )
        async with open_engine(asked, engine.create, kept, agent, clock=clock) as (use, tools):
            with refusing_damage(kept.paths.store):
                n, first_turn = kept.store.next_sitting(), kept.store.next_turn()
            sitting = Sitting(
                n=n,
                run_id=run_id,
                attempt_id=attempt,
                runtime_id=candidate.runtime_id,
                began_at_ms=clock.wall_ms(),
                state=SittingState.OPEN,
                tools=tools_digest(tools),
                is_ephemeral=is_ephemeral,
            )
            keeper = SessionKeeper(kept, sitting, first_turn=first_turn)
            await keeper.begin(SessionSettings(runtime=candidate.runtime_id, context=engine.settings))
            try:
                kept_sitting = KeptSitting(keeper=keeper, engine=use)
                yield AttemptSession(context=context_ref(use.info), kept=kept_sitting, tools=tools, refusal=None)
            finally:
                # Shielded, so that the turn of a cancelled caller is stored; each write is bounded.
                with anyio.CancelScope(shield=True):
                    await keeper.close()
            if not place.is_kept:
                # It may keep something of the session outside of the session's folder.
                await forget_engine(use.guard, kept.header.id, "delete")


async def _remove(folder: Path) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(REMOVE_S), suppress(OSError):
        await anyio.to_thread.run_sync(remove, folder, abandon_on_cancel=True)


@asynccontextmanager
async def _open_session(folder: Path, root: RootPaths, *, clock: Clock) -> AsyncIterator[KeptSession]:
    failure: Exception | None = None
    with ExitStack() as stack:
        opening = open_session_at(SessionPaths(folder), root, clock=clock)
        kept = await anyio.to_thread.run_sync(stack.enter_context, opening)
        try:
            yield kept
        except Exception as error:
            # Kept out of the store, which would report an SQLite error of the caller as its own damage.
            failure = error
    if failure is not None:
        raise failure


def _takes_tools(kept: KeptSession) -> bool:
    """Whether tools of the engine can be offered: a thread keeps the tools that it was started with."""
    with refusing_damage(kept.paths.store):
        binding, _ = kept.store.binding
    return binding is None or binding.tools != tools_digest(())
