"""A Proctor runtime for mynah, which reads prompts and writes events as one JSON object per line."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from proctor.errors import MachineError, disk_error
from proctor.event import model
from proctor.event.row import Direction, Row
from proctor.event.supervisor_events import supervisor_event
from proctor.fact import Fact
from proctor.ids import CallId, ItemId, RuntimeId, ThreadId, TurnId
from proctor.runtime.agent_fences import agent_fences, fences_fact
from proctor.runtime.base import Confinement, Executable, Host, HostRequest, Normalizer, Runtime, SessionRequest, Tap
from proctor.runtime.capability import Capabilities
from proctor.runtime.defaults import LineSession, RuntimeDefaults, host_facts
from proctor.runtime.executable import identify
from proctor.runtime.line_process import LineCount, open_line_process
from proctor.runtime.samples import Samples

ID = RuntimeId("mynah")
PROGRAM, OVERRIDE = "mynah", "PROCTOR_MYNAH"
CAPABILITIES = Capabilities(thread_start=True, event_stream=True)  # declare each one when its case passes


class _Frame(msgspec.Struct):
    """A line from the agent. `number` is unique in a session, so that a repeated line is recognized."""

    type: str
    number: int
    thread: str = ""
    text: str = ""
    call: str = ""
    exit_code: int = 0
    error: str | None = None


def read_frame(line: bytes | msgspec.Raw) -> _Frame | None:
    try:
        return msgspec.json.decode(line, type=_Frame)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class MynahNormalizer:
    """Turns recorded rows into events. Pure: `proctor attempt rederive` must derive the same events again."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._turn = TurnId("0")
        self._commands: dict[str, str] = {}

    def feed(self, row: Row) -> Iterator[model.Event]:
        at: Any = {"frame": row.seq, "at_ms": row.at_ms}
        frame = read_frame(row.frame) if isinstance(row.frame, msgspec.Raw) else None
        if row.dir is Direction.SELF:
            yield supervisor_event(row)
        elif row.dir is Direction.ERR:
            yield model.WarningRaised(source="process", text=row.text or "", channel="stderr", **at)
        elif row.dir is Direction.OUT:
            prompt = msgspec.json.decode(row.frame) if isinstance(row.frame, msgspec.Raw) else {}
            yield model.PromptSent(text=prompt.get("prompt", ""), **at)
        elif frame is None:
            yield model.Unrecognized(native="not a frame", **at)
        elif frame.number in self._numbers:
            yield model.FrameNoted(native=f"repeated {frame.type}", **at)
        else:
            self._numbers.add(frame.number)
            yield self._from_agent(frame, at)

    def _from_agent(self, frame: _Frame, at: Any) -> model.Event:
        call, command = CallId(frame.call), self._commands.get(frame.call, frame.text)
        tool: Any = {"call": call, "kind": "command", "name": "shell", "input": {"command": command}}
        match frame.type:
            case "session":
                return model.SessionBegan(thread=ThreadId(frame.thread), **at)
            case "turn":
                self._turn = TurnId(str(frame.number))
                return model.TurnBegan(turn=self._turn, **at)
            case "text":
                return model.TextSaid(turn=self._turn, item=ItemId(str(frame.number)), text=frame.text, **at)
            case "command":
                self._commands[frame.call] = frame.text
                return model.ToolBegan(turn=self._turn, **tool, **at)
            case "output":
                ended: Any = {"ok": frame.exit_code == 0, "status": "completed", "output": frame.text}
                return model.ToolEnded(turn=self._turn, exit_code=frame.exit_code, **ended, **tool, **at)
            case "end":
                status: Any = "completed" if frame.error is None else "failed"
                return model.TurnEnded(turn=self._turn, status=status, error=frame.error, **at)
            case _:
                return model.Unrecognized(native=frame.type, **at)


class MynahSession(LineSession):
    """One thread of mynah in its own process. Its lines are recorded before `on_line` sees them."""

    id, capabilities = ID, CAPABILITIES

    async def turn(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        await self.send_and_wait(msgspec.json.encode({"prompt": prompt}))

    def on_line(self, line: bytes) -> None:
        frame = read_frame(line)
        if frame is not None and frame.type == "session":
            self.thread = ThreadId(frame.thread)
        if frame is not None and frame.type == "end":
            self.end_turn()


class MynahHost:
    """What the sessions share. It starts no process itself."""

    is_alive = True

    def __init__(self, request: HostRequest) -> None:
        self._request, self._count = request, LineCount()
        self.facts: Mapping[str, Fact] = host_facts(request, CAPABILITIES)

    @property
    def frames_in(self) -> int:
        return self._count.lines

    @asynccontextmanager
    async def open_session(self, request: SessionRequest, tap: Tap) -> AsyncIterator[MynahSession]:
        host, home = self._request, self._request.home / request.attempt
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(error, path=home) from error
        fences = agent_fences(
            request, home=home, program=host.program.path, search_path=host.env.get("PATH", os.defpath)
        )
        session = MynahSession(request, facts={"fences": fences_fact(fences, request, home=home)})
        env = {"HOME": str(home), "MYNAH_BASE_URL": request.model.base_url or "", "MYNAH_MODEL": request.model.name}
        async with open_line_process(
            [host.program.real_path],
            request=host,
            listener=session,
            tap=tap,
            count=self._count,
            env=env,
            cwd=request.workspace,
            fences=fences,
        ) as session.line_process:
            yield session


class Mynah(RuntimeDefaults):
    """Implements `proctor.runtime.base.Runtime`."""

    id, capabilities = ID, CAPABILITIES
    protocol_words = frozenset(_Frame.__struct_fields__) | {"session", "turn", "command", "output", "end", "prompt"}
    reserved_variables = frozenset({"HOME", "MYNAH_BASE_URL", "MYNAH_MODEL"})
    confinement = Confinement.FENCES  # `open_session` starts every agent inside `agent_fences`
    samples = Samples(
        unknown_frame=b'{"type":"unheard-of","number":-1}',
        unknown_request=None,
        is_delta=lambda line: False,
        is_turn_end=lambda line: b'"type": "end"' in line,
        has_deltas=False,
    )

    def locate(self, options: Mapping[str, Any]) -> Executable:
        found = os.environ.get(OVERRIDE) or shutil.which(PROGRAM)
        if found is None:
            what = f"{PROGRAM} was not found on PATH: install it, or set {OVERRIDE} to its file"
            raise MachineError("machine.binary-missing", what)
        return identify(Path(found), source="system-path", install=PROGRAM)

    def normalizer(self) -> Normalizer:
        return MynahNormalizer()

    @asynccontextmanager
    async def open_host(self, request: HostRequest, tap: Tap) -> AsyncIterator[Host]:
        yield MynahHost(request)


RUNTIME: Runtime = Mynah()
