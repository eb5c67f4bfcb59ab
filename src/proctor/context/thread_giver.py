"""Gives the native thread what it lacks for a turn, and asks the turn. Names no runtime."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from proctor.context.binding import ContextWish, ThreadDecision, ThreadReason, decide_thread
from proctor.context.budget import Budget, estimate_messages
from proctor.context.context_meter import ContextMeter
from proctor.context.engine import AssembleResult
from proctor.context.engine_use import EngineUse
from proctor.context.history import History
from proctor.context.hooks import PromptDraft, build_prompt
from proctor.context.keeper import SessionKeeper
from proctor.context.model import RecordedTurn
from proctor.context.port import AgentPort, ThreadOpening
from proctor.context.project import (
    ContextProjection,
    Form,
    Projection,
    ProjectionLimits,
    Prompt,
    digest_given,
    is_held,
    project,
)
from proctor.context.store import words_of
from proctor.errors import EngineError, ProctorError, RefusedError
from proctor.event.message import Message, SummaryPart
from proctor.event.row import ContextChosen, ContextProblem, HistoryOffer
from proctor.evidence.mask import count_masked
from proctor.ids import EntryId
from proctor.runtime.base import Session
from proctor.runtime.delivery import instructions_sha256

MOST_PROMPT_CHARS: Final = 1_048_576
"""The longest prompt that Codex takes. No agent is given a longer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRequest:
    """A turn that was asked and has not begun."""

    turn: RecordedTurn
    text: str
    """The prompt as the caller gave it. In the record its secrets are masked."""
    history: History
    """What was said before."""
    output_schema: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """What the engine assembled for a turn, and with what budget."""

    result: AssembleResult
    budget: Budget
    projection: ContextProjection
    problem: ProctorError | None = None
    """Why the engine assembled nothing. None if it did."""


