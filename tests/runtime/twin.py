"""An app-server in memory: the other end of a connection, which says what a test wants and misbehaves on demand."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from proctor.contain.launch import new_marker
from proctor.errors import HangupError
from proctor.event.row import Direction, SupervisorRow
from proctor.evidence.redact import TextStream
from proctor.ids import AttemptId
from proctor.runtime.base import ModelChoice, SessionRequest
from proctor.runtime.codex_app_server.approvals import ApprovalHandler
from proctor.runtime.codex_app_server.calls import Ask
from proctor.runtime.codex_app_server.connection import Connection
from proctor.runtime.codex_app_server.host import CodexHost
from proctor.runtime.codex_app_server.route import Envelope
from proctor.runtime.codex_app_server.session import Deadlines
from proctor.spec.choices import Approvals, Sandbox
from proctor.testing.clock import FakeClock
from proctor.transport.process import ExitStatus

DEADLINE_S = 20.0
T = TypeVar("T")


def run(test: Callable[[], Awaitable[T]]) -> T:
    """The test in an event loop, bounded."""

    async def bounded() -> T:
        with anyio.fail_after(DEADLINE_S):
            return await test()

    return anyio.run(bounded)


@asynccontextmanager
async def meanwhile(work: Callable[[], Awaitable[Any]]) -> AsyncIterator[None]:
    """Inside, the work has gone as far as it can by itself; on leaving it is cancelled."""

    async def working() -> None:
        await work()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(working)
        await anyio.wait_all_tasks_blocked()
        yield
        tasks.cancel_scope.cancel()


@dataclass(slots=True)
class MemoryTap:
    """Keeps what is committed, in order, also in a journal it may share."""

    journal: list[tuple[str, Any]] = field(default_factory=list)
    rows: list[tuple[Direction, Any]] = field(default_factory=list)
    staged: list[tuple[Direction, bytes]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    def stage(self, dir_: Direction, data: bytes, *, stream: TextStream | None = None) -> None:
        self.staged.append((dir_, data))

    def commit(self) -> None:
        self.rows += self.staged
        self.journal += [("recorded", data) for _, data in self.staged]
        self.staged = []

    def record(self, seen: SupervisorRow) -> None:
        self.commit()
        self.rows.append((Direction.SELF, seen))
        self.journal.append(("recorded", seen))

    def release(self, key_prefix: str) -> None:
        self.commit()
        self.released.append(key_prefix)

    def of(self, dir_: Direction) -> list[Any]:
        return [said for each, said in self.rows if each is dir_]

    @property
    def heard(self) -> list[Any]:
        """The frames of the agent, decoded."""
        return [msgspec.json.decode(line) for line in self.of(Direction.IN)]


@dataclass(eq=False, slots=True)
class Bystander:
    """A listener that only listens."""

    tap: MemoryTap = field(default_factory=MemoryTap)
    envelopes: list[Envelope] = field(default_factory=list)
    is_hung_up: bool = False

    @property
    def approvals(self) -> ApprovalHandler:
        return ApprovalHandler(None, self.tap, clock=FakeClock())

    def on_message(self, envelope: Envelope, line: bytes) -> None:
        self.envelopes.append(envelope)

    def on_hangup(self, cause: str) -> None:
        self.is_hung_up = True

    @property
    def is_gone(self) -> bool:
        return self.is_hung_up

    can_signal_codex = False

    def on_connection_lost(self) -> None:
        pass

    async def rejoin(self, ask: Ask) -> str | None:
        return "it only listens"


@dataclass(frozen=True, slots=True)
class Request:
    """What the connection asked."""

    id: int
    method: str
    params: Any


class Pipe(Generic[T]):
    """What was put comes out in order; None at the end."""

    def __init__(self) -> None:
        self.waiting: deque[T] = deque()
        self.is_closed = False
        self._news = anyio.Event()

    def put(self, item: T) -> None:
        self.waiting.append(item)
        self._news.set()

    def close(self) -> None:
        self.is_closed = True
        self._news.set()

    async def get(self) -> T | None:
        await anyio.lowlevel.checkpoint()
        while not self.waiting and not self.is_closed:
            self._news = anyio.Event()
            await self._news.wait()
        return self.waiting.popleft() if self.waiting else None


Handler = Callable[["Twin", Request], None]


class Twin:
    """Both a `Channel` and the server behind it. A request whose handler is None waits for `asked`."""

    def __init__(self, handlers: Mapping[str, Handler | None] | None = None) -> None:
        self.journal: list[tuple[str, Any]] = []
        self.handlers: dict[str, Handler | None] = {**OBLIGING, **(handlers or {})}
        self.threads = 0
        self.idle = anyio.Event()
        self.reads = anyio.Event()
        self.reads.set()
        self.exit: ExitStatus | None = ExitStatus(code=0)
        self._said = Pipe[bytes]()
        self._complained = Pipe[bytes]()
        self._requests = Pipe[Request]()
        self._answers = Pipe[Any]()

    # ── what the connection uses ──

    async def receive(self) -> bytes:
        if not self._said.waiting:
            self.idle.set()
        return await self._said.get() or b""

    async def receive_err(self) -> bytes:
        return await self._complained.get() or b""

    async def send(self, data: bytes) -> None:
        await self.reads.wait()
        if self._said.is_closed:
            raise HangupError("peer.hangup", "it no longer reads its stdin")
        self.journal.append(("sent", data.removesuffix(b"\n")))
        message = msgspec.json.decode(data)
        if "method" not in message:
            self._answers.put(message)
        elif "id" in message:
            request = Request(message["id"], message["method"], message["params"])
            handler = self.handlers.get(request.method)
            if handler is not None:
                handler(self, request)
            else:
                self._requests.put(request)

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        return self.exit

    # ── what the server does ──

    async def asked(self, method: str) -> Request:
        """The next request that no handler took."""
        request = await self._requests.get()
        assert request is not None
        assert request.method == method
        return request

    async def answer(self) -> Any:
        """The next answer to a request of the server's own."""
        return await self._answers.get()

    async def taken_in(self) -> None:
        """Until everything written so far has been recorded and acted on."""
        await self.idle.wait()

    def write(self, data: bytes) -> None:
        """These bytes, whatever they are, in one chunk."""
        self.idle = anyio.Event()
        self._said.put(data)

    def say(self, *messages: Any) -> None:
        """Whole messages, in one chunk."""
        self.write(b"".join(msgspec.json.encode(message) + b"\n" for message in messages))

    def notify(self, method: str, **params: Any) -> None:
        self.say(notification(method, **params))

    def reply(self, request: Request, result: Any) -> None:
        self.say({"id": request.id, "result": result})

    def refuse(self, request: Request, code: int, message: str) -> None:
        self.say({"id": request.id, "error": {"code": code, "message": message, "data": None}})

    def complain(self, data: bytes) -> None:
        self._complained.put(data)

    def close_output(self) -> None:
        self._said.close()

    def hang_up(self) -> None:
        self.close_output()
        self._complained.close()


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": params, "emittedAtMs": 1_700_000_000_000}


