"""Cases of what an engine assembles."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from proctor.context.engine import AssembleResult
from proctor.context.history import ListedHistory
from proctor.context.payload import json_text
from proctor.context.project import ProjectionMode
from proctor.event.message import CallPart, Message, SummaryPart
from proctor.ids import EntryId
from proctor.runtime.capability import Capabilities
from proctor.testing.engines import conversations, inside
from proctor.testing.engines.conversations import Turn, messages_of
from proctor.testing.engines.engine_subject import EngineSubject, EngineUnderTest
from proctor.testing.unproven import NotApplicableError, UnprovenError, must

_SMALL_TOKENS: Final = 400

_BUDGETS: Final = (0, 60, 700, 6_000, 20_000)

_MOST_COMMITS: Final = 20
"""A longer history is only bootstrapped, because each commit waits for the disk."""


async def contract(subject: EngineSubject) -> None:
    async with subject.engine() as engine, subject.engine() as other:
        must(engine.info == other.info, "two objects of the engine differ in `info`")
        unknown = [name for name in engine.info.requires if name not in Capabilities.__struct_fields__]
        must(not unknown, f"`info.requires` names unknown capabilities: {', '.join(unknown)}")


async def deadlines(subject: EngineSubject) -> None:
    turns = conversations.few_turns()
    async with subject.engine() as engine:
        await engine.bootstrap(ListedHistory(messages_of(turns[:-1])))
        await engine.maintain("bootstrap")
        await engine.assemble(turns[:-1])
        await engine.commit(turns[-1], after=turns[:-1])
        await engine.maintain("turn")
        await engine.compact()
        await engine.tools()
        await engine.forget("reset")


async def empty_history(subject: EngineSubject) -> None:
    async with subject.engine() as engine:
        result = await engine.assemble([])
        must(
            not result.messages,
            f"{len(result.messages)} messages were assembled for a session in which nothing was said",
        )


async def one_turn(subject: EngineSubject) -> None:
    await _check_history(subject, conversations.one_turn())


async def several_turns(subject: EngineSubject) -> None:
    await _check_history(subject, conversations.few_turns())


async def tool_pairs(subject: EngineSubject) -> None:
    turns = conversations.tool_turns()
    await _check_history(subject, turns)
    async with subject.engine() as engine:
        await engine.bootstrap(ListedHistory(messages_of(turns)))
        # At some of these budgets, only one half of a pair would fit.
        for tokens in range(0, 600, 15):
            await engine.assemble(turns, tokens=tokens)


async def tainted(subject: EngineSubject) -> None:
    turns = conversations.tainted_turns()
    for tokens in (_SMALL_TOKENS, 120):
        async with subject.engine() as engine:
            await engine.bootstrap(ListedHistory(messages_of(turns)))
            await engine.maintain("bootstrap")
            _must_keep_taint(await engine.assemble(turns, tokens=tokens), turns)
    await _check_history(subject, turns)


async def odd_texts(subject: EngineSubject) -> None:
    await _check_history(subject, conversations.odd_turns())


async def large_history(subject: EngineSubject) -> None:
    turns = conversations.large_turns()
    async with subject.engine() as engine:
        await engine.bootstrap(ListedHistory(messages_of(turns[:-1])))
        await engine.maintain("bootstrap")
        await engine.commit(turns[-1], after=turns[:-1])
        await engine.maintain("turn")
        await engine.assemble(turns)


async def within_budget(subject: EngineSubject) -> None:
    turns = conversations.large_turns(120)
    async with subject.engine() as engine:
        await engine.bootstrap(ListedHistory(messages_of(turns)))
        for tokens in _BUDGETS:
            result = await engine.assemble(turns, tokens=tokens)
            if result.may_overflow:
                raise NotApplicableError("it says `may_overflow`, so that Proctor drops what does not fit")


async def after_reset(subject: EngineSubject) -> None:
    async with subject.engine() as engine:
        await engine.commit_all(conversations.few_turns())
        await engine.forget("reset")
        result = await engine.assemble([])
        must(not result.messages, "messages from before the reset were assembled")
        again = [conversations.plain_turn(901, prompt="Who are you?", answer="An agent.")]
        must(await engine.commit(again[0]) == "committed", "the first turn after the reset was not committed")
        await engine.assemble(again)


async def same_bytes(subject: EngineSubject) -> None:
    turns = [
        *conversations.few_turns(),
        conversations.plain_turn(41, prompt="one\r\ntwo\rthree\n", answer="\r\n"),
        *_large(),
    ]
    first = await _assembled_bytes(subject, turns)
    must(first == await _assembled_bytes(subject, turns), "two objects assembled different results from the same turns")
    other_order = [tuple(map(_with_shuffled_input, turn)) for turn in turns]
    must(
        first == await _assembled_bytes(subject, other_order),
        "the result depends on the order of the keys in the input of a tool call",
    )


async def same_bytes_in_another_process(subject: EngineSubject) -> None:
    other_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    there = await inside.run(subject, "assemble", hash_seed=other_seed)
    here = await inside.assembled_digest(subject, subject.new_folder())
    must(here == there, "a process with another value of PYTHONHASHSEED assembled another result")


async def stable_epoch(subject: EngineSubject) -> None:
    turns = conversations.large_turns(60)
    async with subject.engine() as engine:
        await engine.bootstrap(ListedHistory(messages_of(turns[:-1])))
        before = (await engine.assemble(turns[:-1])).projection
        if before.mode is not ProjectionMode.THREAD_BOOTSTRAP:
            raise NotApplicableError("its mode is `per_turn`, which has no epoch")
        again = (await engine.assemble(turns[:-1])).projection
        must(again == before, "the projection of the same history changed")
        await engine.commit(turns[-1], after=turns[:-1])
        after = (await engine.assemble(turns)).projection
        must(
            (after.epoch, after.fingerprint) == (before.epoch, before.fingerprint),
            f"one more turn changed the epoch from {before.epoch} to {after.epoch}",
        )


async def no_doubling(subject: EngineSubject) -> None:
    turns = conversations.few_turns()
    history = ListedHistory(messages_of(turns))
    async with subject.engine() as engine:
        await engine.bootstrap(history)
        once = _times(await engine.assemble(turns))
    async with subject.engine() as engine:
        await engine.bootstrap(history)
        await engine.commit(turns[-1], after=turns[:-1])
        await engine.maintain("turn")
        await engine.bootstrap(history)
        _must_not_repeat(_times(await engine.assemble(turns)), than=once)
    async with subject.engine() as engine:
        await engine.commit_all(turns)
        await engine.bootstrap(history)
        _must_not_repeat(_times(await engine.assemble(turns)), than=once)


async def separate_sessions(subject: EngineSubject) -> None:
    turns = conversations.planted_turns("wombat-7")
    async with subject.engine(session="one") as one, subject.engine(session="other") as other:
        await one.commit_all(turns)
        said = conversations.plain_turn(1, prompt="Hello.", answer="Hello.")
        must(
            await other.commit(said) == "committed",
            "a key that was committed in one session is a duplicate in another one",
        )
        result = await other.assemble([said])
        must("wombat-7" not in json_text(result), "a session was given what was said in another one")


# ── checks ──


async def _check_history(subject: EngineSubject, turns: Sequence[Turn]) -> None:
    """Assemble after a bootstrap with these turns, and after each of them was committed."""
    async with subject.engine() as engine:
        await engine.bootstrap(ListedHistory(messages_of(turns)))
        await engine.maintain("bootstrap")
        _must_keep_taint(await engine.assemble(turns), turns)
    if len(turns) > _MOST_COMMITS:
        return
    async with subject.engine() as engine:
        for at, turn in enumerate(turns):
            await engine.assemble(turns[:at], prompt=turn[0])
            must(await engine.commit(turn, after=turns[:at]) == "committed", f"turn {turn[0].id} was not committed")
            await engine.maintain("turn")
        _must_keep_taint(await engine.assemble(turns), turns)
        _must_keep_taint(await engine.assemble(turns, tokens=_SMALL_TOKENS), turns)


def _must_keep_taint(result: AssembleResult, turns: Sequence[Turn]) -> None:
    tainted_ids = {message.id for message in messages_of(turns) if message.is_tainted}
    for message in result.messages:
        if isinstance(message.part, SummaryPart) and not message.is_tainted and tainted_ids & {*message.part.sources}:
            raise UnprovenError(f"the summary {message.id} of tainted entries is not tainted")


async def _assembled_bytes(subject: EngineSubject, turns: Sequence[Turn]) -> str:
    """Return what is assembled at two budgets, each twice. It must be the same both times."""
    async with subject.engine() as engine:
        await engine.bootstrap(ListedHistory(messages_of(turns)))
        texts = [await _text(engine, turns, tokens=tokens) for tokens in (20_000, 1_000)]
        again = [await _text(engine, turns, tokens=tokens) for tokens in (20_000, 1_000)]
        must(texts == again, "one object assembled different results from the same turns")
        return "\n".join(texts)


async def _text(engine: EngineUnderTest, turns: Sequence[Turn], *, tokens: int) -> str:
    return json_text(await engine.assemble(turns, tokens=tokens))


def _large() -> list[Turn]:
    return [turn for turn in conversations.large_turns(30) if int(turn[0].id.rpartition("#")[2]) > 50]


def _with_shuffled_input(message: Message) -> Message:
    if not isinstance(message.part, CallPart):
        return message
    return replace(message, part=replace(message.part, input=conversations.shuffled(message.part.input)))


def _times(result: AssembleResult) -> Mapping[EntryId, int]:
    """Return how often each entry is in a result, in itself or as a source of a summary."""
    times: Counter[EntryId] = Counter()
    for message in result.messages:
        times.update(message.part.sources if isinstance(message.part, SummaryPart) else (message.id,))
    return times


def _must_not_repeat(times: Mapping[EntryId, int], *, than: Mapping[EntryId, int]) -> None:
    more = [id_ for id_, count in times.items() if count > max(1, than.get(id_, 0))]
    must(not more, f"entries are assembled more often after they arrived twice: {', '.join(more[:3])}")
