"""Every case of the engine suite can fail: an engine that does that one thing wrong does not pass it."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import anyio
import anyio.lowlevel
import msgspec
import pytest
from msgspec.structs import replace

from proctor.context.engine import (
    AssembleResult,
    CommitResult,
    CompactResult,
    CompactStatus,
    ContextEngine,
    EngineContext,
    EngineSetup,
    ForgetReason,
    MaintainReason,
    TurnCommit,
)
from proctor.context.guard import Deadlines
from proctor.context.history import History
from proctor.context.project import ContextProjection, ProjectionMode
from proctor.errors import InputError
from proctor.event.message import AgentPart, CallPart, Message, ResultPart, SummaryPart
from proctor.ids import EntryId, SessionKey
from proctor.runtime.base import Tool
from proctor.testing.engines import EngineReport, Result, check_engine, engine_cases
from proctor.testing.engines.engine_subject import SUITE_DEADLINES
from proctor_notes import INFO, NotesEngine, create

IN_ANOTHER_PROCESS = {"same-bytes-elsewhere", "killed"}

DEADLINES = Deadlines(call_s=0.3, maintain_s=0.3, compact_s=0.3, close_s=0.3)
"""For an engine that never answers. Every other one gets those of the suite."""


async def answer(arguments: Any) -> Any:
    return arguments


class Whole(NotesEngine):
    """An engine with everything that is optional, and nothing wrong."""

    info = replace(INFO, owns_compaction=True, maintenance="background")

    def __init__(self, folder: Path, *, line_chars: int = 100) -> None:
        super().__init__(folder, line_chars=line_chars)
        self.folder = folder
        self.passes = 0

    def assemble(self, ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
        result = super().assemble(ctx, history, prompt)
        return replace(result, projection=ContextProjection(mode=ProjectionMode.THREAD_BOOTSTRAP, epoch="e1"))

    def compact(
        self, ctx: EngineContext, *, force: bool, target: Literal["budget", "threshold"], focus: str | None
    ) -> CompactResult:
        with self._transaction() as connection:
            [notes] = connection.execute("select count(*) from note").fetchone()
        self.passes += 1
        if notes and self.passes < 3:
            return CompactResult(status=CompactStatus.COMPACTED, tokens_before=100, tokens_after=50)
        return CompactResult(status=CompactStatus.NOT_NEEDED)

    def tools(self) -> list[Tool]:
        return [Tool(name="notes_search", description="Finds notes.", schema={"type": "object"}, call=answer)]


def check(engine: Callable[[Path], ContextEngine], *only: str, deadlines: Deadlines = SUITE_DEADLINES) -> EngineReport:
    def create_engine(setup: EngineSetup) -> ContextEngine:
        create(setup)  # refuses options
        return engine(setup.folder)

    return check_engine(create_engine, only=only, deadlines=deadlines)


# ── what can be wrong ──


def _said(id_: str, text: str) -> Message:
    return Message(id=EntryId(id_), at_ms=0, part=AgentPart(text=text))


class Adds(Whole):
    """Assembles one more message."""

    def extra(self, ctx: EngineContext, history: History) -> tuple[Message, ...]:
        raise NotImplementedError

    def assemble(self, ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
        result = super().assemble(ctx, history, prompt)
        return replace(result, messages=(*result.messages, *self.extra(ctx, history)))


class Greets(Adds):
    def extra(self, ctx: EngineContext, history: History) -> tuple[Message, ...]:
        return (_said("hello", "I am your memory."),) if ctx.budget.history > 1_000 else ()


class InventsAnEntry(Adds):
    def extra(self, ctx: EngineContext, history: History) -> tuple[Message, ...]:
        return (_said("r/a#77", "It was so."),)


class Repeats(Adds):
    def extra(self, ctx: EngineContext, history: History) -> tuple[Message, ...]:
        return (*history[:1], *history[:1]) if len(history) > 2 else ()


class SplitsPairs(Adds):
    def extra(self, ctx: EngineContext, history: History) -> tuple[Message, ...]:
        return tuple(message for message in history if isinstance(message.part, CallPart))[:1]


class ReturnsResultsOnly(Adds):
    def extra(self, ctx: EngineContext, history: History) -> tuple[Message, ...]:
        return tuple(message for message in history if isinstance(message.part, ResultPart))[:1]


class ExceedsTheBudget(Adds):
    def extra(self, ctx: EngineContext, history: History) -> tuple[Message, ...]:
        return (_said("long", "x" * 100_000),)


class TellsTheTime(Adds):
    def extra(self, ctx: EngineContext, history: History) -> tuple[Message, ...]:
        return (_said("time", str(time.monotonic_ns())),)


class KeepsTheOrderOfKeys(Adds):
    def extra(self, ctx: EngineContext, history: History) -> tuple[Message, ...]:
        inputs = [message.part.input for message in history if isinstance(message.part, CallPart)]
        return (_said("inputs", str(inputs)[:300]),) if ctx.budget.history > 10_000 else ()


class LosesTaint(Whole):
    def assemble(self, ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
        result = super().assemble(ctx, history, prompt)
        tainted = tuple(message.id for message in history if message.is_tainted)
        leaked = Message(id=EntryId("leak"), at_ms=0, part=SummaryPart(text="ok", sources=tainted))
        return replace(result, messages=(leaked,))


class ChangesItsEpoch(Whole):
    def assemble(self, ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
        result = super().assemble(ctx, history, prompt)
        return replace(result, projection=replace(result.projection, epoch=f"e{len(history)}"))


class Hangs(Whole):
    def maintain(self, ctx: EngineContext, reason: MaintainReason) -> None:
        while not ctx.cancel.is_set:
            time.sleep(0.01)


class RefusesOddTexts(Whole):
    def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        for message in turn.messages:
            msgspec.json.encode(message)
        return super().commit_turn(ctx, turn)


class CountsTwice(Whole):
    """Takes in whatever arrives, without looking at ids."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.seen: list[EntryId] = []

    def bootstrap(self, ctx: EngineContext, history: History) -> None:
        self.seen += [message.id for message in history]

    def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        self.seen += [message.id for message in turn.messages]
        return super().commit_turn(ctx, turn)

    def assemble(self, ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
        result = super().assemble(ctx, history, prompt)
        everything = Message(id=EntryId("all"), at_ms=0, part=SummaryPart(text="All.", sources=tuple(self.seen)))
        return replace(result, messages=(everything,))


class NeverDuplicate(Whole):
    def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        super().commit_turn(ctx, turn)
        return "committed"


class DigestsTheBudget(Whole):
    def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        key = EntryId(f"{turn.key} {turn.budget.history}")
        return super().commit_turn(ctx, replace(turn, key=key))


class AcceptsOtherMessages(Whole):
    def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        return super().commit_turn(ctx, replace(turn, messages=()))


class NeedsBootstrap(Whole):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_ready = False

    def bootstrap(self, ctx: EngineContext, history: History) -> None:
        self.is_ready = True
        super().bootstrap(ctx, history)

    def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        if not self.is_ready:
            raise RuntimeError("not bootstrapped")
        return super().commit_turn(ctx, turn)


class RemembersInMemory(Whole):
    """Knows the turns only as long as the object lives."""

    def close(self) -> None:
        super().close()
        self._database.unlink(missing_ok=True)


class KeepsMemoryAfterReset(Whole):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.first: tuple[Message, ...] = ()

    def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        self.first = self.first or (_said("first", "It began so."),)
        return super().commit_turn(ctx, turn)

    def assemble(self, ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
        result = super().assemble(ctx, history, prompt)
        return replace(result, messages=(*result.messages, *self.first)) if ctx.budget.history > 1_000 else result


class KeepsALog(Whole):
    def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        with (self.folder / "log.txt").open("a") as file:
            file.writelines(ascii(message.part) for message in turn.messages)
        return super().commit_turn(ctx, turn)


class DeletesRowsOnly(Whole):
    def forget(self, ctx: EngineContext, reason: ForgetReason) -> None:
        with self._transaction() as connection:
            connection.execute("pragma secure_delete = off")
            connection.execute("delete from note")
            connection.execute("delete from turn")


class SharesItsKeys(Whole):
    keys: ClassVar[set[str]] = set()

    def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        if turn.key in self.keys:
            return "duplicate"
        self.keys.add(turn.key)
        return super().commit_turn(ctx, turn)


class BreaksBesideOthers(Whole):
    def maintain(self, ctx: EngineContext, reason: MaintainReason) -> None:
        if reason == "turn":
            raise RuntimeError("database is locked")


class CompactsForEver(Whole):
    def compact(
        self, ctx: EngineContext, *, force: bool, target: Literal["budget", "threshold"], focus: str | None
    ) -> CompactResult:
        return CompactResult(status=CompactStatus.COMPACTED)


class SavesNothing(Whole):
    def compact(
        self, ctx: EngineContext, *, force: bool, target: Literal["budget", "threshold"], focus: str | None
    ) -> CompactResult:
        return CompactResult(status=CompactStatus.COMPACTED, tokens_before=100, tokens_after=100)


class NamesASuccessor(Whole):
    def compact(
        self, ctx: EngineContext, *, force: bool, target: Literal["budget", "threshold"], focus: str | None
    ) -> CompactResult:
        return CompactResult(status=CompactStatus.NOT_NEEDED, successor=SessionKey("another"))


class ChangesItsTools(Whole):
    def tools(self) -> list[Tool]:
        tools = super().tools()
        return tools if not self._database.exists() else []


class LeavesHalfABootstrap(Whole):
    """Stores notes one by one, in the order in which they come, and takes the stored ones for all of them."""

    def bootstrap(self, ctx: EngineContext, history: History) -> None:
        if self._database.exists():
            return
        with self._transaction():
            pass
        super().bootstrap(ctx, history)


class IgnoresCancel(Whole):
    def bootstrap(self, ctx: EngineContext, history: History) -> None:
        super().bootstrap(ctx, history)
        while ctx.cancel.is_set and not (self.folder / "stop").exists():
            time.sleep(0.01)


class CannotReopen(Whole):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "lock").touch(exist_ok=False)


SLOW = {LeavesHalfABootstrap, IgnoresCancel, ReturnsResultsOnly}
"""Engines whose test takes more than a second."""

MUTANTS: Mapping[tuple[str, type[Whole]], str] = {
    ("deadlines", Hangs): "maintain did not answer within 0.3 s",
    ("empty-history", Greets): "1 messages were assembled for a session in which nothing was said",
    ("one-turn", InventsAnEntry): "message r/a#77 is not in the history",
    ("several-turns", Repeats): "was assembled 2 times",
    ("tool-pairs", SplitsPairs): "is a tool call without its result",
    ("tool-pairs", ReturnsResultsOnly): "is a tool result without its call",
    ("tainted", LosesTaint): "the summary leak of tainted entries is not tainted",
    ("odd-texts", RefusesOddTexts): "UnicodeEncodeError",
    ("odd-commits", RefusesOddTexts): "UnicodeEncodeError",
    ("large-history", ExceedsTheBudget): "tokens were assembled",
    ("budget", ExceedsTheBudget): "and the budget is 0",
    ("same-bytes", TellsTheTime): "one object assembled different results",
    ("same-bytes", KeepsTheOrderOfKeys): "depends on the order of the keys",
    ("epoch", ChangesItsEpoch): "one more turn changed the epoch",
    ("no-doubling", CountsTwice): "entries are assembled more often after they arrived twice",
    ("duplicate", NeverDuplicate): "was not a `duplicate` the second time",
    ("duplicate", DigestsTheBudget): "with another model and budget was not a `duplicate`",
    ("other-payload", AcceptsOtherMessages): "was accepted with other messages, as 'duplicate'",
    ("queued-commit", NeedsBootstrap): "RuntimeError: not bootstrapped",
    ("durable", RemembersInMemory): "is not known after reopening",
    ("after-reset", KeepsMemoryAfterReset): "messages from before the reset were assembled",
    ("forget", KeepsALog): "the word is in log.txt",
    ("forget", DeletesRowsOnly): "the word is in notes.db",
    ("separate-sessions", SharesItsKeys): "is a duplicate in another one",
    ("maintenance", BreaksBesideOthers): "RuntimeError: database is locked",
    ("background", BreaksBesideOthers): "RuntimeError: database is locked",
    ("compaction", CompactsForEver): "10 passes in a row say `compacted`",
    ("compaction", SavesNothing): "from 100 to 100 tokens",
    ("compact-nothing", CompactsForEver): "ended as compacted",
    ("compact-nothing", NamesASuccessor): "the successor is another session",
    ("tools", ChangesItsTools): "changed in one session",
    ("cancel", LeavesHalfABootstrap): "another result is assembled than after a complete one",
    ("cancel", IgnoresCancel): "was abandoned and still runs",
    ("reopen", CannotReopen): "FileExistsError",
}


@pytest.mark.long
@pytest.mark.requirement("context.engines")
def test_engine_suite_passes_an_engine_with_every_option() -> None:
    report = check(Whole)
    assert {each.case for each in report.verdicts if each.result is not Result.PASSED} == IN_ANOTHER_PROCESS
    assert report.failures == ()
    assert report.engine == Whole.info


@pytest.mark.parametrize(
    ("case", "mutant"),
    [pytest.param(*each, marks=pytest.mark.long if each[1] in SLOW else ()) for each in MUTANTS],
    ids=lambda each: getattr(each, "__name__", each),
)
@pytest.mark.requirement("context.engines")
def test_engine_suite_names_the_case_that_a_broken_engine_fails(case: str, mutant: Callable[[Path], Whole]) -> None:
    report = check(mutant, case, deadlines=DEADLINES if mutant is Hangs else SUITE_DEADLINES)
    [verdict] = report.verdicts
    assert (verdict.case, verdict.result) == (case, Result.FAILED)
    assert verdict.what is not None
    assert MUTANTS[case, mutant] in verdict.what  # type: ignore[index]
    assert verdict.todo is not None
    assert report.failures == (f"{case}: {verdict.sentence} {verdict.what}. {verdict.todo}",)


def test_engine_suite_says_first_what_is_wrong_with_a_call() -> None:
    class ReturnsList(NotesEngine):
        def assemble(self, ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
            return [*history]  # type: ignore[return-value]

    [verdict] = check_engine(lambda setup: ReturnsList(setup.folder, line_chars=100), only=["same-bytes"]).verdicts
    assert verdict.what is not None
    assert verdict.what.endswith("assemble returned something invalid: expected an AssembleResult, not list")
    assert (verdict.todo or "").startswith("First correct this call, which other cases may make too. Use no time,")


@pytest.mark.parametrize(
    ("only", "reasons"),
    [(("contract", "tainted"), ["no `close`", "the engine cannot be created"]), (("tainted",), ["no `close`"])],
)
def test_engine_that_cannot_be_created_is_explained_once(only: tuple[str, ...], reasons: list[str]) -> None:
    class Unclosed(NotesEngine):
        close: Any = property()

    report = check_engine(lambda setup: Unclosed(setup.folder, line_chars=100), only=only)
    whats = [each.what or "" for each in report.verdicts]
    assert [what.endswith(reason) for what, reason in zip(whats, reasons, strict=True)] == [True] * len(only)


class Awaits(Whole):
    """Takes in the history on the event loop."""

    async def bootstrap(self, ctx: EngineContext, history: History) -> None:  # type: ignore[override]
        notes = self._notes_of(history)
        await anyio.lowlevel.checkpoint()
        with self._transaction() as connection:
            connection.executemany("insert or ignore into note values (?, ?, ?)", notes)


def test_engine_suite_cancels_a_coroutine_function_too() -> None:
    [verdict] = check(Awaits, "cancel").verdicts
    assert (verdict.result, verdict.what) == (Result.PASSED, None)


class NeedsMagic(Whole):
    info = replace(Whole.info, requires=("takes_magic",))


def test_engine_suite_reports_a_capability_that_does_not_exist() -> None:
    [verdict] = check(NeedsMagic, "contract").verdicts
    assert verdict.what == "`info.requires` names unknown capabilities: takes_magic"


def test_engine_suite_has_a_mutant_for_each_case() -> None:
    elsewhere = IN_ANOTHER_PROCESS | {"contract", "options"}
    assert {case.id for case in engine_cases()} == {case for case, _ in MUTANTS} | elsewhere
    assert len({case.id for case in engine_cases()}) == len(engine_cases())


def test_engine_suite_reports_an_engine_that_accepts_any_option() -> None:
    report = check_engine(lambda setup: Whole(setup.folder), only=("options",))
    assert "it accepted the option 'no_engine_has_this_option'" in report.failures[0]


def test_engine_suite_reports_an_engine_that_cannot_be_created() -> None:
    report = check_engine(lambda _setup: object(), only=("contract", "duplicate"))  # type: ignore[arg-type,return-value]
    contract, other = report.verdicts
    assert (contract.result, other.result) == (Result.FAILED, Result.NOT_APPLICABLE)
    assert contract.what == "engine: it has no `commit_turn`, and none of `after_turn`, `ingest_batch`, `ingest`"
    assert report.engine is None


def test_engine_suite_calls_a_method_that_does_not_answer_only_once() -> None:
    report = check(Hangs, "deadlines", "maintenance", deadlines=DEADLINES)
    assert [each.result for each in report.verdicts] == [Result.FAILED, Result.NOT_APPLICABLE]
    assert report.verdicts[1].what == "`maintain` did not answer in time in the case deadlines"


def test_engine_suite_refuses_an_unknown_case() -> None:
    with pytest.raises(InputError, match="unknown case 'budgets'"):
        check(Whole, "budgets")


@pytest.mark.long
@pytest.mark.parametrize("method", ["after_turn", "ingest_batch", "ingest"])
def test_engine_suite_passes_an_engine_that_takes_turns_by_another_method(method: str) -> None:
    report = check(
        lambda folder: _Adapted(folder, method), "duplicate", "other-payload", "durable", "no-doubling", "forget"
    )
    assert report.failures == ()
    assert report.engine is not None
    assert report.engine.commits == "at-least-once"


def _Adapted(folder: Path, method: str) -> Any:  # noqa: N802  a class that is made for one method
    """Return an engine with this method instead of `commit_turn`."""
    inner = NotesEngine(folder, line_chars=100)

    def take(messages: Any) -> None:
        with inner._transaction() as connection:
            connection.executemany("insert or ignore into note values (?, ?, ?)", inner._notes_of(messages))

    takes = {
        "after_turn": lambda _ctx, messages, **_more: take(messages),
        "ingest_batch": lambda _ctx, messages: take(messages),
        "ingest": lambda _ctx, message: take([message]),
    }
    names = ("info", "bootstrap", "assemble", "maintain", "compact", "forget", "close")
    members = {name: getattr(inner, name) for name in names}
    return type("Adapted", (), {**members, method: staticmethod(takes[method])})()
