"""The engine `none`: it assembles nothing, so that only the agent's own thread remembers."""

from typing import Final, Literal

from proctor.context.engine import (
    AssembleResult,
    CommitResult,
    CompactResult,
    CompactStatus,
    EngineContext,
    EngineInfo,
    EngineSetup,
    ForgetReason,
    MaintainReason,
    TurnCommit,
)
from proctor.context.engines import check_options
from proctor.context.history import History
from proctor.context.receipts import CommitReceipts
from proctor.event.message import Message

INFO: Final = EngineInfo(id="none", name="No context", version="1")


class NullEngine:
    """Assembles nothing. Of the turns it stores only receipts, so that a second commit is recognized."""

    info = INFO

    def __init__(self, setup: EngineSetup) -> None:
        self._receipts = CommitReceipts(setup.folder)

    def bootstrap(self, ctx: EngineContext, history: History) -> None:
        """Learn nothing."""

    def assemble(self, ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
        return AssembleResult(messages=(), estimated_tokens=0)

    def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        return self._receipts.add(turn)

    def maintain(self, ctx: EngineContext, reason: MaintainReason) -> None:
        """Have nothing to maintain."""

    def compact(
        self, ctx: EngineContext, *, force: bool, target: Literal["budget", "threshold"], focus: str | None
    ) -> CompactResult:
        return CompactResult(status=CompactStatus.NOT_NEEDED, reason="this engine assembles nothing")

    def forget(self, ctx: EngineContext, reason: ForgetReason) -> None:
        self._receipts.clear()

    def close(self) -> None:
        """Have nothing open."""


def create(setup: EngineSetup) -> NullEngine:
    """Create the engine. Raises InputError for an option that it does not know."""
    check_options(setup)
    return NullEngine(setup)
