"""Cases of options, tools, maintenance, compaction, forgetting and closing."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio

from proctor.context.engine import CompactStatus
from proctor.context.history import ListedHistory
from proctor.context.payload import json_text
from proctor.errors import EngineError, InputError
from proctor.event.message import Message
from proctor.testing.engines import conversations
from proctor.testing.engines.conversations import messages_of
from proctor.testing.engines.engine_subject import EngineSubject, EngineUnderTest
from proctor.testing.unproven import NotApplicableError, UnprovenError, must

_WORD: Final = "zanzibar-4711-planted"

_MOST_PASSES: Final = 10
_COMPACT_TOKENS: Final = 4_000

_CANCEL_S: Final = 10.0

_UNKNOWN_OPTION: Final = "no_engine_has_this_option"


async def options(subject: EngineSubject) -> None:
    subject.create_in(subject.new_folder(), options={**subject.options, "citations": "on"})
    try:
        subject.create_in(subject.new_folder(), options={**subject.options, _UNKNOWN_OPTION: 1})
    except InputError:
        return
    raise UnprovenError(f"it accepted the option {_UNKNOWN_OPTION!r}, so that a misspelled one has no effect unnoticed")


async def tools(subject: EngineSubject) -> None:
    folder = subject.new_folder()
    async with subject.engine(folder) as engine:
        first = await _catalog(engine)
        if not first:
            raise NotApplicableError("it offers no tools")
        await engine.commit_all(conversations.few_turns())
        await engine.maintain("turn")
    async with subject.engine(folder) as engine:
        must(first == await _catalog(engine), "names, descriptions or schemas of the tools changed in one session")


async def maintenance(subject: EngineSubject) -> None:
    turns = conversations.large_turns(60)
    async with subject.engine() as engine:
        await engine.maintain("turn")
        await engine.bootstrap(ListedHistory(messages_of(turns)))
        for reason in ("bootstrap", "turn", "turn", "compaction"):
            await engine.maintain(reason)
        await engine.assemble(turns)


async def background(subject: EngineSubject) -> None:
    turns = conversations.large_turns(60)
    async with subject.engine() as engine:
        if engine.info.maintenance != "background":
            raise NotApplicableError("its maintenance runs in the foreground, beside no other call")
        await engine.bootstrap(ListedHistory(messages_of(turns[:-3])))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.maintain, "turn")
            for at in range(len(turns) - 3, len(turns)):
                await engine.assemble(turns[:at])
                await engine.commit(turns[at], after=turns[:at])
        must(await engine.commit(turns[-1], after=turns[:-1]) == "duplicate", "a turn that was committed is lost")


async def compaction(subject: EngineSubject) -> None:
    turns = conversations.large_turns(120)
    async with subject.engine() as engine:
        if not engine.info.owns_compaction:
            raise NotApplicableError("it does not own the compaction of the session")
        await engine.bootstrap(ListedHistory(messages_of(turns)))
        for number in range(1, _MOST_PASSES + 1):
            result = await engine.compact(tokens=_COMPACT_TOKENS)
            if result.status in (CompactStatus.NOT_NEEDED, CompactStatus.NO_PROGRESS):
                break
            must(
                result.status is CompactStatus.COMPACTED,
                f"pass {number} ended as {result.status} ({result.reason or 'without a reason'})",
            )
            is_known = result.tokens_before is not None and result.tokens_after is not None
            if is_known and not (result.tokens_after or 0) < (result.tokens_before or 0):
                what = f"pass {number} says `compacted`, from {result.tokens_before} to {result.tokens_after} tokens"
                raise UnprovenError(what)
        else:
            raise UnprovenError(f"{_MOST_PASSES} passes in a row say `compacted`, without an end")
        await engine.assemble(turns, tokens=_COMPACT_TOKENS)


async def compact_nothing(subject: EngineSubject) -> None:
    async with subject.engine() as engine:
        if not engine.info.owns_compaction:
            raise NotApplicableError("it does not own the compaction of the session")
        for force in (False, True):
            result = await engine.compact(force=force)
            must(
                result.status in (CompactStatus.NOT_NEEDED, CompactStatus.NO_PROGRESS),
                f"compacting a session in which nothing was said ended as {result.status}",
            )


async def forget(subject: EngineSubject) -> None:
    turns = conversations.planted_turns(_WORD)
    for reason in ("reset", "delete"):
        folder = subject.new_folder()
        async with subject.engine(folder) as engine:
            await engine.bootstrap(ListedHistory(messages_of(turns[:1])))
            await engine.commit_all(turns)
            await engine.maintain("turn")
            await engine.assemble(turns)
            await engine.forget(reason)
            _must_not_have_word(folder, f"after forget({reason!r})")
            must(_WORD not in json_text(await engine.assemble([])), "it was assembled after it was forgotten")
        _must_not_have_word(folder, f"after forget({reason!r}) and close()")


async def close_and_reopen(subject: EngineSubject) -> None:
    turns = conversations.few_turns()
    folder = subject.new_folder()
    for at, turn in enumerate(turns):
        async with subject.engine(folder) as engine:
            await engine.bootstrap(ListedHistory(messages_of(turns[:at])))
            must(await engine.commit(turn, after=turns[:at]) == "committed", f"sitting {at + 1} could not commit")
    # A sitting in which nothing is asked, and one that is closed while it is maintained.
    async with subject.engine(folder):
        pass
    async with subject.engine(folder) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(_maintain_until_closed, engine)
        await anyio.lowlevel.checkpoint()
        await engine.close()


async def cancel(subject: EngineSubject) -> None:
    turns = conversations.large_turns()
    prompt = conversations.prompt_after(turns)
    async with subject.engine() as engine:
        history = _CancelledHistory(messages_of(turns))
        async with anyio.create_task_group() as tasks:
            history.on_read = tasks.cancel_scope.cancel
            await engine.bootstrap(history)
        history.is_cancelled.set()
        if not history.was_read:
            raise NotApplicableError("its `bootstrap` does not read the history, so that it cannot be interrupted")
        # Fails if the call still runs, or has left something behind.
        await engine.assemble(turns, prompt=prompt)
        await engine.bootstrap(ListedHistory(messages_of(turns)))
        after_cancel = json_text(await engine.assemble(turns, prompt=prompt))
    async with subject.engine() as engine:
        await engine.bootstrap(ListedHistory(messages_of(turns)))
        must(
            after_cancel == json_text(await engine.assemble(turns, prompt=prompt)),
            "after a cancelled bootstrap and a complete one, another result is assembled than after a complete one",
        )


class _CancelledHistory(ListedHistory):
    """A history that cancels the call that reads it."""

    def __init__(self, messages: list[Message]) -> None:
        super().__init__(messages)
        self.was_read = False
        self.is_cancelled = threading.Event()
        self._token = anyio.lowlevel.current_token()
        self._thread = threading.get_ident()
        self.on_read: Any = None

    def _note(self) -> None:
        if self.was_read:
            return
        self.was_read = True
        if threading.get_ident() == self._thread:
            self.on_read()
            return
        anyio.from_thread.run_sync(self.on_read, token=self._token)
        # The engine goes on reading when `ctx.cancel.is_set`.
        self.is_cancelled.wait(_CANCEL_S)

    def __len__(self) -> int:
        self._note()
        return super().__len__()

    def __iter__(self) -> Iterator[Message]:
        self._note()
        return super().__iter__()

    def __reversed__(self) -> Iterator[Message]:
        self._note()
        return super().__reversed__()

    def __getitem__(self, at: Any) -> Any:
        self._note()
        return super().__getitem__(at)


async def _maintain_until_closed(engine: EngineUnderTest) -> None:
    with suppress(EngineError, NotApplicableError):
        await engine.maintain("turn")


async def _catalog(engine: EngineUnderTest) -> list[Mapping[str, Any]]:
    return [
        {"name": tool.name, "description": tool.description, "schema": json_text(tool.schema)}
        for tool in await engine.tools()
    ]


def _must_not_have_word(folder: Path, when: str) -> None:
    word = _WORD.encode()
    for path in sorted(folder.rglob("*")):
        must(_WORD not in path.name, f"{when}, the word is in the name of {path.name}")
        if path.is_file():
            must(word not in path.read_bytes(), f"{when}, the word is in {path.relative_to(folder)}")