def ignore(_twin: Twin, _request: Request) -> None:
    """A handler that never answers."""


def agree(twin: Twin, request: Request) -> None:
    twin.reply(request, {})


def _start_thread(twin: Twin, request: Request) -> None:
    twin.threads += 1
    thread = {"id": f"thread-{twin.threads}", "ephemeral": True, "parentThreadId": None}
    reply = {"thread": thread, "model": request.params["model"], "cwd": request.params["cwd"]}
    twin.say({"id": request.id, "result": reply}, notification("thread/started", thread=thread))


def _start_turn(twin: Twin, request: Request) -> None:
    thread = request.params["threadId"]
    turn: dict[str, Any] = {"id": f"turn-of-{thread}", "items": [], "status": "inProgress", "error": None}
    twin.say({"id": request.id, "result": {"turn": turn}}, notification("turn/started", threadId=thread, turn=turn))


def _interrupt(twin: Twin, request: Request) -> None:
    twin.say({"id": request.id, "result": {}}, turn_completed(request.params["threadId"], status="interrupted"))


def turn_completed(thread: str, *, status: str = "completed", turn: str | None = None) -> dict[str, Any]:
    turn = turn or f"turn-of-{thread}"
    return notification(
        "turn/completed", threadId=thread, turn={"id": turn, "items": [], "status": status, "error": None}
    )


OBLIGING: dict[str, Handler] = {
    "thread/start": _start_thread,
    "turn/start": _start_turn,
    "turn/interrupt": _interrupt,
    "thread/backgroundTerminals/clean": agree,
    "thread/unsubscribe": agree,
}

TINY = Deadlines(start_s=5.0, teardown_s=0.2, late_items_s=0.1, farewell_s=0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A connection, both of its ends, and the process's own record."""

    twin: Twin
    tap: MemoryTap
    connection: Connection
    clock: FakeClock
    deadlines: Deadlines
    marker: str = field(default_factory=new_marker)

    @property
    def host(self) -> CodexHost:
        return CodexHost(self.connection, {}, clock=self.clock, marker=self.marker, deadlines=self.deadlines)


@asynccontextmanager
async def connected(
    twin: Twin | None = None, *, deadlines: Deadlines = TINY, pauses_s: Sequence[float] = (0.001, 0.001, 0.001)
) -> AsyncIterator[Line]:
    """A running connection to a twin; on leaving the twin hangs up, as a stopped process does."""
    twin = twin or Twin()
    tap = MemoryTap(twin.journal)
    clock = FakeClock()
    connection = Connection(twin, tap, clock=clock, pauses_s=pauses_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.run)
        yield Line(twin=twin, tap=tap, connection=connection, clock=clock, deadlines=deadlines)
        twin.hang_up()
        await connection.closed.wait()


def session_ask(
    name: str = "a.codex.r1.1",
    *,
    approvals: Approvals = Approvals.DENY,
    workspace: Path = Path("/somewhere/workspace"),
    **more: Any,
) -> SessionRequest:
    return SessionRequest(
        attempt=AttemptId(name),
        workspace=workspace,
        tmp=Path("/somewhere/tmp"),
        sandbox=Sandbox.WORKSPACE_WRITE,
        approvals=approvals,
        model=ModelChoice(provider="scripted", name="scripted", base_url="http://127.0.0.1:1/v1"),
        **more,
    )
