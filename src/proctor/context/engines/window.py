"""The engine `window`: it assembles the newest whole turns that fit into the budget."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from proctor.context.budget import estimate_messages, message_bytes, most_bytes
from proctor.context.check_assembled import MOST_BYTES
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
from proctor.event.message import Message, ResultPart, UserPart
from proctor.ids import EntryId

INFO: Final = EngineInfo(id="window", name="Newest turns", version="1")


class WindowEngine:
    """Assembles the newest turns. It reads them from the history, and stores only receipts of what was committed."""

    info = INFO

    def __init__(self, setup: EngineSetup) -> None:
        self._receipts = CommitReceipts(setup.folder)

    def bootstrap(self, ctx: EngineContext, history: History) -> None:
        """Learn nothing: each turn reads the history again."""

    def assemble(self, ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
        room_bytes = min(MOST_BYTES, most_bytes(ctx.budget.history, ratio=ctx.ratio))
        messages = newest_turns(history, prompt_id=prompt.id, room_bytes=room_bytes)
        estimate = estimate_messages(messages, ratio=ctx.ratio)
        return AssembleResult(messages=tuple(messages), estimated_tokens=estimate.tokens)

    def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        return self._receipts.add(turn)

    def maintain(self, ctx: EngineContext, reason: MaintainReason) -> None:
        """Have nothing to maintain."""

    def compact(
        self, ctx: EngineContext, *, force: bool, target: Literal["budget", "threshold"], focus: str | None
    ) -> CompactResult:
        return CompactResult(status=CompactStatus.NOT_NEEDED, reason="each turn assembles only what fits")

    def forget(self, ctx: EngineContext, reason: ForgetReason) -> None:
        self._receipts.clear()

    def close(self) -> None:
        """Have nothing open."""


def create(setup: EngineSetup) -> WindowEngine:
    """Create the engine. Raises InputError for an option that it does not know."""
    check_options(setup)
    return WindowEngine(setup)


def newest_turns(history: History, *, prompt_id: EntryId, room_bytes: int) -> Sequence[Message]:
    """Return the newest whole turns that fit, oldest first; if not even the newest fits, the part of it that does.

    Reads no further back than the first turn that does not fit.
    """
    kept: list[Message] = []  # newest first
    turn = _Turn(history)
    for message in reversed(history):
        if message.id == prompt_id:
            continue
        turn.add(message)
        if kept and turn.size_bytes > room_bytes:
            break
        if turn.is_whole:
            if turn.size_bytes > room_bytes:
                break
            kept += turn.messages
            room_bytes -= turn.size_bytes
            turn = _Turn(history)
    else:
        # A history that was imported need not begin with a prompt.
        if turn.messages and turn.size_bytes <= room_bytes:
            kept += turn.messages
            turn = _Turn(history)
    if not kept and turn.messages:
        return _part_that_fits(turn.messages[::-1], room_bytes=room_bytes)
    return kept[::-1]


class _Turn:
    """The messages of one turn, collected from its end.

    It is whole at a user's message, which is its prompt, or a steer if that does not separate a call from its result.
    """

    def __init__(self, history: History) -> None:
        self.messages: list[Message] = []
        self.size_bytes = 0
        self._history = history
        self._awaited: set[EntryId] = set()

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self.size_bytes += message_bytes(message)
        self._awaited.discard(message.id)
        # The call may be missing in the history too, if that begins in the middle of a turn.
        if isinstance(message.part, ResultPart) and self._history.position(message.part.call) is not None:
            self._awaited.add(message.part.call)

    @property
    def is_whole(self) -> bool:
        return not self._awaited and isinstance(self.messages[-1].part, UserPart)


def _part_that_fits(turn: Sequence[Message], *, room_bytes: int) -> Sequence[Message]:
    """Return the part of one turn that fits: its prompt, then its newest messages, each call with its result."""
    chosen: set[EntryId] = set()
    for group in _groups(turn):
        size_bytes = sum(map(message_bytes, group))
        if size_bytes > room_bytes:
            break
        room_bytes -= size_bytes
        chosen.update(each.id for each in group)
    return [message for message in turn if message.id in chosen]


def _groups(turn: Sequence[Message]) -> Iterable[Sequence[Message]]:
    """Yield the messages that are kept together, the most important first: the prompt, then from the newest call on."""
    by_key: dict[EntryId, list[Message]] = {}
    for message in turn:
        key = message.part.call if isinstance(message.part, ResultPart) else message.id
        by_key.setdefault(key, []).append(message)
    prompt = next((message.id for message in turn if isinstance(message.part, UserPart)), None)
    if prompt is not None:
        yield by_key.pop(prompt)
    yield from reversed(by_key.values())
