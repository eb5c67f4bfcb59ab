"""The lifecycle of a turn with a context engine: what the engine is asked, what the thread is given, what is committed.

The order, which a test fixes: history, bootstrap, maintain, assemble, decide on the thread, project, hooks, open the
thread, give, turn, mirror, commit, maintain. Nothing here names a runtime or an engine.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal

import anyio
from msgspec.structs import replace

from proctor.context.binding import ThreadReason
from proctor.context.budget import Budget, estimate_messages
from proctor.context.commit_queue import CommitQueue
from proctor.context.compaction import Compaction, compact_by_engine
from proctor.context.context_meter import ContextMeter
from proctor.context.engine import (
    AssembleResult,
    CompactStatus,
    EngineContext,
    ForgetReason,
    MaintainReason,
    PromptCache,
)
from proctor.context.engine_use import ContextLog, EngineUse
from proctor.context.guard import CancelSignal
from proctor.context.history import History
from proctor.context.hooks import CompactionNotice, observe_compaction
from proctor.context.keeper import SessionKeeper
from proctor.context.model import RecordedTurn, TurnContext, TurnState
from proctor.context.port import AgentPort
from proctor.context.project import ContextProjection, ProjectionMode
from proctor.context.thread_giver import Assembled, PromptRequest, ThreadGiver
from proctor.errors import EngineError, ProctorError
from proctor.event.message import UserPart
from proctor.event.model import CompactionBegan, CompactionEnded, Tokens
from proctor.event.outcome import Outcome
from proctor.event.row import ContextProblem
from proctor.runtime.base import Session

RETRY_SHARE: Final = 0.6
"""The share of the budget that a turn is given when it is retried because the model refused its length."""

MAINTENANCE_S: Final = 10.0
"""How long a turn, or the end of the sitting, waits for maintenance."""

CONTEXT_FULL: Final = "provider.context-full"


HookName = Literal["before_compaction", "after_compaction"]


class ContextLifecycle:
    """The turns of one sitting with a context engine.

    If the engine fails, the policy of the session decides: `degrade` runs the turn without it and records why, `strict`
    raises the error, so that the turn is refused.
    """

    def __init__(self, use: EngineUse, *, keeper: SessionKeeper, port: AgentPort) -> None:
        self._use = use
        self._keeper = keeper
        self._port = port
        self._meter = ContextMeter(configured_window=use.window)
        self._giver = ThreadGiver(use, keeper=keeper, port=port, meter=self._meter)
        self._commits = CommitQueue(use, keeper=keeper, port=port, meter=self._meter, context=self.runtime_context)
        self._log = ContextLog(use, keeper)
        self._is_bootstrapped = False
        self._maintenance: anyio.Event | None = None
        self._maintenance_problem: EngineError | None = None

    async def open(self) -> None:
        """Commit what earlier sittings left. Raises no error: the first turn tries again."""
        with suppress(ProctorError):
            await self._commits.commit()

    # ── a turn ──

    async def run_turn(self, text: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        """Ask one turn, with the context that the engine assembles. Returns when the agent has ended it.

        Raises ProctorError under the policy `strict`, and what the agent's session raises.
        """
        turn = self._keeper.open_turn
        assert turn is not None, "the request of the turn is recorded"
        with self._keeper.history() as history:
            request = PromptRequest(turn=turn, text=text, history=history, output_schema=output_schema)
            await self._wait_for_maintenance()
            maintenance = self._tolerated(self._take_maintenance_problem())
            commit = self._tolerated(await self._commits.commit())
            bootstrap = self._tolerated(await self.bootstrap_engine(history))
            maintenance = self._tolerated(self._take_maintenance_problem()) or maintenance
            assembled = await self.assemble_context(request, self._meter.budget)
            problem = assembled.problem or bootstrap or commit or maintenance
            await self._giver.take_turn(request, assembled, problem=problem)
            if self._was_too_long():
                budget = self._meter.budget
                budget = replace(budget, history=int(budget.history * RETRY_SHARE))
                assembled = await self.assemble_context(request, budget)
                problem = assembled.problem or problem
                await self._giver.take_turn(
                    request, assembled, problem=problem, new_thread_because=ThreadReason.OVERFLOW
                )

    async def bootstrap_engine(self, history: History) -> EngineError | None:
        """Give the engine the history, on the first turn of a sitting and if there is any. Returns why it failed.

        After a failure the next turn tries again.
        """
        if self._is_bootstrapped:
            return None
        if len(history):
            self._log.info("bootstrap started")
            try:
                await self._use.guard.bootstrap(self.runtime_context(), history)
            except EngineError as error:
                self._log.info("bootstrap failed", reason=error.code)
                return error
            self._log.info("bootstrap completed")
            self._commits.note_bootstrap()
            self.run_maintenance("bootstrap")
            # Also in the background: what was said before may be more than fits before it is shortened.
            await self._wait_for_maintenance(is_needed=True)
        self._is_bootstrapped = True
        return None

    async def assemble_context(self, request: PromptRequest, budget: Budget) -> Assembled:
        """Ask the engine what the model should know. It gets the prompt as it is recorded, without secrets."""
        problem, result = self._tolerated(self._use.unmet), AssembleResult(messages=())
        if problem is None:
            try:
                context = self.runtime_context(budget=budget)
                result = await self._use.guard.assemble(context, request.history, request.turn.messages[0])
            except EngineError as error:
                problem = self._tolerated(error)
        if problem is not None:
            return Assembled(result=result, budget=budget, projection=ContextProjection(), problem=problem)
        estimate = estimate_messages(result.messages, ratio=self._meter.ratio)
        self._log.info(
            "assemble applied",
            turn=request.turn,
            assembled=len(result.messages),
            tokens=estimate.tokens,
            has_addition=bool(result.system_addition),
        )
        mode = self._use.mode or result.projection.mode
        if mode is ProjectionMode.THREAD_BOOTSTRAP and not result.projection.epoch:
            mode = ProjectionMode.PER_TURN
        projection = replace(result.projection, mode=mode)
        return Assembled(result=result, budget=budget, projection=projection, estimate=estimate)

    def runtime_context(self, *, budget: Budget | None = None) -> EngineContext:
        """Return what the engine may know and use in a call. Before and during a turn it cannot rewrite."""
        may_rewrite = self._keeper.open_turn is None
        citations, usage = self._use.options.get("citations"), self._port.usage
        tokens = None if usage is None else usage.tokens
        return EngineContext(
            session=self._keeper.key,
            model=self._use.model,
            tools=self._use.tools,
            budget=budget or self._meter.budget,
            ratio=self._meter.ratio,
            citations=citations if isinstance(citations, str) else None,
            usage=usage,
            prompt_cache=None if tokens is None else _prompt_cache(tokens),
            # The guard gives each call its own signal.
            cancel=CancelSignal(),
            rewrite=self._keeper.replace_entries if may_rewrite else None,
            complete=self._use.complete,
        )

    async def finalize_turn(self) -> None:
        """Commit the turn that is over and stored, and have the engine maintained. Raises no error.

        Turns that did not complete are neither committed nor followed by maintenance.
        """
        turn = self._keeper.last_over
        if turn is None or turn.kind != "prompt":
            return
        if turn.state is not TurnState.ACCEPTED:
            why = f"the turn ended as {turn.ending.outcome}"
            self._commits.skip(turn, why=why)
            self._log.info_of_turn("maintenance skipped", turn, reason=why)
            return
        problem: ProctorError | None
        is_stored = self._keeper.problem is None
        if (session := self._port.session) is not None:
            await self._meter.measure(session, turn)
        try:
            problem = await (self._commits.commit() if is_stored else self._commits.commit_unstored(turn))
            self._commits.defer(turn, problem)
        except ProctorError as error:  # how far the commit has come could not be stored
            problem = error
        made = self._commits.status_of(turn.id)
        if made is not None and made.status == "committed":
            self._log.info_of_turn("finalize completed", turn, source=made.source)
            self.run_maintenance("turn")
        else:
            reason = "an earlier turn waits" if problem is None else problem.code
            self._log.info_of_turn("finalize failed", turn, reason=reason)
            self._log.info_of_turn("maintenance skipped", turn, reason=reason)

    def context_of(self, turn: RecordedTurn | None) -> TurnContext | None:
        """Return what the engine did for a turn, with what is known of its commit."""
        if turn is None or turn.context is None or (commit := self._commits.status_of(turn.id)) is None:
            return None if turn is None else turn.context
        return replace(turn.context, commit=commit.status, commit_detail=commit.detail)

    def _take_maintenance_problem(self) -> EngineError | None:
        """Return why maintenance failed since this was asked last."""
        problem, self._maintenance_problem = self._maintenance_problem, None
        return problem

    def _tolerated(self, problem: ProctorError | None) -> ProctorError | None:
        """Return the problem. Under the policy `strict` it is raised."""
        if problem is not None and self._use.is_strict:
            raise problem
        return problem

    def _was_too_long(self) -> bool:
        """Return whether the model refused the length before any text or tool call, and less can be given."""
        turn, ending = self._keeper.open_turn, self._port.ending
        if turn is None or turn.context is None or (turn.context.thread == "start" and not turn.context.given):
            return False
        return (
            ending.outcome is not Outcome.COMPLETED
            and ending.code == CONTEXT_FULL
            and all(isinstance(message.part, UserPart) for message in turn.messages)
        )

    # ── compaction ──

    async def compact(self, *, focus: str | None) -> Compaction | None:
        """Have the engine shorten its context. None if it does not own the compaction. Raises no error."""
        info = self._use.info
        if not info.owns_compaction:
            return None
        await self._wait_for_maintenance()
        notice = CompactionNotice(backend=info.id, owns_compaction=True, trigger="manual")
        problem: ProctorError | None = await self._observe("before_compaction", notice)
        if problem is not None and self._use.is_strict:
            return Compaction(status=CompactStatus.ABORTED, reason=problem.what, code=problem.code)
        try:
            await self._commits.commit()
            # Without a turn in this sitting, the engine may not know what was imported, or said without it.
            with self._keeper.history() as history:
                problem = await self.bootstrap_engine(history)
        except ProctorError as error:
            problem = error
        if problem is not None:
            return Compaction(status=CompactStatus.FAILED, reason=problem.what, code=problem.code)
        compaction = await compact_by_engine(self._use.guard, self.runtime_context(), focus=focus)
        ended = CompactionNotice(
            backend=info.id,
            owns_compaction=True,
            trigger="manual",
            ok=compaction.status is CompactStatus.COMPACTED,
            tokens_before=compaction.tokens_before,
            tokens_after=compaction.tokens_after,
        )
        await self._observe("after_compaction", ended)
        self.run_maintenance("compaction")
        return compaction

    async def resume_thread(self) -> Session:
        """Open the session's thread as it is, if it is not open. Raises RefusedError if it cannot be continued."""
        return await self._giver.resume_thread()

    def note_compaction(self, event: CompactionBegan | CompactionEnded) -> None:
        """Note that the agent begins or has ended to shorten its thread. The hooks run beside the turn."""
        notice = CompactionNotice(
            backend=self._port.runtime_id,
            owns_compaction=self._use.info.owns_compaction,
            trigger=event.trigger or "unknown",
        )
        if isinstance(event, CompactionBegan):
            self._observe_beside("before_compaction", notice)
            return
        self._meter.forget_used()
        if self._use.info.owns_compaction:
            self._log.info("native compaction completed alongside context-engine compaction")
        ended = CompactionNotice(
            backend=notice.backend,
            owns_compaction=notice.owns_compaction,
            trigger=notice.trigger,
            ok=event.ok,
            tokens_before=event.tokens_before,
            tokens_after=event.tokens_after,
        )
        self._observe_beside("after_compaction", ended)

    def _observe_beside(self, name: HookName, notice: CompactionNotice) -> None:
        async def observe() -> None:
            await self._observe(name, notice)

        self._port.start_soon(observe)

    async def _observe(self, name: HookName, notice: CompactionNotice) -> EngineError | None:
        hooks = self._use.before_compaction if name == "before_compaction" else self._use.after_compaction
        problem = await observe_compaction(name, hooks, notice)
        if problem is not None:
            self._port.record(ContextProblem(code=problem.code, detail=problem.what))
        return problem

    # ── the engine outside of turns ──

    def run_maintenance(self, reason: MaintainReason) -> None:
        """Have the engine maintained, beside the turns. While one maintenance runs, no other is started."""
        if self._maintenance is not None and not self._maintenance.is_set():
            self._log.info("maintenance skipped", reason="the last one still runs")
            return
        self._maintenance = done = anyio.Event()

        async def maintain() -> None:
            try:
                await self._use.guard.maintain(self.runtime_context(), reason)
            except EngineError as error:
                self._log.info("maintenance skipped", reason=error.code)
                if error.code != "engine.quarantined":
                    # The turn that it followed is over, so the next one names it.
                    self._maintenance_problem = error
            finally:
                done.set()

        self._port.start_soon(maintain)

    async def forget(self, reason: ForgetReason) -> None:
        """Have the engine forget the session. Raises EngineError."""
        await self._wait_for_maintenance()
        await self._use.guard.forget(self.runtime_context(), reason)

    async def close(self) -> None:
        """Wait a bounded time for maintenance: a sitting of one turn is over before it has begun."""
        await self._wait_for_maintenance(is_needed=True)

    async def _wait_for_maintenance(self, *, is_needed: bool = False) -> None:
        """Wait for maintenance in the foreground. A call of the engine waits for the rest, as its guard allows."""
        is_beside = self._use.info.maintenance == "background" and not is_needed
        if self._maintenance is None or is_beside:
            return
        with anyio.move_on_after(MAINTENANCE_S):
            await self._maintenance.wait()


def _prompt_cache(tokens: Tokens) -> PromptCache | None:
    """Return what the agent reported of its provider's cache. None if it reported nothing."""
    if tokens.cached_input is None and tokens.cache_write is None:
        return None
    return PromptCache(read_tokens=tokens.cached_input, write_tokens=tokens.cache_write)
