"""Opens a session for one attempt and runs a turn in it. Nothing keeps running afterwards."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import anyio
import msgspec

from proctor import decoding
from proctor.attempt.model import AttemptRequest
from proctor.attempt.supervision import Supervision
from proctor.attempt.tap import RecordingTap
from proctor.attempt.watchdog import Watch
from proctor.attempt.workspace_layout import TMP
from proctor.clock import Clock
from proctor.context.port import ThreadOpening
from proctor.errors import PeerError, RefusedError
from proctor.event.row import HISTORY_UNREAD, FactsLearned, ScriptMisfit, StepTaken
from proctor.evidence import tripwire
from proctor.fact import Authority, Fact
from proctor.plan.recover import THREAD_LOST
from proctor.runtime.base import Executable, Session, SessionRequest
from proctor.runtime.capability import Capabilities, require_capability
from proctor.runtime.executable import recheck
from proctor.spec.choices import Approvals, Persistence

TEARDOWN_S = 30.0
"""Time limit for ending a turn with everything it started, in seconds."""
HISTORY_S = 30.0
"""Time limit for reading the history of a thread, in seconds."""


@asynccontextmanager
async def open_session(supervision: Supervision, opening: ThreadOpening | None = None) -> AsyncIterator[Session]:
    """Take a place in an agent process, open a session there, and record the facts about both.

    `opening` is the thread to open for a context engine; None for the thread of the request.

    When the context ends without an error, the history of a persistent thread is read. In every case the session's
    facts are recorded, then the session is closed and the place returned. Raises RefusedError, before a process is
    started, if the request needs a capability that the runtime does not declare.
    """
    request, tap = supervision.request, supervision.tap
    unrecorded = _opening_facts(request)
    _refuse_another_thread(request, opening)
    try:
        _refuse_undeclared(request)
        async with request.lease() as lease:
            supervision.lease = lease
            tap.note(FactsLearned(facts={**unrecorded, **lease.host.facts}))
            unrecorded = {}
            rows_from = lease.rows()
            async with lease.host.open_session(_session_request(supervision, opening), tap) as session:
                supervision.session = session
                try:
                    yield session
                    await _read_history(request, session, tap)
                finally:
                    supervision.thread = session.thread
                    rows = {"processFrames": _rows_fact(rows_from, lease.rows())}
                    tap.record(FactsLearned(facts={**session.facts, **rows, **_identity_after(lease.host.facts)}))
    finally:
        if unrecorded:
            tap.record(FactsLearned(facts=unrecorded))


def _refuse_another_thread(request: AttemptRequest, opening: ThreadOpening | None) -> None:
    """Raise RefusedError if a context engine needs another thread than the one that holds the prompt of the mission."""
    if request.continuation is not None and opening is not None and opening.decision.thread != request.resume:
        what = f"the context engine cannot use the thread {request.resume}: {opening.decision.reason}"
        raise RefusedError(THREAD_LOST, what)


def _session_request(supervision: Supervision, opening: ThreadOpening | None) -> SessionRequest:
    request = supervision.request
    whole = SessionRequest(
        attempt=request.attempt_id,
        workspace=supervision.workspace.root,
        tmp=request.scratch / TMP,
        sandbox=request.flow.sandbox,
        approvals=request.flow.approvals,
        model=request.model,
        profile=request.flow.profile,
        options=request.flow.options.get(request.runtime.id, {}),
        decide=request.decide,
        decide_deadline_s=request.decide_deadline_s,
        tools=request.tools,
        tool_deadline_s=request.tool_deadline_s,
        pause_clocks=lambda: _hold_clocks(supervision.watch, request.clock),
        is_persistent=request.is_persistent,
        resume=request.resume,
        fork=request.fork,
        fork_through=request.fork_through,
        contain=request.flow.contain,
        hidden=request.hidden_from_agent,
        visible=request.visible_to_agent,
    )
    return whole if opening is None else _with_context(whole, opening, request.runtime.capabilities)


def _with_context(request: SessionRequest, opening: ThreadOpening, capabilities: Capabilities) -> SessionRequest:
    decision = opening.decision
    return replace(
        request,
        resume=decision.thread if decision.how == "resume" else None,
        fork=decision.thread if decision.how == "fork" else None,
        fork_through=decision.through,
        instructions=opening.instructions if capabilities.takes_instructions else None,
        history=opening.history,
        expects_instructions=capabilities.takes_turn_instructions,
    )


def _refuse_undeclared(request: AttemptRequest) -> None:
    capabilities, runtime_id = request.runtime.capabilities, request.runtime.id
    require_capability(capabilities, "thread_start", runtime_id=runtime_id)
    if request.resume is not None or request.fork is not None or request.is_persistent:
        require_capability(capabilities, "thread_resume", runtime_id=runtime_id)
    if request.tools:
        require_capability(capabilities, "dynamic_tools", runtime_id=runtime_id)
    if request.flow.approvals is Approvals.ASK:
        require_capability(capabilities, "approvals", runtime_id=runtime_id)


def _opening_facts(request: AttemptRequest) -> dict[str, Fact]:
    """Return the facts known before a process is started."""
    model, is_persistent = request.model, request.is_persistent or request.resume is not None
    facts = {
        **request.facts,
        "containment": request.containment.fact(),
        "model": Fact(
            value={"provider": model.provider, "requested": model.name}, authority=Authority.DECLARED, source="flow"
        ),
        "persistence": Fact(
            value=(Persistence.PERSISTENT if is_persistent else Persistence.EPHEMERAL).value,
            authority=Authority.DECLARED,
            source="flow",
        ),
    }
    if (planted := tripwire.find_tripwire(request.secrets)) is not None:
        facts["redaction"] = tripwire.fact(planted)
    return facts


def _rows_fact(rows_from: int, rows_to: int) -> Fact:
    return Fact(
        value={"from": rows_from, "to": rows_to},
        authority=Authority.OBSERVED,
        source="rows of the runtime process while this attempt had its lease",
    )


def _identity_after(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return whether the program's file is still the one that was started, if there is such a file."""
    identity = facts.get("identity")
    try:
        return {} if identity is None else {"identityAfter": recheck(decoding.convert(identity.value, Executable))}
    except msgspec.ValidationError:  # a plugin may state an identity of any shape
        return {}


