"""A twin of an agent in memory, with the record of a sitting: what its model is shown, and what a test makes it do."""

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from proctor.context.compaction import Compaction
from proctor.context.engine_use import EngineUse
from proctor.context.guard import DEADLINES, Deadlines, EngineHealth, GuardedEngine
from proctor.context.keeper import SessionKeeper
from proctor.context.kept_session import open_kept_session
from proctor.context.lifecycle import ContextLifecycle
from proctor.context.model import SessionSettings, SessionTurn, TurnContext
from proctor.context.port import ThreadOpening
from proctor.errors import ProctorError, RefusedError
from proctor.event import model
from proctor.event.message import AgentPart, CallPart, Message, ResultPart, SummaryPart, UserPart
from proctor.event.outcome import Ending, OutcomeFold
from proctor.event.row import (
    Direction,
    HistoryOffer,
    HistoryReceipt,
    Row,
    SessionRefusal,
    SupervisorRow,
    ThreadDropped,
    TurnClosed,
    TurnWanted,
)
from proctor.event.supervisor_events import supervisor_event
from proctor.event.usage import Usage
from proctor.evidence.layout import RootPaths
from proctor.ids import ItemId, RuntimeId, ThreadId, TurnId
from proctor.runtime.base import ContextUse, Delivery
from proctor.runtime.capability import Capabilities
from proctor.runtime.delivery import instructions_sha256
from proctor.runtime.intake import intake_of
from proctor.testing.clock import FakeClock
from tests.context.made import Events, sitting
from tests.scripted_engine import Behaviour, ScriptedEngine

ALL = Capabilities(
    thread_start=True,
    thread_resume=True,
    compaction=True,
    takes_history=True,
    takes_instructions=True,
    takes_turn_instructions=True,
)
Shown = tuple[str, str]
"""A role (`user`, `assistant`, `developer`, `reference`) and a text."""


class KilledError(BaseException):
    """Proctor is killed: nothing that follows happens."""


@dataclass(slots=True)
class Agent:
    """The agent's side: its threads, and what its next turns and requests do."""

    threads: dict[ThreadId, list[Shown]] = field(default_factory=dict)
    requests: list[list[Shown]] = field(default_factory=list)
    """What the model was shown in each turn that began."""
    answers: list[str | ProctorError | model.TurnEnded] = field(default_factory=list)
    """What its next turns answer, raise, or how they end. Empty: they answer `ok`."""
    refuses_items: bool = False
    most_chars: int | None = None
    """A longer prompt is refused."""
    record: dict[int, list[model.Event]] = field(default_factory=dict)
    """By sitting: what Proctor has recorded."""
    dies_after: int | None = None
    """After so many events of a sitting, Proctor is killed."""
    window: int | None = None
    used: int | None = None
    fixed: int | None = None
    """Tokens of its own prompt."""
    compacts_at: int | None = None
    """Used tokens from which it shortens its thread."""
    ends: Callable[[], None] | None = None
    """Ends its next turns, in place of an answer."""


