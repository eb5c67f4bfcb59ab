"""Cases of what an engine takes in, and of what it still has after it was closed or killed."""

from msgspec.structs import replace

from proctor.context.history import ListedHistory
from proctor.context.payload import json_text
from proctor.errors import EngineError
from proctor.event.message import AgentPart, CallPart, ResultPart
from proctor.testing.engines import conversations, inside
from proctor.testing.engines.conversations import Turn, messages_of
from proctor.testing.engines.engine_subject import EngineSubject, EngineUnderTest, budget_of, commit_of
from proctor.testing.unproven import UnprovenError, must


async def duplicate(subject: EngineSubject) -> None:
    [turn] = conversations.one_turn()
    async with subject.engine() as engine:
        must(await engine.commit(turn) == "committed", "a new turn was not `committed`")
        must(await engine.commit(turn) == "duplicate", "the same turn was not a `duplicate` the second time")
        later = replace(commit_of(turn), model="another", budget=budget_of(5))
        must(
            await engine.commit_turn(later) == "duplicate",
            "the same turn with another model and budget was not a `duplicate`: a commit may be repeated much later",
        )


async def other_payload(subject: EngineSubject) -> None:
    [turn] = conversations.one_turn()
    async with subject.engine() as engine:
        await engine.commit(turn)
        for other in _other_payloads(turn):
            await _must_refuse(engine, other)
        must(await engine.commit(turn) == "duplicate", "the turn is lost after other messages were refused")


async def queued_before_bootstrap(subject: EngineSubject) -> None:
    turns = conversations.few_turns()
    async with subject.engine() as engine:
        must(
            await engine.commit(turns[-1], after=turns[:-1]) == "committed",
            "a turn of an earlier sitting was not committed before the bootstrap",
        )
        await engine.bootstrap(ListedHistory(messages_of(turns)))
        await engine.assemble(turns)


async def odd_turns(subject: EngineSubject) -> None:
    turns = conversations.odd_turns()
    folder = subject.new_folder()
    async with subject.engine(folder) as engine:
        await engine.commit_all(turns)
    async with subject.engine(folder) as engine:
        for at, turn in enumerate(turns):
            must(
                await engine.commit(turn, after=turns[:at]) == "duplicate",
                f"a turn with the prompt {conversations.ODD_TEXTS[at]!a} is not known after reopening",
            )


async def durable(subject: EngineSubject) -> None:
    turns = conversations.few_turns()
    folder = subject.new_folder()
    async with subject.engine(folder) as engine:
        await engine.bootstrap(ListedHistory(messages_of(turns[:2])))
        for at in range(2, len(turns)):
            await engine.commit(turns[at], after=turns[:at])
        before = json_text(await engine.assemble(turns))
    async with subject.engine(folder) as engine:
        await engine.bootstrap(ListedHistory(messages_of(turns)))
        must(before == json_text(await engine.assemble(turns)), "another result is assembled after reopening")
        for at in range(2, len(turns)):
            again = await engine.commit(turns[at], after=turns[:at])
            must(again == "duplicate", f"turn {turns[at][0].id} is not known after reopening")
        await _must_refuse(engine, next(iter(_other_payloads(turns[-1]))))


async def killed(subject: EngineSubject) -> None:
    turns = conversations.few_turns()
    folder = subject.new_folder()
    await inside.run(subject, "commit", folder=folder)
    async with subject.engine(folder) as engine:
        for at, turn in enumerate(turns):
            again = await engine.commit(turn, after=turns[:at])
            must(again == "duplicate", f"turn {turn[0].id} was committed before `kill -9`, and is not known after it")
        await engine.bootstrap(ListedHistory(messages_of(turns)))
        after_kill = json_text(await engine.assemble(turns))
    async with subject.engine() as engine:
        await engine.commit_all(turns)
        await engine.bootstrap(ListedHistory(messages_of(turns)))
        must(after_kill == json_text(await engine.assemble(turns)), "another result is assembled after `kill -9`")


async def _must_refuse(engine: EngineUnderTest, turn: Turn) -> None:
    try:
        answer = await engine.commit(turn)
    except EngineError as error:
        if error.code != "engine.failed":
            raise
        return
    raise UnprovenError(f"the key of another turn was accepted with other messages, as {answer!r}")


def _other_payloads(turn: Turn) -> list[Turn]:
    """Return turns with the key of this one and another text, fewer messages, or one more tool call."""
    head, *_, last = turn
    call = replace(
        last, id=conversations.entry(801), part=CallPart(kind="command", name="shell", input={"command": "ls"})
    )
    result = replace(last, id=conversations.entry(802), part=ResultPart(call=call.id, name="shell", output="a"))
    return [
        (*turn[:-1], replace(last, part=AgentPart(text="Something else."))),
        (head,),
        (*turn, call, result),
    ]
