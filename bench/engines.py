"""Area `context`: what the engine `lossless` and the projection cost, beside what peers cost.

The figures of peers were measured for the issue that set the bounds; nothing of them is installed or run here.
"""

import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from statistics import mean, median

import anyio
from msgspec.structs import replace

from bench.context import BenchContext
from bench.cost import Meter, in_own_process
from bench.table import Row, at_most
from bench.talk import BUDGET, PROMPT, TURN_MESSAGES, Talk, engine_context, messages, turns
from bench.turn_costs import turn_rows
from proctor.__main__ import relax_gc
from proctor.clock import SystemClock
from proctor.context.guard import GuardedEngine
from proctor.context.history import History, ListedHistory
from proctor.context.model import RecordedTurn
from proctor.context.project import Form, ProjectionLimits, Prompt, project
from proctor.context.stored_history import open_history
from proctor.event.message import Message, UserPart
from proctor.ids import EntryId

TURNS = 10
"""How many turns are committed in a round."""

LOOKS = 15
"""How often everything is measured."""

RARE = "zyxquartzlamp"


class _Point:
    """A session of one length, and what it cost."""

    def __init__(self, talk: Talk, history: History, following: Iterator[RecordedTurn]) -> None:
        self.talk = talk
        self.messages = len(history)
        self.mirror_bytes, self.engine_bytes = talk.disk_bytes()
        self.text_bytes = talk.text_bytes
        self._history, self._following = history, following
        self._assemble()
        self.assembled = len(talk.engine.assemble(engine_context(), history, PROMPT).messages)
        self.assemble_ms: list[float] = []
        self.commit_ms: list[float] = []

    @property
    def bytes_per_byte(self) -> float:
        return (self.mirror_bytes + self.engine_bytes) / self.text_bytes

    def look(self) -> None:
        """Assemble once, and commit some turns. The lengths take turns, so that a busy machine slows all of them."""
        self.assemble_ms.append(self._assemble())
        costs = [self.talk.commit(next(self._following)).cpu_s * 1000 for _ in range(TURNS)]
        self.commit_ms.append(mean(costs))

    def _assemble(self) -> float:
        """Open the history, as each turn does, and assemble. What was committed meanwhile is left out."""

        def assemble() -> None:
            with open_history(self.talk.folder / "session.db", after_turn=0):
                self.talk.engine.assemble(engine_context(), self._history, PROMPT)

        return _cpu_ms(assemble, looks=1)


def measure(context: BenchContext) -> list[Row]:
    relax_gc()
    return [*anyio.run(_session_rows, context), *_projection_rows(context), *turn_rows(context)]


async def _session_rows(context: BenchContext) -> list[Row]:
    sizes = context.sizes
    with ExitStack() as stack:
        points = []
        for messages in (sizes.few_messages, sizes.some_messages, sizes.many_messages):
            context.report(f"context: {messages:,} messages")
            points.append(await _built(context.fresh(), messages, stack))
        few, some, many = points
        for number in range(1, LOOKS + 1):
            context.report(f"context: round {number} of {LOOKS}")
            for point in points:
                point.look()
        searches = [each async for each in _searches(many.talk)]
        guarded_ms = await _guarded_ms(many.talk)
    return [
        *_assemble_rows(some, many, guarded_ms),
        *_commit_rows(few, many),
        at_most(
            f"search for one rare word among {many.messages:,} messages, wall",
            median(searches),
            5,
            "ms",
            note=f"{min(searches):.2f} to {max(searches):.2f} ms; measured for the issue: prototype 0.1 to 0.4 ms",
        ),
        *_storage_rows(some, many),
        _memory_row(context, many),
    ]