class TwinSession:
    """One thread of the twin."""

    def __init__(self, port: "TwinPort", thread: ThreadId) -> None:
        self.thread = thread
        self._port = port
        self._references: dict[str, str] = {}

    def refer(self, references: Mapping[str, str]) -> None:
        self._references = dict(references)

    async def give(self, messages: Sequence[Message], *, instructions: str | None = None) -> Delivery:
        sha256 = instructions_sha256(instructions)
        self._port.record(HistoryOffer(entries=tuple(each.id for each in messages), instructions_sha256=sha256))
        if self._port.agent.refuses_items and messages:
            self._port.record(HistoryReceipt(entries=(), problem="no items today"))
            raise RefusedError("peer.refused", "no items today")
        held = self._port.agent.threads[self.thread]
        held += [shown(each) for each in messages]
        held += [] if instructions is None else [("developer", instructions)]
        entries = tuple(each.id for each in messages)
        self._port.record(HistoryReceipt(entries=entries, instructions_sha256=sha256))
        return Delivery(entries=entries, items=len(messages), sha256=None)

    async def turn(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        agent, turn = self._port.agent, TurnId(f"t{len(self._port.agent.requests)}")
        answer = agent.answers.pop(0) if agent.answers else "ok"
        if isinstance(answer, RefusedError):
            raise answer
        if agent.most_chars is not None and len(prompt) > agent.most_chars:
            raise RefusedError("peer.refused", "the prompt is too long")
        held = agent.threads[self.thread]
        held += [("reference", text) for text in self._references.values()]
        self._references = {}
        held.append(("user", prompt))
        agent.requests.append(list(held))
        self._port.feed(model.TurnBegan, turn=turn)
        await anyio.lowlevel.checkpoint()
        if agent.ends is not None:
            agent.ends()
            return
        if isinstance(answer, ProctorError):
            raise answer
        if isinstance(answer, model.TurnEnded):
            fields = {**msgspec.structs.asdict(answer), "turn": turn}
            del fields["frame"], fields["at_ms"]
            self._port.feed(model.TurnEnded, **fields)
            return
        held.append(("assistant", answer))
        self._port.feed(model.TextSaid, turn=turn, item=ItemId("i"), text=answer)
        self._port.feed(model.TurnEnded, turn=turn, status="completed")

    async def read_context(self) -> ContextUse:
        agent = self._port.agent
        return ContextUse(
            window_tokens=agent.window,
            used_tokens=agent.used,
            fixed_prompt_tokens=agent.fixed,
            compacts_at_tokens=agent.compacts_at,
        )


def shown(message: Message) -> Shown:
    match message.part:
        case UserPart(text=text) | SummaryPart(text=text):
            return "user", text
        case AgentPart(text=text):
            return "assistant", text
        case CallPart(name=name):
            return "assistant", f"call {name}"
        case ResultPart(output=output):
            return "user", f"result {output}"


class TwinPort:
    """An `AgentPort` on the twin. Events are fed to the keeper and the lifecycle as they are in a sitting."""

    def __init__(self, agent: Agent, *, n: int, runtime_id: str, capabilities: Capabilities) -> None:
        self.agent = agent
        self.n = n
        self.is_killed = False
        self.runtime_id = RuntimeId(runtime_id)
        self.capabilities = capabilities
        self.session: Any = None
        self.has_turn_begun = False
        self.usage: Usage | None = None
        self.rows: list[SupervisorRow] = []
        self.openings: list[ThreadOpening] = []
        self.beside: list[anyio.Event] = []
        """The ends of what was started beside the turns."""
        self.tasks: TaskGroup | None = None
        self.keeper: SessionKeeper | None = None
        self.lifecycle: ContextLifecycle | None = None
        self._events = Events()
        self._outcome = OutcomeFold()

    @property
    def ending(self) -> Ending:
        return self._outcome.ending

    def record(self, row: SupervisorRow) -> None:
        self.rows.append(row)
        made = self._events(SimpleNamespace)
        raw = msgspec.Raw(msgspec.json.encode(row))
        self._take(supervisor_event(Row(seq=made.frame, at_ms=made.at_ms, dir=Direction.SELF, prev="", frame=raw)))

    def feed(self, type_: type[Any], **fields: Any) -> None:
        """Take an event of the agent."""
        self._take(self._events(type_, **fields))

    def _take(self, event: model.Event) -> None:
        if self.is_killed:
            raise KilledError
        recorded = self.agent.record.setdefault(self.n, [])
        recorded.append(event)
        if self.agent.dies_after is not None and len(recorded) >= self.agent.dies_after:
            self.is_killed = True
            raise KilledError
        self._outcome.feed(event)
        if isinstance(event, model.TurnAsked | model.TurnBegan):
            self.has_turn_begun = isinstance(event, model.TurnBegan)
        if self.keeper is not None:
            self.keeper.feed(event)
        if self.lifecycle is not None and isinstance(event, model.CompactionBegan | model.CompactionEnded):
            self.lifecycle.note_compaction(event)

    async def open_thread(self, opening: ThreadOpening) -> Any:
        self.openings.append(opening)
        decision, threads = opening.decision, self.agent.threads
        self.session = None
        if len(self.openings) > 1:
            self.record(ThreadDropped(why=decision.reason))
        if decision.thread is not None and decision.thread not in threads:
            raise RefusedError("peer.refused", f"no thread {decision.thread}")
        thread = decision.thread if decision.how == "resume" else ThreadId(f"th{len(threads) + 1}")
        assert thread is not None
        threads.setdefault(thread, list(threads[decision.thread]) if decision.thread is not None else [])
        self.session = TwinSession(self, thread)
        self.feed(model.SessionBegan, thread=thread)
        if decision.how == "start" and (opening.instructions is not None or opening.history):
            await self.session.give(opening.history, instructions=opening.instructions)
        return self.session

    def start_soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        assert self.tasks is not None
        done = anyio.Event()
        self.beside.append(done)

        async def run() -> None:
            try:
                await work()
            finally:
                done.set()

        self.tasks.start_soon(run)


@dataclass(slots=True, kw_only=True)
class Sitting:
    """An open sitting of a session with the scripted engine on the twin."""

    port: TwinPort
    keeper: SessionKeeper
    lifecycle: ContextLifecycle
    behaviour: Behaviour
    error: ProctorError | None = None
    """What the last turn raised."""
    waits: bool = True
    """Whether a turn waits for what it starts beside it."""

    async def say(self, text: str) -> TurnContext | None:
        """Ask a turn as a live session does, and return what the engine did for it."""
        port, self.error = self.port, None
        port.record(TurnWanted(text=text))
        await self.keeper.admit()
        try:
            await self.lifecycle.run_turn(text)
        except ProctorError as error:
            self.error = error
            port.record(SessionRefusal(code=error.code, detail=error.what))
        port.record(TurnClosed())
        await self.keeper.settle()
        await self.lifecycle.finalize_turn()
        if self.waits:
            await self.run_beside()
        return self.lifecycle.context_of(self.keeper.last_over)

    async def compact(self, *, focus: str | None = None) -> Compaction | None:
        compaction = await self.lifecycle.compact(focus=focus)
        await self.run_beside()
        return compaction

    async def run_beside(self) -> None:
        """Wait for what was started beside the turns."""
        while self.port.beside:
            await self.port.beside.pop(0).wait()

    def turns(self) -> tuple[SessionTurn, ...]:
        return self.keeper.turns()


@asynccontextmanager
async def open_sitting(
    folder: Path,
    agent: Agent,
    *,
    n: int = 1,
    behaviour: Behaviour,
    engine: Any = None,
    runtime_id: str = "codex_app_server",
    capabilities: Capabilities = ALL,
    health: EngineHealth | None = None,
    clock: FakeClock | None = None,
    tools: str = "",
    deadlines: Deadlines = DEADLINES,
    waits: bool = True,
    **use: Any,
) -> AsyncIterator[Sitting]:
    """Open the session `x` in this folder. `use` are fields of `EngineUse`."""
    clock = clock or FakeClock()
    port = TwinPort(agent, n=n, runtime_id=runtime_id, capabilities=capabilities)
    made = ScriptedEngine(SimpleNamespace(options={})) if engine is None else engine  # type: ignore[arg-type]
    guard = GuardedEngine(made, clock=clock, health=health or EngineHealth(), deadlines=deadlines)
    given = EngineUse(
        guard=guard,
        **{
            "policy": "degrade",
            "options": {},
            "model": None,
            "tools": frozenset(),
            "tools_digest": tools,
            "intake": intake_of(capabilities),
            "process": None,
            **use,
        },
    )
    with open_kept_session(RootPaths(folder / "root"), "x", clock=clock) as kept:
        its = msgspec.structs.replace(sitting(n, tools=tools), runtime_id=RuntimeId(runtime_id))
        port.keeper = keeper = SessionKeeper(kept, its, first_turn=kept.store.next_turn())
        await keeper.begin(SessionSettings(runtime=runtime_id))
        port.lifecycle = lifecycle = ContextLifecycle(given, keeper=keeper, port=port)
        failure: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            port.tasks = tasks
            try:
                await lifecycle.open()
                yield Sitting(port=port, keeper=keeper, lifecycle=lifecycle, behaviour=behaviour, waits=waits)
            except (Exception, KilledError) as error:
                # Not raised inside the task group, which would wrap it in a group.
                failure = error
            finally:
                if not port.is_killed:
                    await lifecycle.close()
                    await keeper.close()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
