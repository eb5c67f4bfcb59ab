"""The lifecycle of a turn with a context engine: what the engine is asked, what the thread is given, what is committed.

The order, which a test fixes: history, bootstrap, maintain, assemble, decide on the thread, project, hooks, open the
thread, give, turn, mirror, commit, maintain. Nothing here names a runtime or an engine.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import Any, Final, Literal

import anyio
from msgspec.structs import replace

from proctor.canonical import digest
from proctor.clock import Clock
from proctor.context.binding import ContextWish, ThreadDecision, ThreadReason, decide_thread
from proctor.context.budget import (
    ASSUMED_RATIO,
    Budget,
    TokenRatio,
    budget_for,
    calibrate,
    estimate_messages,
    message_bytes,
)
from proctor.context.compaction import Compaction, compact_by_engine
from proctor.context.engine import (
    AssembleResult,
    Cancel,
    CommitGuarantee,
    Complete,
    EngineContext,
    TurnCommit,
)
from proctor.context.guard import GuardedEngine
from proctor.context.history import History
from proctor.context.hooks import PromptDraft, PromptHook, build_prompt
from proctor.context.keeper import SessionKeeper
from proctor.context.model import RecordedTurn, TurnState
from proctor.context.payload import Payload
from proctor.context.port import AgentPort, ThreadOpening
from proctor.context.project import (
    ContextProjection,
    Projection,
    ProjectionLimits,
    ProjectionMode,
    Prompt,
    digest_given,
    project,
)
from proctor.errors import EngineError, ProctorError, RefusedError
from proctor.event.message import Message, SummaryPart, UserPart
from proctor.event.outcome import Outcome
from proctor.event.row import CommitMade, ContextChosen, ContextProblem, FailurePolicy, HistoryOffer
from proctor.evidence.mask import is_masked
from proctor.ids import Digest, EntryId, ProcessId
from proctor.runtime.delivery import instructions_sha256

log = logging.getLogger("proctor.context")

MOST_PROMPT_CHARS: Final = 1_048_576
"""The longest prompt that Codex takes. No agent is given a longer one."""

MOST_COMMIT_FAILURES: Final = 3
"""After so many failed commits a turn is blocked."""

MOST_COMMITS: Final = 16
"""So many queued turns are committed before a turn."""

RETRY_SHARE: Final = 0.6
"""The share of the budget that a turn is given when it is retried because the model refused its length."""

MAINTENANCE_S: Final = 10.0
"""How long a turn, or the end of the sitting, waits for maintenance."""

CONTEXT_FULL: Final = "provider.context-full"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineUse:
    """A context engine, and how a session uses it."""

    guard: GuardedEngine
    policy: FailurePolicy
    mode: ProjectionMode | None
    """Overrides the engine's own mode. None for that."""
    window: int | None
    """Size of the context window, where the agent does not report it."""
    payload: Payload | None
    """How much of tool calls is given. None for all of it as items, and its shape as text."""
    options: Mapping[str, Any]
    complete: Complete | None
    """Calls a model for the engine."""
    model: str | None
    """Name of the model."""
    tools: frozenset[str]
    """Names of the tools that are offered to the agent."""
    tools_digest: str
    process: ProcessId | None
    """The process of a pool that carries the sitting. None for its own."""
    before_prompt_build: tuple[PromptHook, ...] = ()

    @property
    def policy_sha256(self) -> Digest:
        """The digest of what shapes the context, apart from what was said."""
        info = self.guard.info
        return digest([info.id, info.version, self.mode, self.window, self.payload, dict(self.options)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assembled:
    """What the engine assembled for a turn, and with what budget. `degraded` is why it did not."""

    result: AssembleResult
    budget: Budget
    projection: ContextProjection
    degraded: EngineError | None = None


class _Never:
    """A `Cancel` for calls whose guard sets another one."""

    is_set = False


class ContextLifecycle:
    """The turns of one sitting with a context engine.

    If the engine fails, the policy of the session decides: `degrade` runs the turn without it and records why, `strict`
    raises EngineError, so that the turn is refused.
    """

    def __init__(self, use: EngineUse, *, keeper: SessionKeeper, port: AgentPort, clock: Clock) -> None:
        self._use = use
        self._keeper = keeper
        self._port = port
        self._clock = clock
        self._is_bootstrapped = False
        self._maintenance: anyio.Event | None = None
        self._window_tokens: int | None = None
        self._used_tokens: int | None = None
        self._fixed_tokens: int | None = None
        self._ratio: TokenRatio = ASSUMED_RATIO
        self._given_bytes = 0
        self._bootstrap_problem: EngineError | None = None

    # ── a turn ──

    async def run_turn(self, text: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        """Ask one turn, with the context that the engine assembles. Returns when the agent has ended it.

        Raises EngineError under the policy `strict`, and what the agent's session raises.
        """
        turn = self._keeper.open_turn
        assert turn is not None, "the request of the turn is recorded"
        self._given_bytes = 0
        with self._keeper.history() as history:
            await self._wait_for_maintenance()
            problem = await self._commit_queued()
            await self._bootstrap_engine(history)
            assembled = await self._assemble_context(turn, history)
            problem = assembled.degraded or self._bootstrap_problem or problem
            await self._take_turn(turn, text, history, assembled, problem, output_schema=output_schema)
            if self._was_too_long():
                budget = _scaled(assembled.budget)
                retried = await self._assemble_context(turn, history, budget=budget)
                await self._take_turn(
                    turn, text, history, retried, problem, output_schema=output_schema, because=ThreadReason.OVERFLOW
                )

    async def finalize_turn(self) -> None:
        """Commit the turn that is over and stored, and have the engine maintained. Raises no error.

        Turns that did not complete are neither committed nor followed by maintenance.
        """
        turn = self._keeper.last_over
        if turn is None or turn.kind != "prompt":
            return
        if turn.state is not TurnState.ACCEPTED:
            detail = f"the turn {turn.ending.outcome}"
            self._port.record(CommitMade(turn=turn.id, status="none", detail=detail))
            self._log("maintenance skipped", reason=detail)
            return
        await self._measure(turn)
        problem = await (self._commit_unstored(turn) if self._keeper.problem else self._commit_queued(last=turn))
        if problem is None:
            self._log("finalize completed", turnId=turn.id)
            self._run_maintenance("turn")
        else:
            self._log("finalize failed", turnId=turn.id, reason=problem.what)

    async def compact(self, *, focus: str | None) -> Compaction | None:
        """Have the engine shorten its context. None if it does not own the compaction. Raises no error."""
        if not self._use.guard.info.owns_compaction:
            return None
        await self._wait_for_maintenance()
        await self._commit_queued(last=self._keeper.last_over)
        context = self._context(self._budget(), may_rewrite=True)
        compaction = await compact_by_engine(self._use.guard, context, focus=focus)
        self._run_maintenance("compaction")
        return compaction

    def native_compaction_ended(self) -> None:
        """Note that the agent has shortened its thread, beside the engine."""
        self._used_tokens = None
        self._log("native compaction completed alongside context-engine compaction")

    async def forget(self, reason: Literal["reset", "delete"]) -> None:
        """Have the engine forget the session. Raises EngineError."""
        await self._wait_for_maintenance()
        await self._use.guard.forget(self._context(self._budget()), reason)

    async def close(self) -> None:
        """Wait a bounded time for maintenance, and close the engine. Raises no error."""
        await self._wait_for_maintenance()
        with suppress(ProctorError):
            await self._use.guard.close()

    # ── the engine ──

    async def _bootstrap_engine(self, history: History) -> None:
        """Give the engine the history, on the first turn of a sitting and if there is any."""
        if self._is_bootstrapped:
            return
        if len(history):
            self._log("bootstrap started")
            try:
                await self._use.guard.bootstrap(self._context(self._budget()), history)
                await self._use.guard.maintain(self._context(self._budget()), "bootstrap")
            except EngineError as error:
                self._log("bootstrap failed", reason=error.what)
                if self._use.policy == "strict":
                    raise
                # A warning: the next turn tries again.
                self._bootstrap_problem = error
                return
            self._log("bootstrap completed", assembledMessageCount=len(history))
        self._is_bootstrapped, self._bootstrap_problem = True, None

    async def _assemble_context(
        self, turn: RecordedTurn, history: History, *, budget: Budget | None = None
    ) -> _Assembled:
        """Ask the engine what the model should know. The engine gets the prompt as it is recorded, without secrets."""
        budget = budget or self._budget()
        try:
            result = await self._use.guard.assemble(self._context(budget), history, turn.messages[0])
        except EngineError as error:
            if self._use.policy == "strict":
                raise
            nothing = AssembleResult(messages=())
            return _Assembled(result=nothing, budget=budget, projection=ContextProjection(), degraded=error)
        mode = self._use.mode or result.projection.mode
        if mode is ProjectionMode.THREAD_BOOTSTRAP and not result.projection.epoch:
            mode = ProjectionMode.PER_TURN
        self._log(
            "assemble applied",
            turnId=turn.id,
            assembledMessageCount=len(result.messages),
            estimatedTokens=estimate_messages(result.messages, ratio=self._ratio).tokens,
            hasSystemPromptAddition=bool(result.system_addition),
        )
        return _Assembled(result=result, budget=budget, projection=replace(result.projection, mode=mode))

    def _context(self, budget: Budget, *, may_rewrite: bool = False) -> EngineContext:
        """Return what the engine may know and use in a call. Before and during a turn it cannot rewrite."""
        return EngineContext(
            session=self._keeper.key,
            model=self._use.model,
            tools=self._use.tools,
            budget=budget,
            ratio=self._ratio,
            citations=_text(self._use.options.get("citations")),
            usage=self._port.usage,
            cancel=_cancel(),
            rewrite=self._keeper.replace_entries if may_rewrite else None,
            complete=self._use.complete,
        )

    def _budget(self) -> Budget:
        return budget_for(
            reported_window=self._window_tokens,
            configured_window=self._use.window,
            fixed_prompt_tokens=self._fixed_tokens,
        )

    # ── the agent ──

    async def _take_turn(
        self,
        turn: RecordedTurn,
        text: str,
        history: History,
        assembled: _Assembled,
        problem: ProctorError | None,
        *,
        output_schema: Mapping[str, Any] | None,
        because: ThreadReason | None = None,
    ) -> None:
        """Decide on the thread, project, give and ask. If the thread is gone, all of it is done once more."""
        for is_gone in (False, True):
            decision = await self._decide(assembled, is_gone=is_gone, because=because)
            given = await self._project(turn, text, history, assembled, decision)
            draft, hook_problem = await build_prompt(
                PromptDraft(prompt=given.prompt_text, instructions=given.developer_addition, messages=given.items),
                hooks=self._use.before_prompt_build,
                policy=self._use.policy,
            )
            given = _drafted(given, draft)
            self._record_choice(assembled, decision, given)
            for failure in (problem, hook_problem):
                if failure is not None:
                    self._port.record(ContextProblem(code=failure.code, detail=failure.what))
            try:
                session, given = await self._give(turn, text, history, assembled, decision, given)
            except RefusedError as error:
                if is_gone or decision.how == "start" or error.code != "peer.refused":
                    raise
                continue
            await session.turn(given.prompt_text, output_schema=output_schema)
            return

    async def _decide(self, assembled: _Assembled, *, is_gone: bool, because: ThreadReason | None) -> ThreadDecision:
        if because is not None:
            return ThreadDecision(how="start", reason=because)
        binding = self._keeper.binding
        wish = ContextWish(
            engine=self._use.guard.info.id,
            policy_sha256=self._use.policy_sha256,
            projection=assembled.projection,
            owns_compaction=self._use.guard.info.owns_compaction,
            has_room=await self._has_room(assembled),
        )
        decision = decide_thread(
            binding,
            runtime_id=self._port.runtime_id,
            tools=self._use.tools_digest,
            process=self._use.process,
            # A turn without its context continues the thread that there is.
            wish=None if assembled.degraded else wish,
            is_gone=is_gone,
        )
        if decision.how == "fork" and binding is not None:
            return replaced(decision, through=binding.last_turn)
        return decision

    async def _has_room(self, assembled: _Assembled) -> bool:
        """Return whether what the thread lacks fits into it. True if its size is unknown."""
        room = self._room(assembled.budget)
        if room is None:
            return True
        held = await self._held(assembled.result.messages)
        lacking = [each for each in assembled.result.messages if each.id not in held]
        return estimate_messages(lacking, ratio=self._ratio).tokens <= room

    def _room(self, budget: Budget) -> int | None:
        """Return how many tokens the thread can take before the agent shortens it. None if that is unknown."""
        if self._used_tokens is None or self._window_tokens is None:
            return None
        return max(0, budget.window - budget.reserve - self._used_tokens + (self._fixed_tokens or 0))

    async def _held(self, messages: Sequence[Message]) -> frozenset[EntryId]:
        """Return which of these messages, and of the sources of summaries, the thread holds."""
        ids = [message.id for message in messages]
        for message in messages:
            if isinstance(message.part, SummaryPart):
                ids += message.part.sources
        return await self._keeper.held_of(ids)

    async def _project(
        self, turn: RecordedTurn, text: str, history: History, assembled: _Assembled, decision: ThreadDecision
    ) -> Projection:
        takes_items = self._port.capabilities.takes_history
        is_new = decision.how == "start"
        return project(
            assembled.result.messages,
            original_history=history,
            prompt=Prompt(id=turn.id, text=text),
            system_addition=assembled.result.system_addition,
            held=frozenset() if is_new else await self._held(assembled.result.messages),
            limits=ProjectionLimits(
                text_chars=MOST_PROMPT_CHARS,
                tokens=None if is_new else self._room(assembled.budget),
                ratio=self._ratio,
            ),
            form="items" if takes_items else "text",
            payload=self._use.payload,
            references=assembled.result.references,
        )

    def _record_choice(self, assembled: _Assembled, decision: ThreadDecision, given: Projection) -> None:
        """Record what is about to be given, before anything of it is."""
        info, result = self._use.guard.info, assembled.result
        estimate = estimate_messages(result.messages, ratio=self._ratio)
        self._port.record(
            ContextChosen(
                engine=info.id,
                version=info.version,
                policy=self._use.policy,
                policy_sha256=self._use.policy_sha256,
                mode=assembled.projection.mode,
                epoch=assembled.projection.epoch,
                thread=decision.how,
                reason=decision.reason,
                how="items" if given.items else "text" if given.given else "none",
                assembled=len(result.messages),
                dropped=len(given.dropped),
                placeholders=sum(_masked(message) for message in result.messages if message.id in set(given.given)),
                estimated_tokens=estimate.tokens if result.messages else None,
                bytes_per_token=estimate.bytes_per_token if result.messages else None,
                sha256=None if assembled.degraded else given.sha256,
                addition_sha256=instructions_sha256(given.developer_addition),
            )
        )

    async def _give(
        self,
        turn: RecordedTurn,
        text: str,
        history: History,
        assembled: _Assembled,
        decision: ThreadDecision,
        given: Projection,
    ) -> tuple[Any, Projection]:
        """Open the thread if it is not open, give it what it lacks, and return the session and what to ask.

        Raises RefusedError if the agent does not have the thread.
        """
        addition = self._placed_addition(given.developer_addition, is_new=decision.how == "start")
        session = self._port.session
        is_open = session is not None and decision.how == "resume"
        if decision.how == "start":
            session, given = await self._start(turn, text, history, assembled, decision, given, addition)
        else:
            if not is_open or session is None:
                opening = ThreadOpening(decision=decision, instructions=addition)
                session = await self._port.open_thread(opening)
            binding = self._keeper.binding
            is_known = binding is not None and binding.addition == instructions_sha256(addition)
            changed = None if addition is None or is_known else addition
            if given.items or changed is not None:
                given = await self._give_more(session, turn, text, history, assembled, given, changed)
        quoted = tuple(EntryId(span.id) for span in given.spans if span.kind == "message")
        if quoted:
            self._port.record(HistoryOffer(entries=quoted, how="text"))
        self._given_bytes = sum(map(message_bytes, given.items)) + len(given.prompt_text.encode(errors="replace"))
        return session, given

    async def _start(
        self,
        turn: RecordedTurn,
        text: str,
        history: History,
        assembled: _Assembled,
        decision: ThreadDecision,
        given: Projection,
        addition: str | None,
    ) -> tuple[Any, Projection]:
        opening = ThreadOpening(decision=decision, instructions=addition, history=given.items)
        try:
            return await self._port.open_thread(opening), given
        except RefusedError as error:
            if not given.items:
                raise
            session = await self._port.open_thread(replaced(opening, history=()))
            return session, await self._as_text(turn, text, history, assembled, error)

    async def _give_more(
        self,
        session: Any,
        turn: RecordedTurn,
        text: str,
        history: History,
        assembled: _Assembled,
        given: Projection,
        instructions: str | None,
    ) -> Projection:
        try:
            await session.give(given.items, instructions=instructions)
        except RefusedError as error:
            return await self._as_text(turn, text, history, assembled, error)
        return given

    async def _as_text(
        self, turn: RecordedTurn, text: str, history: History, assembled: _Assembled, error: RefusedError
    ) -> Projection:
        """Return the same context as text, because the agent refused it as items."""
        what = f"the agent refused the messages as items, so they are in the prompt: {error.what}"
        self._port.record(ContextProblem(code=error.code, detail=what))
        return project(
            assembled.result.messages,
            original_history=history,
            prompt=Prompt(id=turn.id, text=text),
            system_addition=None,
            held=await self._held(assembled.result.messages),
            limits=ProjectionLimits(text_chars=MOST_PROMPT_CHARS, ratio=self._ratio),
            form="text",
            payload=self._use.payload,
            references=assembled.result.references,
        )

    def _placed_addition(self, addition: str | None, *, is_new: bool) -> str | None:
        """Return the instructions that the agent can take. Under `strict` it must be able to take them."""
        capabilities = self._port.capabilities
        can_take = capabilities.takes_instructions if is_new else capabilities.takes_turn_instructions
        if addition is None or can_take:
            return addition
        when = "at the start of a thread" if is_new else "between turns"
        error = EngineError("engine.no-place", f"{self._port.runtime_id} takes no instructions {when}")
        if self._use.policy == "strict":
            raise error
        self._port.record(ContextProblem(code=error.code, detail=error.what))
        return None

    def _was_too_long(self) -> bool:
        """Return whether the model refused the length of the turn, before any text or tool call."""
        turn, ending = self._keeper.open_turn, self._port.ending
        return (
            turn is not None
            and ending.outcome is not Outcome.COMPLETED
            and ending.code == CONTEXT_FULL
            and all(isinstance(message.part, UserPart) for message in turn.messages)
        )

    async def _measure(self, turn: RecordedTurn) -> None:
        """Take over what the agent reports of its context window, and calibrate the ratio of bytes to tokens."""
        session = self._port.session
        if session is None:
            return
        before, thread = self._used_tokens, turn.context is not None and turn.context.thread
        with suppress(ProctorError):
            use = await session.read_context()
            self._window_tokens, self._used_tokens = use.window_tokens, use.used_tokens
            self._fixed_tokens = use.fixed_prompt_tokens
            if before is not None and use.used_tokens is not None and thread == "resume":
                added = self._given_bytes + sum(map(message_bytes, turn.messages[1:]))
                self._ratio = calibrate(self._ratio, added_bytes=added, added_tokens=use.used_tokens - before)

    # ── commit ──

    async def _commit_queued(self, *, last: RecordedTurn | None = None) -> EngineError | None:
        """Commit the turns that the engine does not have yet, oldest first. Returns why it does not have all of them.

        Under `strict`, a turn is refused while the engine lacks an earlier one.
        """
        problem: EngineError | None = None
        for queued, messages in await self._keeper.uncommitted(most=MOST_COMMITS):
            if queued.engine != self._use.guard.info.id:
                detail = f"the session is opened with the engine {self._use.guard.info.id}"
                await self._keeper.note_commit(queued.n, TurnState.BLOCKED, detail=detail)
                continue
            problem = await self._commit(queued.id, messages)
            if problem is None:
                await self._keeper.note_commit(queued.n, TurnState.ACKNOWLEDGED)
                self._port.record(CommitMade(turn=queued.id, status="committed"))
                continue
            # A quarantined engine was not called.
            failures = queued.failures + (problem.code != "engine.quarantined")
            is_blocked = failures >= MOST_COMMIT_FAILURES
            state = TurnState.BLOCKED if is_blocked else TurnState.READY
            await self._keeper.note_commit(queued.n, state, failures=failures, detail=problem.what)
            status: Literal["blocked", "queued"] = "blocked" if is_blocked else "queued"
            self._port.record(CommitMade(turn=queued.id, status=status, detail=problem.what))
            if not is_blocked:
                break
        if problem is not None and last is None and self._use.policy == "strict":
            raise problem
        return problem

    async def _commit_unstored(self, turn: RecordedTurn) -> EngineError | None:
        """Commit a turn that the mirror could not take: the engine has it now, and the repair is then a duplicate."""
        log.warning("commit from the record", extra={"source": "fallback", "sessionId": self._keeper.key})
        problem = await self._commit(turn.id, turn.messages)
        status: Literal["queued", "committed"] = "committed" if problem is None else "queued"
        detail = None if problem is None else problem.what
        self._port.record(CommitMade(turn=turn.id, status=status, source="fallback", detail=detail))
        return problem

    async def _commit(self, key: EntryId, messages: tuple[Message, ...]) -> EngineError | None:
        turn = TurnCommit(
            key=key, messages=messages, model=self._use.model, budget=self._budget(), usage=self._port.usage
        )
        context = self._context(turn.budget, may_rewrite=True)
        try:
            if self._use.guard.info.commits is CommitGuarantee.EXACTLY_ONCE:
                await self._use.guard.commit_turn(context, turn)
            else:
                with self._keeper.history() as history:
                    await self._use.guard.commit_turn(replaced(context, history=history), turn)
        except EngineError as error:
            return error
        except ProctorError as error:
            return EngineError("engine.failed", f"commit_turn was not called: the history cannot be read ({error})")
        return None

    # ── maintenance ──

    def _run_maintenance(self, reason: Literal["turn", "compaction"]) -> None:
        """Have the engine maintained, beside the turns. One that still runs is not joined by another."""
        if self._maintenance is not None and not self._maintenance.is_set():
            self._log("maintenance skipped", reason="the last one still runs")
            return
        self._maintenance = done = anyio.Event()

        async def maintain() -> None:
            try:
                await self._use.guard.maintain(self._context(self._budget(), may_rewrite=True), reason)
            except EngineError as error:
                self._log("maintenance skipped", reason=error.what)
            finally:
                done.set()

        self._port.start_soon(maintain)

    async def _wait_for_maintenance(self) -> None:
        if self._maintenance is None or self._use.guard.info.maintenance == "background":
            return
        with anyio.move_on_after(MAINTENANCE_S):
            await self._maintenance.wait()

    def _log(self, event: str, **fields: object) -> None:
        # The digest of the id: an id may name a person.
        key = self._keeper.key
        binding = self._keeper.binding
        extra = {
            "sessionId": digest(key)[-12:],
            "sessionKey": "[redacted]",
            "engineId": self._use.guard.info.id,
            "threadId": None if binding is None else binding.thread,
            **fields,
        }
        log.info(event, extra=extra)


def _scaled(budget: Budget) -> Budget:
    return replace(budget, history=int(budget.history * RETRY_SHARE))


def _drafted(given: Projection, draft: PromptDraft) -> Projection:
    """Return the projection as the hooks left it, with the digest of that."""
    if draft.prompt == given.prompt_text and draft.instructions == given.developer_addition:
        return given
    return replaced(
        given,
        prompt_text=draft.prompt,
        developer_addition=draft.instructions,
        sha256=digest_given(draft.instructions, draft.prompt, given.items),
    )


def _masked(message: Message) -> bool:
    part = message.part
    match part:
        case UserPart(text=text):
            return is_masked(text)
        case _:
            return is_masked(str(part))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _cancel() -> Cancel:
    return _Never()
