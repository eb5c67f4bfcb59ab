"""A session of a runtime's for one attempt, and one turn of it: clocks told, nothing left running afterwards."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import msgspec

from proctor.attempt.finalize import Conversation
from proctor.attempt.model import AttemptAsk
from proctor.attempt.tap import RecordingTap
from proctor.attempt.watchdog import Watch
from proctor.clock import Clock
from proctor.errors import PeerError
from proctor.event.row import HISTORY_UNREAD, FactsLearned, StepTaken
from proctor.evidence import canary
from proctor.fact import Authority, Fact
from proctor.runtime.base import Executable, Session, SessionAsk
from proctor.runtime.capability import demand
from proctor.runtime.executable import recheck
from proctor.spec.model import Approvals, Persistence

TEARDOWN_S = 30.0
HISTORY_S = 30.0


@asynccontextmanager
async def open_session(
    ask: AttemptAsk, tap: RecordingTap, workspace: Path, conversation: Conversation, *, watch: Watch
) -> AsyncIterator[Session]:
    """A place in a process and a thread there; what is learned on the way is put on record.

    RefusedError, before there is a process, for what the runtime does not claim.
    """
    known = _opening_facts(ask)
    try:
        _refuse_unclaimed(ask)
        async with ask.lease() as lease:
            conversation.lease = lease
            conversation.process = lease.process
            tap.note(FactsLearned(facts={**known, **lease.host.facts}))
            known = {}
            rows_from = lease.rows()
            async with lease.host.open_session(_session_ask(ask, workspace, watch=watch), tap) as session:
                conversation.is_open = True
                try:
                    yield session
                    await _read_history(ask, session, tap)
                finally:
                    conversation.session_id = session.session_id
                    conversation.thread = session.thread
                    rows = {"processFrames": _rows_fact(rows_from, lease.rows())}
                    tap.say(FactsLearned(facts={**session.facts, **rows, **_identity_after(lease.host.facts)}))
    finally:
        if known:
            tap.say(FactsLearned(facts=known))


def _session_ask(ask: AttemptAsk, workspace: Path, *, watch: Watch) -> SessionAsk:
    return SessionAsk(
        attempt=ask.attempt_id,
        workspace=workspace,
        tmp=ask.scratch / "tmp",
        sandbox=ask.flow.sandbox,
        approvals=ask.flow.approvals,
        model=ask.model,
        profile=ask.flow.profile,
        options=ask.flow.options.get(ask.runtime.id, {}),
        decide=ask.decide,
        decide_deadline_s=ask.decide_deadline_s,
        tools=ask.tools,
        tool_deadline_s=ask.tool_deadline_s,
        thinking=lambda: _held(watch, ask.clock),
        is_persistent=ask.is_persistent,
        resume=ask.resume,
        fork=ask.fork,
        contain=ask.flow.contain,
        hidden=ask.hidden,
    )


def _refuse_unclaimed(ask: AttemptAsk) -> None:
    claims, strategy = ask.runtime.claims, ask.runtime.id
    demand(claims, "thread_start", strategy=strategy)
    if ask.resume is not None or ask.fork is not None or ask.is_persistent:
        demand(claims, "thread_resume", strategy=strategy)
    if ask.tools:
        demand(claims, "dynamic_tools", strategy=strategy)
    if ask.flow.approvals is Approvals.ASK:
        demand(claims, "approvals", strategy=strategy)


def _opening_facts(ask: AttemptAsk) -> dict[str, Fact]:
    """What is known before there is a process."""
    model, is_persistent = ask.model, ask.is_persistent or ask.resume is not None
    facts = {
        **ask.facts,
        "containment": ask.containment.fact(),
        "model": Fact(
            value={"provider": model.provider, "requested": model.name}, authority=Authority.DECLARED, source="flow"
        ),
        "persistence": Fact(
            value=(Persistence.PERSISTENT if is_persistent else Persistence.EPHEMERAL).value,
            authority=Authority.DECLARED,
            source="flow",
        ),
    }
    if (planted := canary.among(ask.secrets)) is not None:
        facts["redaction"] = canary.fact(planted)
    return facts


def _rows_fact(rows_from: int, rows_to: int) -> Fact:
    return Fact(
        value={"from": rows_from, "to": rows_to},
        authority=Authority.OBSERVED,
        source="rows of the runtime process while this attempt had its lease",
    )


def _identity_after(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Whether the program's file is still the one that was started, where there is one."""
    identity = facts.get("identity")
    try:
        return {} if identity is None else {"identityAfter": recheck(msgspec.convert(identity.value, Executable))}
    except msgspec.ValidationError:  # a plugin may state what it likes
        return {}


async def _read_history(ask: AttemptAsk, session: Session, tap: RecordingTap) -> None:
    """Of a thread that is kept: whether all of it is, is then a matter of comparing."""
    if not ask.is_persistent and ask.resume is None:
        return
    with anyio.move_on_after(HISTORY_S) as patience:
        try:
            await session.read_history()
        except PeerError as error:
            tap.say(StepTaken(step=HISTORY_UNREAD, detail={"code": error.code, "what": error.what}))
    if patience.cancelled_caught:
        tap.say(StepTaken(step=HISTORY_UNREAD, detail={"code": "peer.deadline", "what": f"not in {HISTORY_S:g} s"}))


async def take_turn(session: Session, ask: Callable[[], Awaitable[None]], *, watch: Watch, clock: Clock) -> None:
    """Ask for a turn, which returns at its end; however it ends, its children end too."""
    watch.turn_began(clock.steady_s())
    try:
        await ask()
    finally:
        watch.turn_ended()
        # Shielded so that a fired clock cannot leave the turn's children running; bounded in any case.
        with anyio.CancelScope(shield=True), anyio.move_on_after(TEARDOWN_S):
            await session.interrupt()
            await session.settle()


@contextmanager
def _held(watch: Watch, clock: Clock) -> Iterator[None]:
    """The clocks count what the agent takes, not what those take whom it asks."""
    watch.hold(clock.steady_s())
    try:
        yield
    finally:
        watch.let_go(clock.steady_s())
