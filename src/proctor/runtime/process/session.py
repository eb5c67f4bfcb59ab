"""A session of a command: one fenced process per turn, with its hand-ins recorded."""

import math
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from proctor.contain.fences import Fences
from proctor.contain.launch import new_marker, wrap
from proctor.errors import InputError, PeerError, RefusedError, disk_error
from proctor.event.message import Message
from proctor.event.row import Direction, FactsLearned, StepTaken
from proctor.fact import Authority, Fact
from proctor.ids import ThreadId, TurnId
from proctor.protocol.hand_in import FEEDBACK_VARIABLE
from proctor.runtime.agent_fences import agent_fences, fences_fact
from proctor.runtime.base import ContextUse, Delivery, HostRequest, SessionRequest, Tap
from proctor.runtime.capability import missing_capability, require_capability
from proctor.runtime.executable import identify, identity_fact
from proctor.runtime.line_process import PLAIN, LineCount, LineProcess, LineRoute, open_line_process
from proctor.runtime.process.capabilities import CAPABILITIES, ID
from proctor.runtime.process.hand_in_server import SOCKET, HandInServer, open_hand_in_server
from proctor.runtime.process.launcher import interpreter_folder, packages, write_launcher
from proctor.runtime.process.normalize import INTERRUPTED, OPENED, STARTED, OpenedDetail, StartedDetail
from proctor.runtime.process.options import Options, read_options
from proctor.runtime.process.result_file import ResultFile
from proctor.spec.choices import SCRIPTED, Sandbox
from proctor.transport.process import StopDeadlines