class ThreadGiver:
    """Decides on the native thread of a turn, gives it what it lacks, and asks."""

    def __init__(self, use: EngineUse, *, keeper: SessionKeeper, port: AgentPort, meter: ContextMeter) -> None:
        self._use = use
        self._keeper = keeper
        self._port = port
        self._meter = meter

    async def take_turn(
        self,
        request: PromptRequest,
        assembled: Assembled,
        *,
        problem: ProctorError | None,
        new_thread_because: ThreadReason | None = None,
    ) -> None:
        """Decide, project, call the hooks, give and ask. If the thread is gone, all of it is done once more.

        `problem` is why the engine does not apply in full. Raises EngineError under the policy `strict`, and what the
        agent's session raises.
        """
        for is_gone in (False, True):
            decision = await self._decide(assembled, is_gone=is_gone, because=new_thread_because)
            given = await self._project(request, assembled, decision)
            given, hook_problem = await self._call_hooks(given)
            self._record_choice(assembled, decision, given)
            self._record_problems(problem, hook_problem)
            try:
                session, given = await self._give(request, assembled, decision, given)
                self._meter.note_given(given)
                await session.turn(given.prompt_text, output_schema=request.output_schema)
            except RefusedError as error:
                if is_gone or decision.how == "start" or not self._is_thread_refused(error):
                    raise
                continue
            return

    async def resume_thread(self) -> Session:
        """Open the session's thread, if it is not open, and give it nothing.

        Raises RefusedError if it cannot be continued.
        """
        if (session := self._port.session) is not None:
            return session
        decision = decide_thread(
            self._keeper.binding,
            runtime_id=self._port.runtime_id,
            tools=self._use.tools_digest,
            process=self._use.process,
        )
        if decision.how != "resume":
            raise RefusedError("peer.refused", f"there is no thread that can be continued: {decision.reason}")
        self._meter.thread_changed()
        return await self._port.open_thread(ThreadOpening(decision=decision))

    def _is_thread_refused(self, error: RefusedError) -> bool:
        """Return whether the agent refused to continue the thread. Some agents do so only with the first prompt."""
        return error.code == "peer.refused" and not self._port.has_turn_begun

    # ── deciding ──

    async def _decide(self, assembled: Assembled, *, is_gone: bool, because: ThreadReason | None) -> ThreadDecision:
        if because is not None:
            return ThreadDecision(how="start", reason=because)
        binding, info = self._keeper.binding, self._use.info
        wish = ContextWish(
            engine=info.id,
            policy_sha256=self._use.policy_sha256,
            projection=assembled.projection,
            owns_compaction=info.owns_compaction,
            has_room=await self._has_room(assembled),
        )
        decision = decide_thread(
            binding,
            runtime_id=self._port.runtime_id,
            tools=self._use.tools_digest,
            process=self._use.process,
            # A turn without its context continues the thread that there is.
            wish=wish if assembled.problem is None else None,
            is_gone=is_gone,
        )
        if decision.how == "fork" and binding is not None and self._use.is_origin_continued:
            return replace(decision, through=binding.last_turn)
        return decision

    async def _has_room(self, assembled: Assembled) -> bool:
        """Return whether what the thread lacks fits into it. True if its size is unknown."""
        room = self._meter.room_tokens
        if room is None:
            return True
        held = await self._held(assembled.result.messages)
        lacking = (each for each in assembled.result.messages if not is_held(each, held))
        return estimate_messages(lacking, ratio=self._meter.ratio).tokens <= room

    async def _held(self, messages: tuple[Message, ...]) -> frozenset[EntryId]:
        """Return which of these messages, and of the sources of summaries, the thread holds."""
        return await self._keeper.held_of(_ids_of(messages))

    # ── projecting ──

    async def _project(self, request: PromptRequest, assembled: Assembled, decision: ThreadDecision) -> Projection:
        is_new = decision.how == "start"
        # Without room that is known, what was checked against the budget fits.
        tokens = assembled.budget.history if assembled.result.may_overflow else None
        return self._projection(
            request,
            assembled,
            form="items" if self._port.capabilities.takes_history else "text",
            held=frozenset() if is_new else await self._held(assembled.result.messages),
            tokens=tokens if is_new else self._meter.room_tokens,
            addition=assembled.result.system_addition,
        )

    def _projection(
        self,
        request: PromptRequest,
        assembled: Assembled,
        *,
        form: Form,
        held: frozenset[EntryId],
        tokens: int | None,
        addition: str | None,
    ) -> Projection:
        return project(
            assembled.result.messages,
            original_history=request.history,
            prompt=Prompt(id=request.turn.id, text=request.text),
            system_addition=addition,
            held=held,
            limits=ProjectionLimits(text_chars=MOST_PROMPT_CHARS, tokens=tokens, ratio=self._meter.ratio),
            form=form,
            payload=self._use.payload,
            references=assembled.result.references,
        )

    async def _call_hooks(self, given: Projection) -> tuple[Projection, EngineError | None]:
        """Return what the caller's hooks made of it, with the digest of that."""
        before = PromptDraft(prompt=given.prompt_text, instructions=given.developer_addition, messages=given.items)
        draft, problem = await build_prompt(before, hooks=self._use.before_prompt_build, policy=self._use.policy)
        if draft == before:
            return given, problem
        changed = replace(
            given,
            prompt_text=draft.prompt,
            developer_addition=draft.instructions,
            sha256=digest_given(draft.instructions, draft.prompt, given.items),
        )
        return changed, problem

    # ── recording ──

    def _record_choice(self, assembled: Assembled, decision: ThreadDecision, given: Projection) -> None:
        """Record what the thread should be given, before any of it is."""
        info, result = self._use.info, assembled.result
        estimate = estimate_messages(result.messages, ratio=self._meter.ratio) if result.messages else None
        ids = set(given.given)
        self._port.record(
            ContextChosen(
                engine=info.id,
                version=info.version,
                policy=self._use.policy,
                policy_sha256=self._use.policy_sha256,
                mode=assembled.projection.mode,
                commits=info.commits,
                epoch=assembled.projection.epoch,
                thread=decision.how,
                reason=decision.reason,
                how="items" if given.items else "text" if ids else "none",
                assembled=len(result.messages),
                dropped=len(given.dropped),
                placeholders=sum(count_masked(words_of(each)) for each in result.messages if each.id in ids),
                estimated_tokens=None if estimate is None else estimate.tokens,
                bytes_per_token=None if estimate is None else estimate.bytes_per_token,
                sha256=given.sha256 if assembled.problem is None else None,
                addition_sha256=instructions_sha256(given.developer_addition),
            )
        )

    def _record_problems(self, *problems: ProctorError | None) -> None:
        for problem in problems:
            if problem is not None:
                self._port.record(ContextProblem(code=problem.code, detail=problem.what))

    # ── giving ──

    async def _give(
        self, request: PromptRequest, assembled: Assembled, decision: ThreadDecision, given: Projection
    ) -> tuple[Session, Projection]:
        """Open the thread if it is not open, give it what it lacks, and return the session and what to ask it.

        Raises RefusedError if the agent does not have the thread.
        """
        addition = self._addition_for(given.developer_addition, is_new=decision.how == "start")
        try:
            session = await self._give_items(decision, given, addition)
        except _ItemsRefusedError as refused:
            self._record_problems(refused.problem)
            session = refused.session
            given = self._projection(
                request,
                assembled,
                form="text",
                held=await self._held(assembled.result.messages),
                tokens=None,
                addition=None,
            )
        quoted = tuple(EntryId(span.id) for span in given.spans if span.kind == "message")
        if quoted:
            self._port.record(HistoryOffer(entries=quoted, how="text"))
        return session, given

    async def _give_items(self, decision: ThreadDecision, given: Projection, addition: str | None) -> Session:
        """Open the thread and give it the items.

        Raises `_ItemsRefusedError` if the agent takes the thread but not the items.
        """
        session = self._port.session
        if decision.how == "start" or session is None:
            self._meter.thread_changed()
            opening = ThreadOpening(decision=decision, instructions=addition)
            if decision.how == "start":
                return await self._start(replace(opening, history=given.items))
            session = await self._port.open_thread(opening)
        binding = self._keeper.binding
        is_known = binding is not None and binding.addition == instructions_sha256(addition)
        changed = None if is_known else addition
        if given.items or changed is not None:
            try:
                await session.give(given.items, instructions=changed)
            except RefusedError as error:
                raise _ItemsRefusedError(session, error) from error
        return session

    async def _start(self, opening: ThreadOpening) -> Session:
        try:
            return await self._port.open_thread(opening)
        except RefusedError as error:
            if not opening.history:
                raise
            session = await self._port.open_thread(replace(opening, history=()))
            raise _ItemsRefusedError(session, error) from error

    def _addition_for(self, addition: str | None, *, is_new: bool) -> str | None:
        """Return the instructions if the agent can take them now. Under `strict` it must be able to."""
        capabilities = self._port.capabilities
        if addition is None or (capabilities.takes_instructions if is_new else capabilities.takes_turn_instructions):
            return addition
        binding = self._keeper.binding
        if not is_new and binding is not None and binding.addition == instructions_sha256(addition):
            # The thread has them already.
            return addition
        when = "at the start of a thread" if is_new else "between turns"
        problem = EngineError("engine.no-place", f"{self._port.runtime_id} takes no instructions {when}")
        if self._use.is_strict:
            raise problem
        self._record_problems(problem)
        return None


class _ItemsRefusedError(Exception):
    """The agent has the thread and refused the items."""

    def __init__(self, session: Session, error: RefusedError) -> None:
        super().__init__(error.what)
        self.session = session
        self.problem = RefusedError(
            error.code, f"the agent refused the messages as items, so they are in the prompt: {error.what}"
        )


def _ids_of(messages: tuple[Message, ...]) -> Iterator[EntryId]:
    for message in messages:
        yield message.id
        if isinstance(message.part, SummaryPart):
            yield from message.part.sources
