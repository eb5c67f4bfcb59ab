"""A session of a runtime's for one attempt, and one turn of it: clocks told, nothing left running afterwards."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio

from proctor.attempt.finalize import Conversation
from proctor.attempt.model import AttemptAsk
from proctor.attempt.tap import RecordingTap
from proctor.attempt.watchdog import Watch
from proctor.clock import Clock
from proctor.runtime.base import Session, SessionAsk

TEARDOWN_S = 30.0


@asynccontextmanager
async def open_session(
    ask: AttemptAsk, tap: RecordingTap, workspace: Path, conversation: Conversation, *, watch: Watch
) -> AsyncIterator[Session]:
    """A place in a process and a thread there; what is learned on the way goes into the conversation."""
    async with ask.lease() as lease:
        conversation.lease = lease
        conversation.process = lease.process
        conversation.facts = dict(lease.host.facts)
        conversation.process_rows_from = lease.rows()
        session_ask = SessionAsk(
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
        )
        try:
            async with lease.host.open_session(session_ask, tap) as session:
                conversation.session_id = session.session_id
                conversation.thread = session.thread
                yield session
        finally:
            conversation.process_rows_to = lease.rows()


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