OWN_VARIABLES: Final = frozenset(
    ("HOME", "TMPDIR", "OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
) | {"PROCTOR_ATTEMPT", "PROCTOR_BIN", "PROCTOR_MODEL", "PROCTOR_PROMPT_FILE", "PROCTOR_RESULT", FEEDBACK_VARIABLE}
"""Variables that this runtime sets itself. PATH is not one: a flow's PATH is kept, after the folder of `proctor`."""
# Its stdin is closed after the prompt, so waiting for the command to notice has no use.
STOP_DEADLINES: Final = StopDeadlines(eof_s=0)
PROMPT_FILE: Final = "prompt.txt"
_OTHER_WAYS: Final = "Write `prompt: stdin` or `prompt: file`."


class ProcessSession:
    """A session of a command. Create it with `open_session`."""

    is_alive = True  # each turn starts a new process

    def __init__(
        self, host: HostRequest, request: SessionRequest, tap: Tap, *, options: Options, home: Path, count: LineCount
    ) -> None:
        self.thread = ThreadId(request.attempt)
        self._host = host
        self._request = request
        self._tap = tap
        self._options = options
        self._home = home
        self._count = count
        self._turns = 0
        self._line_process: LineProcess | None = None
        self._hand_in_server: HandInServer | None = None
        self._env = self._variables()
        self._fences = self._fenced()

    @property
    def facts(self) -> Mapping[str, Fact]:
        return {
            "fences": fences_fact(self._fences, self._request, home=self._home),
            "ownVariables": Fact(
                value=sorted(self._env),
                authority=Authority.OBSERVED,
                source="variables that the runtime sets",
            ),
        }

    @property
    def last_heard_s(self) -> float:
        heard = (each.last_output_s for each in (self._line_process, self._hand_in_server) if each is not None)
        return max(heard, default=self._host.clock.steady_s())

    def start(self) -> None:
        """Record the start of the session. Raises MachineError if the command cannot be started in its fences."""
        argv, env = self._options.argv, {**self._host.env, **self._env}
        fences = self._fences or self._host.hiding
        wrap(self._host.containment, argv, env=env, cwd=self._request.workspace, marker=new_marker(), fences=fences)
        opened = OpenedDetail(thread=self.thread, model=self._request.model.name, cwd=str(self._request.workspace))
        self._tap.record(StepTaken(step=OPENED, detail=msgspec.to_builtins(opened)))
        if self._host.executable is None:
            program = identify(self._request.workspace / argv[0], source="workspace", install="it in the workspace")
            self._tap.record(FactsLearned(facts={"identity": identity_fact(program)}))

    # ── a turn ──

    async def turn(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        if self._line_process is not None:
            raise RefusedError("peer.refused", "a turn is already running")
        said = prompt.encode(errors="backslashreplace")
        self._check_argument(said)
        self._turns += 1
        left = self._left
        before = None if left is None else left.stamp()
        self._tap.record(StepTaken(step=STARTED, detail=msgspec.to_builtins(self._started())))
        try:
            async with open_hand_in_server(
                self._request.tmp, self._tap, clock=self._host.clock
            ) as self._hand_in_server:
                await self._run(said)
        finally:
            self._line_process = self._hand_in_server = None
        if left is not None:
            self._tap.record(left.read(before=before))

    def _check_argument(self, prompt: bytes) -> None:
        """Raise InputError if the prompt is an argument of the command, and cannot be one."""
        most_bytes = self._options.prompt_bytes
        if most_bytes is None:
            return
        if len(prompt) > most_bytes:
            what = f"the prompt has {len(prompt)} bytes, and an argument of the command can hold {most_bytes} of it"
        elif b"\0" in prompt:
            what = "the prompt has a NUL character, which no argument of a command can hold"
        else:
            return
        raise InputError("spec.prompt-argument", what, key=f"options.{ID}.prompt", suggestion=_OTHER_WAYS)

    async def _run(self, prompt: bytes) -> None:
        """Run one process until it has ended and all its output is recorded."""
        async with open_line_process(
            self._options.argv_with(prompt.decode(), file=str(self._written(prompt))),
            request=self._host,
            listener=self,
            tap=self._tap,
            count=self._count,
            env=self._env,
            cwd=self._request.workspace,
            fences=self._fences,
            is_turns_own=True,
            is_text=True,
            is_in_reach=True,
            exit_s=math.inf,
            stop_deadlines=STOP_DEADLINES,
        ) as self._line_process:
            if self._options.prompt == "stdin":
                await self._tell(self._line_process, prompt)
            else:
                self._tap.stage(Direction.OUT, prompt)
                self._tap.commit()
            await self._line_process.end_input()
            await self._line_process.process.wait(deadline_s=math.inf)
            # Its children may hold its output open, so end them. Output that is already in the pipe is still read.
            await self._line_process.process.stop()
            await self._line_process.closed.wait()

    async def _tell(self, line_process: LineProcess, prompt: bytes) -> None:
        try:
            await line_process.send(prompt.removesuffix(b"\n"))
        except PeerError as error:
            # A command may end without reading its prompt.
            self._tap.record(StepTaken(step="prompt not read", detail={"what": error.what}))

    def _written(self, prompt: bytes) -> Path:
        file = self._request.tmp / PROMPT_FILE
        if self._options.prompt == "file":
            try:
                # An earlier turn may have left a link here, and Proctor itself is not fenced.
                file.unlink(missing_ok=True)
                with file.open("xb") as stream:
                    stream.write(prompt)
            except OSError as error:
                raise disk_error(error, path=file) from error
        return file

    async def interrupt(self) -> None:
        if self._line_process is not None and not self._line_process.closed.is_set():
            self._tap.record(StepTaken(step=INTERRUPTED))
            await self._line_process.stop()

    async def settle(self) -> None:
        """Do nothing: a turn's whole process tree ends with it."""

    # ── not supported ──

    async def give(self, messages: Sequence[Message], *, instructions: str | None = None) -> Delivery:
        raise missing_capability("takes_history", runtime_id=ID)

    async def steer(self, text: str) -> None:
        require_capability(CAPABILITIES, "turn_steer", runtime_id=ID)

    async def compact(self) -> None:
        require_capability(CAPABILITIES, "compaction", runtime_id=ID)

    async def read_history(self) -> None:
        raise RefusedError("peer.refused", "a command keeps no history")

    async def read_context(self) -> ContextUse:
        return ContextUse()

    # ── parameters of the process ──

    @property
    def _left(self) -> ResultFile | None:
        """The result file. It is in the temporary folder if the workspace is read-only."""
        if self._options.result.file is None:
            return None
        is_read_only = self._request.sandbox is Sandbox.READ_ONLY
        return ResultFile(self._request.tmp if is_read_only else self._request.workspace, self._options.result.file)

    def _started(self) -> StartedDetail:
        return StartedDetail(
            turn=TurnId(str(self._turns)),
            argv=self._options.argv,
            prompt=self._options.prompt,
            good_exits=self._options.good_exits,
            marker=self._options.result.marker,
        )

    @property
    def _search_path(self) -> str:
        # An empty entry would mean the workspace.
        return self._host.env.get("PATH") or os.defpath

    def _variables(self) -> dict[str, str]:
        model, script = self._request.model, write_launcher(self._home / "bin")
        variables = {
            "HOME": str(self._home),
            "TMPDIR": str(self._request.tmp),
            "PATH": f"{script.parent}:{self._search_path}",
            "PROCTOR_ATTEMPT": self._request.attempt,
            "PROCTOR_BIN": str(script),
            "PROCTOR_MODEL": model.name,
            "PROCTOR_PROMPT_FILE": str(self._request.tmp / PROMPT_FILE) if self._options.prompt == "file" else None,
            "PROCTOR_RESULT": None if self._left is None else str(self._left.path),
            FEEDBACK_VARIABLE: str(self._request.tmp / SOCKET),
            "OPENAI_BASE_URL": model.base_url,
            # Anthropic clients append the version to the path themselves.
            "ANTHROPIC_BASE_URL": None if model.base_url is None else model.base_url.removesuffix("/v1"),
        }
        if model.provider == SCRIPTED:
            # Clients do not start without a key. This one is not a credential.
            variables |= dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), SCRIPTED)
        return {name: value for name, value in variables.items() if value is not None}

    def _fenced(self) -> Fences | None:
        program = self._options.argv[0] if self._host.executable is None else self._host.executable.path
        search_path = f"{self._search_path}:{interpreter_folder()}"
        return agent_fences(
            self._request, home=self._home, program=program, search_path=search_path, readable=packages()
        )

    # ── called by the line process ──

    def route(self, line: bytes) -> LineRoute:
        return PLAIN

    def on_line(self, line: bytes) -> None:
        """Do nothing: output is only recorded."""

    def on_hangup(self, cause: str) -> None:
        """Do nothing: the end of the process is recorded."""


@asynccontextmanager
async def open_session(
    host: HostRequest, request: SessionRequest, tap: Tap, *, count: LineCount
) -> AsyncIterator[ProcessSession]:
    """Open a session with a new home."""
    home = host.home / request.attempt
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, path=home) from error
    session = ProcessSession(host, request, tap, options=read_options(request.options), home=home, count=count)
    session.start()
    try:
        yield session
    finally:
        # Shielded so that a cancelled attempt leaves nothing of its command running; `stop` is bounded by itself.
        with anyio.CancelScope(shield=True):
            await session.interrupt()