async def _read_history(request: AttemptRequest, session: Session, tap: RecordingTap) -> None:
    """Read the stored history of a persistent thread into the record, so that it can be compared with the events.

    A failure or a timeout is recorded as a step, not raised.
    """
    if not request.is_persistent and request.resume is None:
        return
    with anyio.move_on_after(HISTORY_S) as deadline:
        try:
            await session.read_history()
        except PeerError as error:
            tap.record(StepTaken(step=HISTORY_UNREAD, detail={"code": error.code, "what": error.what}))
    if deadline.cancelled_caught:
        tap.record(
            StepTaken(step=HISTORY_UNREAD, detail={"code": "peer.deadline", "what": f"no reply within {HISTORY_S:g} s"})
        )


async def take_turn(supervision: Supervision, start: Callable[[], Awaitable[None]]) -> None:
    """Run a turn with `start`, which returns when the turn ends.

    However the turn ends, it is then interrupted and settled, which ends every process that it started. This is
    shielded from cancellation and limited to TEARDOWN_S. Then it is recorded if the model's script did not fit.
    """
    request, watch = supervision.request, supervision.watch
    watch.turn_began(request.clock.steady_s())
    try:
        await start()
    finally:
        watch.turn_ended()
        # Shielded, so that an expired clock cannot leave the turn's processes running.
        with anyio.CancelScope(shield=True), anyio.move_on_after(TEARDOWN_S):
            # With a context engine, the turn may have ended before there was a thread.
            if supervision.session is not None:
                await supervision.session.interrupt()
                await supervision.session.settle()
        if (misfit := request.script_misfit()) is not None:
            supervision.tap.record(ScriptMisfit(detail=misfit))


@contextmanager
def _hold_clocks(watch: Watch, clock: Clock) -> Iterator[None]:
    """Stop the clocks while the agent waits for a decision or a tool: they measure only the agent."""
    watch.hold(clock.steady_s())
    try:
        yield
    finally:
        watch.release(clock.steady_s())
