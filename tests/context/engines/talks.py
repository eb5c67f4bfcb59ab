"""A session for tests of engines: turns that an engine takes in, and what it assembles, which is always checked."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
from hypothesis import strategies as st
from msgspec.structs import replace

from proctor.context.budget import ASSUMED_RATIO, Budget, TokenRatio, WindowSource
from proctor.context.check_assembled import check_assembled
from proctor.context.engine import (
    AssembleResult,
    CommitResult,
    CompactResult,
    Complete,
    EngineContext,
    EngineSetup,
    MaintainReason,
    TurnCommit,
)
from proctor.context.engines.lossless import create
from proctor.context.guard import CancelSignal
from proctor.context.history import ListedHistory
from proctor.context.project import ProjectionMode
from proctor.event.message import Message, SummaryPart
from proctor.ids import EntryId, SessionKey
from tests.context.histories import agent, call, json_values, result, texts, user

PROMPT = user(10**9, "What next?")


def budget(tokens: int) -> Budget:
    return Budget(window=tokens + 20_000, reserve=20_000, history=tokens, source=WindowSource.CONFIG)


def context(
    tokens: int = 100_000, *, ratio: TokenRatio = ASSUMED_RATIO, complete: Complete | None = None
) -> EngineContext:
    return EngineContext(
        session=SessionKey("talk"),
        model=None,
        tools=frozenset(),
        budget=budget(tokens),
        ratio=ratio,
        cancel=CancelSignal(),
        complete=complete,
    )


def turn(number: int, prompt: str, answer: str = "Done.", *, output: str | None = None) -> list[Message]:
    """A prompt, a tool call with its result if there is an output, and an answer. Turns have ten numbers each."""
    at = number * 10
    tools = [] if output is None else [call(at + 1, {"command": f"run {number}"}), result(at + 2, at + 1, output)]
    return [user(at, prompt), *tools, agent(at + 3, answer)]


class Talk:
    """A session: its mirror, in memory, and an engine with its folder."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.entries: list[Message] = []
        self.folder = folder
        self.options = options
        self.engine = create(EngineSetup(session=SessionKey("talk"), folder=folder, options=options))

    @property
    def history(self) -> ListedHistory:
        return ListedHistory(self.entries)

    def mirror(self, messages: Sequence[Message]) -> None:
        """Say something that the engine does not learn of."""
        self.entries += messages

    def commit(self, messages: Sequence[Message]) -> CommitResult:
        commit = TurnCommit(key=messages[0].id, messages=tuple(messages), model=None, budget=budget(0), usage=None)
        return self.engine.commit_turn(context(), commit)

    def say(self, messages: Sequence[Message]) -> None:
        self.mirror(messages)
        assert self.commit(messages) == "committed"

    def say_many(self, count: int, *, first: int = 0, size: int = 300) -> None:
        for number in range(first, first + count):
            self.say(self.many(number, size=size))

    @staticmethod
    def many(number: int, *, size: int = 300) -> list[Message]:
        """One of the turns that `say_many` says."""
        return turn(number, f"task {number} " + "word " * (size // 5), f"result {number}", output="line\n" * 20)

    def reopen(self) -> None:
        """Open the engine again, as the next sitting does."""
        self.engine.close()
        self.engine = create(EngineSetup(session=SessionKey("talk"), folder=self.folder, options=self.options))
        self.engine.bootstrap(context(), self.history)

    def maintain(self, ctx: EngineContext, reason: MaintainReason = "turn") -> None:
        anyio.run(self.engine.maintain, ctx, reason)

    def compact(
        self,
        ctx: EngineContext,
        *,
        force: bool = False,
        target: Literal["budget", "threshold"] = "threshold",
        focus: str | None = None,
    ) -> CompactResult:
        async def compact() -> CompactResult:
            return await self.engine.compact(ctx, force=force, target=target, focus=focus)

        return anyio.run(compact)

    def assemble(self, ctx: EngineContext) -> AssembleResult:
        """Assemble, and check the result and that every entry is in it, in a summary, or counted."""
        history = self.history
        found = self.engine.assemble(ctx, history, PROMPT)
        assert found.projection.mode is ProjectionMode.THREAD_BOOTSTRAP
        findings = check_assembled(
            found.messages,
            needs_epoch=True,
            epoch=found.projection.epoch,
            history=history,
            prompt_id=PROMPT.id,
            budget=ctx.budget,
            ratio=ctx.ratio,
        )
        assert findings == ()
        shown = shown_entries(found)
        order = {message.id: at for at, message in enumerate(self.entries)}
        assert shown == sorted(set(shown), key=lambda id_: order[id_])
        assert len(shown) + self.engine.select(ctx, history).dropped == len(self.entries)
        return found

    def call(self, tool: str, **arguments: Any) -> str:
        [found] = [each for each in self.engine.tools() if each.name == tool]
        answer: str = anyio.run(found.call, arguments)
        return answer


def summaries(found: AssembleResult) -> list[Message]:
    return [message for message in found.messages if isinstance(message.part, SummaryPart)]


def sources_of(summary: Message) -> tuple[EntryId, ...]:
    assert isinstance(summary.part, SummaryPart)
    return summary.part.sources


def shown_entries(found: AssembleResult) -> list[EntryId]:
    """The entries that the model knows of, in summaries or as they are, in order."""
    shown: list[EntryId] = []
    for message in found.messages:
        shown += message.part.sources if isinstance(message.part, SummaryPart) else (message.id,)
    return shown


def various(number: int) -> list[Message]:
    """A turn with several tools, whose inputs have many keys."""
    chosen = random.Random(number)
    at = number * 100
    messages = [user(at, f"task {number} " + "word " * chosen.randrange(60))]
    for step in range(chosen.randrange(12)):
        name = chosen.choice(["shell", "read", "write", "web", "context_search"])
        keys = chosen.sample(["path", "command", "lines", "mode", "limit", "query"], 4)
        messages.append(call(at + 1 + 2 * step, dict.fromkeys(keys, name * 9), name=name))
        output = "line\n" * chosen.randrange(40)
        messages.append(result(at + 2 + 2 * step, at + 1 + 2 * step, output, name=name))
    return [*messages, agent(at + 99, f"result {number}")]


@st.composite
def turns(draw: st.DrawFn, max_size: int = 8) -> list[list[Message]]:
    """Turns with hostile texts: prompts, steers, calls of which some have no result, and answers."""
    found: list[list[Message]] = []
    number = 0
    for _ in range(draw(st.integers(1, max_size))):
        messages = [user(number, draw(texts) * draw(st.sampled_from([1, 1, 20])))]
        open_calls: list[int] = []
        for _ in range(draw(st.integers(0, 5))):
            number += 1
            match draw(st.sampled_from(["user", "agent", "call", *(["result"] * 2 if open_calls else [])])):
                case "user":
                    messages.append(user(number, draw(texts)))
                case "agent":
                    messages.append(agent(number, draw(texts)))
                case "call":
                    open_calls.append(number)
                    messages.append(call(number, draw(json_values), name=draw(texts)))
                case _:
                    of = open_calls.pop(draw(st.integers(0, len(open_calls) - 1)))
                    messages.append(result(number, of, draw(st.none() | texts)))
        number += 1
        if draw(st.booleans()):
            messages[-1] = replace_taint(messages[-1])
        found.append(messages)
    return found


def replace_taint(message: Message) -> Message:
    return replace(message, is_tainted=True)
