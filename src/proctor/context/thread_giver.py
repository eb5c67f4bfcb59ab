"""Gives the native thread what it lacks for a turn, and asks the turn. Names no runtime."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from proctor.context.binding import ContextNeeds, ThreadDecision, ThreadReason, decide_thread
from proctor.context.budget import Budget, TokenEstimate, estimate_messages
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
from proctor.context.reference import reference_mark
from proctor.context.store import words_of
from proctor.errors import EngineError, ProctorError, RefusedError
from proctor.event.message import SummaryPart
from proctor.event.row import ContextChosen, ContextProblem, HistoryOffer, HistoryReceipt
from proctor.evidence.mask import count_masked
from proctor.ids import EntryId
from proctor.runtime.base import Session, TakesReferences
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
    estimate: TokenEstimate | None = None
    """The tokens of the messages. None if the engine assembled nothing."""
    problem: ProctorError | None = None
    """Why the engine assembled nothing. None if it did."""


class ThreadGiver:
    """Decides on the native thread of a turn, gives it what it lacks, and asks."""

    def __init__(self, use: EngineUse, *, keeper: SessionKeeper, port: AgentPort, meter: ContextMeter) -> None:
        self._use = use
        self._keeper = keeper
        self._port = port
        self._meter = meter
        self._is_quoting = False

    async def take_turn(
        self,
        request: PromptRequest,
        assembled: Assembled,
        *,
        problem: ProctorError | None,
        new_thread_because: ThreadReason | None = None,
    ) -> None:
        """Decide, project, call the hooks, give and ask. If the thread is gone, all of it is done once more.

        If the agent refuses the prompt with what is quoted in it, it is asked the plain prompt. `problem` is why the
        engine does not apply in full. Raises EngineError under the policy `strict`, and what the agent's session
        raises.
        """
        for is_gone in (False, True):
            decision = await self._decide(assembled, is_gone=is_gone, because=new_thread_because)
            given = await self._project(request, assembled, decision, form=self._use.intake.form)
            unplaced = await self._find_unplaced(assembled, decision)
            given, hook_problem = await self._call_hooks(given)
            self._record_choice(assembled, decision, given)
            self._record_problems(problem, unplaced, hook_problem)
            try:
                await self._ask(request, assembled, decision, given)
            except RefusedError as error:
                if not self._is_thread_refused(error):
                    raise
                if decision.how != "start" and not is_gone:
                    continue
                await self._ask_plainly(request, assembled, decision, error)
            return

    async def _ask_plainly(
        self, request: PromptRequest, assembled: Assembled, decision: ThreadDecision, error: RefusedError
    ) -> None:
        """Ask without what was quoted in the prompt. Raises the error if nothing was, or under the policy `strict`."""
        session = self._port.session
        if not self._is_quoting or session is None or self._use.is_strict:
            raise error
        self._port.record(HistoryReceipt(how="text", problem=error.what))
        problem = RefusedError(error.code, f"the agent refused the prompt with what was quoted in it: {error.what}")
        nothing = AssembleResult(messages=(), system_addition=assembled.result.system_addition)
        plain = replace(assembled, result=nothing, problem=problem)
        same = replace(decision, how="resume", thread=session.thread, through=None)
        given, hook_problem = await self._call_hooks(await self._project(request, plain, same, form="text"))
        self._record_choice(plain, same, given)
        self._record_problems(hook_problem, problem)
        await self._give_and_ask(request, same, given)

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
        self._meter.forget_used()
        return await self._port.open_thread(ThreadOpening(decision=decision))

    def _is_thread_refused(self, error: RefusedError) -> bool:
        """Return whether the agent refused to continue the thread. Some agents do so only with the first prompt."""
        return error.code == "peer.refused" and not self._port.has_turn_begun

    # ── deciding ──

    async def _decide(self, assembled: Assembled, *, is_gone: bool, because: ThreadReason | None) -> ThreadDecision:
        if because is not None:
            return ThreadDecision(how="start", reason=because)
        binding, info = self._keeper.binding, self._use.info
        needs = ContextNeeds(
            engine=info.id,
            policy_sha256=self._use.policy_sha256(assembled.projection.fingerprint),
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
            needs=needs if assembled.problem is None else None,
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
        held = await self._held(assembled.result)
        lacking = (each for each in assembled.result.messages if not is_held(each, held))
        return estimate_messages(lacking, ratio=self._meter.ratio).tokens <= room

    async def _held(self, result: AssembleResult) -> frozenset[EntryId]:
        """Return which of the messages, of the sources of summaries and of the references the thread holds."""
        return await self._keeper.held_of(_ids_of(result))

    # ── projecting ──

    async def _project(
        self, request: PromptRequest, assembled: Assembled, decision: ThreadDecision, *, form: Form | None
    ) -> Projection:
        """Return what the turn gives to the agent: only the prompt, if the runtime takes nothing else."""
        intake, result, binding = self._use.intake, assembled.result, self._keeper.binding
        is_new = decision.how == "start" or intake.is_forgetful
        # Without room that is known, what was checked against the budget fits.
        tokens = assembled.budget.history if result.may_overflow else None
        # An agent does not repeat a reference that it was given before, also if its compaction has removed it.
        is_compacted = not is_new and binding is not None and binding.is_compacted
        held = frozenset() if is_new else await self._held(result)
        references = tuple(each for each in result.references if reference_mark(each) not in held)
        return project(
            () if form is None else result.messages,
            original_history=request.history,
            prompt=Prompt(id=request.turn.id, text=request.text),
            system_addition=result.system_addition,
            held=held,
            limits=ProjectionLimits(
                text_chars=MOST_PROMPT_CHARS,
                text_bytes=intake.prompt_bytes,
                tokens=tokens if is_new else self._meter.room_tokens,
                ratio=self._meter.ratio,
            ),
            form=form or "text",
            payload=self._use.payload,
            references=() if form is None else references,
            most_separate_bytes=None if is_compacted else intake.reference_bytes,
        )

    async def _find_unplaced(self, assembled: Assembled, decision: ThreadDecision) -> EngineError | None:
        """Return that the runtime takes nothing of what its thread lacks. None if it lacks nothing, or takes it.

        Raises it under the policy `strict`.
        """
        result = assembled.result
        if self._use.intake.form is not None:
            return None
        held = frozenset() if decision.how == "start" else await self._held(result)
        lacking = sum(not is_held(each, held) for each in result.messages) + len(result.references)
        if not lacking:
            return None
        what = f"{self._port.runtime_id} takes no context, so {lacking} assembled messages and references are not given"
        problem = EngineError("engine.no-place", what)
        if self._use.is_strict:
            raise problem
        return problem

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
            sha256=digest_given(draft.instructions, draft.prompt, given.items, given.separate),
        )
        return changed, problem

    # ── recording ──

    def _record_choice(self, assembled: Assembled, decision: ThreadDecision, given: Projection) -> None:
        """Record what the thread should be given, before any of it is."""
        info, result = self._use.info, assembled.result
        estimate = assembled.estimate if result.messages else None
        ids = set(given.given)
        self._port.record(
            ContextChosen(
                engine=info.id,
                version=info.version,
                policy=self._use.policy,
                policy_sha256=self._use.policy_sha256(assembled.projection.fingerprint),
                mode=assembled.projection.mode,
                commits=info.commits,
                epoch=assembled.projection.epoch,
                thread=decision.how,
                reason=decision.reason,
                how="items" if given.items else "text" if ids else "none",
                why_text=self._use.intake.why_text if ids else None,
                assembled=len(result.messages),
                dropped=len(given.dropped),
                placeholders=sum(count_masked(words_of(each)) for each in result.messages if each.id in ids),
                estimated_tokens=None if estimate is None else estimate.tokens,
                bytes_per_token=None if estimate is None else estimate.bytes_per_token,
                ratio_source=None if estimate is None else estimate.source,
                sha256=given.sha256 if assembled.problem is None else None,
                addition_sha256=instructions_sha256(given.developer_addition),
            )
        )

    def _record_problems(self, *problems: ProctorError | None) -> None:
        for problem in problems:
            if problem is not None:
                self._port.record(ContextProblem(code=problem.code, detail=problem.what))

    # ── giving ──

    async def _ask(
        self, request: PromptRequest, assembled: Assembled, decision: ThreadDecision, given: Projection
    ) -> None:
        """Open the thread if it is not open, give it what it lacks, and ask. Refused items are given as text.

        Raises RefusedError if the agent does not have the thread, and what the agent's session raises.
        """
        try:
            await self._give_and_ask(request, decision, given)
        except _ItemsRefusedError as refused:
            given = await self._project(request, assembled, decision, form="text")
            given, hook_problem = await self._call_hooks(given)
            self._record_problems(refused.problem, hook_problem)
            await self._give_and_ask(request, decision, given)

    async def _give_and_ask(self, request: PromptRequest, decision: ThreadDecision, given: Projection) -> None:
        addition = self._addition_for(given.developer_addition, is_new=decision.how == "start")
        is_start = decision.how == "start"
        try:
            session = await self._open(decision, given, addition)
            if not is_start:
                await self._add(session, given, addition)
            quoted = tuple(EntryId(span.id) for span in given.spans if span.kind == "message")
            references = tuple(map(reference_mark, given.references))
            self._is_quoting = bool(quoted or references)
            if self._is_quoting:
                self._port.record(HistoryOffer(entries=quoted, references=references, how="text", sha256=given.sha256))
            if given.separate and isinstance(session, TakesReferences):
                session.refer({each.key: each.value for each in given.separate})
            self._meter.note_given(given)
            await session.turn(given.prompt_text, output_schema=request.output_schema)
        except RefusedError as error:
            # Some agents are given the messages of a new thread only with its first prompt.
            if is_start and given.items and self._is_thread_refused(error):
                raise _ItemsRefusedError(error) from error
            raise

    async def _open(self, decision: ThreadDecision, given: Projection, addition: str | None) -> Session:
        """Return the session with the thread, which is opened if it is new or not open."""
        session = self._port.session
        if decision.how != "start" and session is not None:
            return session
        self._meter.forget_used()
        history = given.items if decision.how == "start" else ()
        return await self._port.open_thread(ThreadOpening(decision=decision, instructions=addition, history=history))

    async def _add(self, session: Session, given: Projection, addition: str | None) -> None:
        """Add the items to an existing thread, and the instructions if it does not have them.

        Raises `_ItemsRefusedError` if the agent takes the thread but not the items.
        """
        binding = self._keeper.binding
        is_known = binding is not None and binding.addition == instructions_sha256(addition)
        changed = None if is_known else addition
        if not given.items and changed is None:
            return
        try:
            await session.give(given.items, instructions=changed)
        except RefusedError as error:
            # An agent that has ended refused the whole thread.
            if self._port.session is None or not given.items:
                raise
            raise _ItemsRefusedError(error) from error

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
    """The agent refused the items, and may take them as text."""

    def __init__(self, error: RefusedError) -> None:
        super().__init__(error.what)
        self.problem = RefusedError(
            error.code, f"the agent refused the messages as items, so they are in the prompt: {error.what}"
        )


def _ids_of(result: AssembleResult) -> Iterator[EntryId]:
    yield from map(reference_mark, result.references)
    for message in result.messages:
        yield message.id
        if isinstance(message.part, SummaryPart):
            yield from message.part.sources
