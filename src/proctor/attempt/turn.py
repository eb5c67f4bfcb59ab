"""A session of a runtime's for one attempt, and one turn of it: clocks told, nothing left running afterwards."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from proctor.attempt.finalize import Conversation
from proctor.attempt.model import AttemptAsk
from proctor.attempt.tap import RecordingTap
from proctor.attempt.watchdog import Watch
from proctor.clock import Clock
from proctor.runtime.base import Decide, Decision, Question, Session, SessionAsk

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
            decide=None if ask.decide is None else _holding(ask.decide, watch, ask.clock),
            decide_deadline_s=ask.decide_deadline_s,
            tools=ask.tools,
            is_persistent=ask.is_persistent,
            resume=ask.resume,
        )
        try:
            async with lease.host.open_session(session_ask, tap) as session:
                conversation.session_id = session.session_id
                conversation.thread = session.thread
                yield session
        finally:
            conversation.process_rows_to = lease.rows()


async def take_turn(
    session: Session, prompt: str, *, watch: Watch, clock: Clock, output_schema: Mapping[str, Any] | None = None
) -> None:
    """Ask, and wait for the end of the turn; however it ends, its children end too."""
    watch.turn_began(clock.steady_s())
    try:
        await session.turn(prompt, output_schema=output_schema)
    finally:
        watch.turn_ended()
        # Shielded so that a fired clock cannot leave the turn's children running; bounded in any case.
        with anyio.CancelScope(shield=True), anyio.move_on_after(TEARDOWN_S):
            await session.interrupt()
            await session.settle()


def _holding(decide: Decide, watch: Watch, clock: Clock) -> Decide:
    """The clocks count what the agent takes, not what the one takes whom it asks."""

    async def held(question: Question) -> Decision:
        watch.hold(clock.steady_s())
        try:
            return await decide(question)
        finally:
            watch.let_go(clock.steady_s())

    return held