async def _built(folder: Path, messages: int, stack: ExitStack) -> _Point:
    talk = Talk(folder, stack)
    talk.begin()
    said = turns(messages // TURN_MESSAGES + LOOKS * TURNS)
    for turn in islice(said, messages // TURN_MESSAGES):
        talk.commit(turn)
        await talk.engine.maintain(engine_context(), "turn")
    history = stack.enter_context(open_history(folder / "session.db", after_turn=0))
    return _Point(talk, history, said)


def _assemble_rows(some: _Point, many: _Point, guarded_ms: float) -> Iterator[Row]:
    yield at_most(
        f"lossless, {many.messages:,} messages, {BUDGET.history:,} tokens: assemble, CPU",
        median(many.assemble_ms),
        20,
        "ms",
        note=f"{many.assembled} messages; {guarded_ms:.1f} ms with the check of the result; measured for the issue:"
        " prototype 6 ms, openai-agents SQLiteSession reads its whole history in 544 ms",
    )
    yield at_most(
        f"assemble, by one of {some.messages:,} messages",
        _ratio(many.assemble_ms, some.assemble_ms),
        1.3,
        "x",
        note=f"{median(some.assemble_ms):.1f} ms, {some.assembled} messages",
    )


def _commit_rows(few: _Point, many: _Point) -> Iterator[Row]:
    yield at_most(
        f"commit a turn of {TURN_MESSAGES} at {many.messages:,} messages (mirror, engine, index), CPU",
        median(many.commit_ms),
        5,
        "ms",
        note="measured for the issue: LangGraph SQLite saver 96 ms at 2,000 messages, growing",
    )
    yield at_most(
        f"commit a turn, by one at {few.messages:,} messages",
        _ratio(many.commit_ms, few.commit_ms),
        1.3,
        "x",
        note=f"{median(few.commit_ms):.2f} ms",
    )


def _storage_rows(some: _Point, many: _Point) -> Iterator[Row]:
    mirror, engine = many.mirror_bytes / many.text_bytes, many.engine_bytes / many.text_bytes
    yield at_most(
        "storage per byte of text (mirror and engine)",
        many.bytes_per_byte,
        3,
        "B",
        note=f"mirror {mirror:.2f}, engine {engine:.2f}, of {many.text_bytes / 1e6:.0f} MB, in turns of"
        f" {TURN_MESSAGES}; measured for the issue:"
        " LangGraph 1.7 GB for 0.7 MB of text",
    )
    linear = max(many.bytes_per_byte / some.bytes_per_byte, some.bytes_per_byte / many.bytes_per_byte)
    yield at_most(
        f"storage per byte, by that of {some.messages:,} messages",
        linear,
        1.1,
        "x",
        note=f"{some.bytes_per_byte:.2f} B",
    )


def _memory_row(context: BenchContext, many: _Point) -> Row:
    full, empty = (
        in_own_process("bench.talk", str(each), env={}).peak_bytes / 1e6 for each in (many.talk.folder, context.fresh())
    )
    return at_most(
        f"our memory with {many.messages:,} messages open, beyond that with none",
        full - empty,
        40,
        "MB",
        note=f"{full:.0f} MB in all at the peak; measured for the issue: prototype 25 MB resident in all",
    )


async def _searches(talk: Talk) -> AsyncIterator[float]:
    [turn] = turns(1)
    asked = replace(turn.messages[0], id=EntryId("rare#1"), part=UserPart(text=f"Where is the {RARE}?"))
    talk.commit(replace(turn, id=asked.id, messages=(asked,)))
    search = next(tool for tool in talk.engine.tools() if tool.name == "context_search")
    for _ in range(LOOKS):
        began_s = time.perf_counter()
        answer = await search.call({"query": RARE, "limit": 10})
        yield (time.perf_counter() - began_s) * 1000
        assert asked.id in answer, answer


async def _guarded_ms(talk: Talk) -> float:
    guard = GuardedEngine(talk.engine, clock=SystemClock())
    costs = []
    with open_history(talk.folder / "session.db", after_turn=0) as history:
        for _ in range(LOOKS):
            meter = Meter()
            await guard.assemble(engine_context(), history, PROMPT)
            costs.append(meter.read().cpu_s * 1000)
    return median(costs)


def _projection_rows(context: BenchContext) -> Iterator[Row]:
    count = context.sizes.projected_messages
    for form in ("items", "text"):
        yield at_most(
            f"project {count:,} messages as {form}, CPU",
            _cpu_ms(_Projecting(messages(count), form)),
            30,
            "ms",
            note="no peer",
        )


class _Projecting:
    def __init__(self, messages: list[Message], form: Form) -> None:
        self._messages, self._form = messages, form
        self._history = ListedHistory(messages)

    def __call__(self) -> None:
        given = project(
            self._messages,
            original_history=self._history,
            prompt=Prompt(id=PROMPT.id, text="Go on."),
            system_addition=None,
            held=frozenset(),
            limits=ProjectionLimits(),
            form=self._form,
        ).given
        assert len(given) == len(self._messages)


def _ratio(many: list[float], few: list[float]) -> float:
    return median(one / other for one, other in zip(many, few, strict=True))


def _cpu_ms(work: Callable[[], object], *, looks: int = LOOKS) -> float:
    costs = []
    for _ in range(looks):
        gc.collect()
        began_s = time.process_time()
        work()
        costs.append((time.process_time() - began_s) * 1000)
    return median(costs)
