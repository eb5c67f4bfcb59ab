"""One attempt of a command: a process a turn, fenced in, and whatever it hands in on record."""

import math
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from proctor.contain.fences import Fences
from proctor.contain.launch import new_marker, wrap
from proctor.errors import PeerError, RefusedError, disk_refusal
from proctor.event.row import Dir, FactsLearned, StepTaken
from proctor.fact import Authority, Fact
from proctor.ids import ThreadId, TurnId
from proctor.protocol.handing_in import FEEDBACK_VARIABLE
from proctor.runtime.base import HostAsk, SessionAsk, Tap
from proctor.runtime.capability import demand
from proctor.runtime.executable import identify, identity_fact
from proctor.runtime.fenced import agent_fences, fences_fact
from proctor.runtime.process.claims import CLAIMS, ID
from proctor.runtime.process.desk import SOCKET, Desk, open_desk
from proctor.runtime.process.launcher import interpreter_folder, packages, write_launcher
from proctor.runtime.process.left import Place
from proctor.runtime.process.normalize import INTERRUPTED, OPENED, STARTED, Opened, Started
from proctor.runtime.process.options import Options, read_options
from proctor.runtime.talk import PLAIN, Count, Routed, Talk, open_talk
from proctor.spec.model import SCRIPTED, Sandbox
from proctor.transport.process import Patience

OWN_VARIABLES: Final = frozenset(
    ("HOME", "TMPDIR", "OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
) | {"PROCTOR_ATTEMPT", "PROCTOR_BIN", "PROCTOR_MODEL", "PROCTOR_PROMPT_FILE", "PROCTOR_RESULT", FEEDBACK_VARIABLE}
"""Variables that this runtime sets itself. Not PATH: a flow's own stays, behind the folder that `proctor` is in."""
# Its stdin is closed when it has the prompt, so that nothing is gained by waiting for it to notice.
PATIENCE: Final = Patience(eof_s=0)
PROMPT_FILE: Final = "prompt.txt"


class ProcessSession:
    """Made by `open_session` only."""

    is_alive = True  # each turn has a process of its own

    def __init__(self, host: HostAsk, ask: SessionAsk, tap: Tap, *, options: Options, home: Path, count: Count) -> None:
        self.thread = ThreadId(ask.attempt)
        self._host = host
        self._ask = ask
        self._tap = tap
        self._options = options
        self._home = home
        self._count = count
        self._turns = 0
        self._talk: Talk | None = None
        self._desk: Desk | None = None
        self._env = self._variables()
        self._fences = self._fenced()

    @property
    def session_id(self) -> str:
        return f"{self._ask.attempt}/{self.thread}"

    @property
    def facts(self) -> Mapping[str, Fact]:
        return {
            "fences": fences_fact(self._fences, self._ask, home=self._home),
            "ownVariables": Fact(
                value=sorted(self._env),
                authority=Authority.OBSERVED,
                source="what its runtime sets itself",
            ),
        }

    @property
    def last_heard_s(self) -> float:
        heard = (each.heard_s for each in (self._talk, self._desk) if each is not None)
        return max(heard, default=self._host.clock.steady_s())

    def start(self) -> None:
        """MachineError where it could not be started like this."""
        argv, env = self._options.argv, {**self._host.env, **self._env}
        wrap(self._host.containment, argv, env=env, cwd=self._ask.workspace, marker=new_marker(), fences=self._fences)
        opened = Opened(thread=self.thread, model=self._ask.model.name, cwd=str(self._ask.workspace))
        self._tap.say(StepTaken(step=OPENED, detail=msgspec.to_builtins(opened)))
        if self._host.executable is None:
            program = identify(self._ask.workspace / argv[0], source="workspace", install="it in the workspace")
            self._tap.say(FactsLearned(facts={"identity": identity_fact(program)}))

    # ── a turn ──

    async def turn(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        if self._talk is not None:
            raise RefusedError("peer.refused", "a turn runs already")
        self._turns += 1
        left = self._left
        before = None if left is None else left.stamp()
        said = prompt.encode(errors="backslashreplace")
        self._tap.say(StepTaken(step=STARTED, detail=msgspec.to_builtins(self._started())))
        try:
            async with open_desk(self._ask.tmp, self._tap, clock=self._host.clock) as self._desk:
                await self._run(said)
        finally:
            self._talk = self._desk = None
        if left is not None:
            self._tap.say(left.read(before=before))

    async def _run(self, prompt: bytes) -> None:
        """One process, until it has ended and all it said is heard."""
        async with open_talk(
            self._options.argv_with(prompt.decode(), file=str(self._written(prompt))),
            ask=self._host,
            listener=self,
            tap=self._tap,
            count=self._count,
            env=self._env,
            cwd=self._ask.workspace,
            fences=self._fences,
            is_turns_own=True,
            is_text=True,
            exit_s=math.inf,
            patience=PATIENCE,
        ) as self._talk:
            if self._options.prompt == "stdin":
                await self._tell(self._talk, prompt)
            else:
                self._tap.stage(Dir.OUT, prompt)
                self._tap.commit()
            await self._talk.end_input()
            await self._talk.process.wait(deadline_s=math.inf)
            # What it left running may hold its output open, and ends with it. What it said is in the pipe all the same.
            await self._talk.process.stop()
            await self._talk.closed.wait()

    async def _tell(self, talk: Talk, prompt: bytes) -> None:
        try:
            await talk.say(prompt.removesuffix(b"\n"))
        except PeerError as error:
            # A command may well end without reading what it was given.
            self._tap.say(StepTaken(step="prompt not read", detail={"what": error.what}))

    def _written(self, prompt: bytes) -> Path:
        file = self._ask.tmp / PROMPT_FILE
        if self._options.prompt == "file":
            try:
                # An earlier turn may have left a link in its place, and nothing fences us in.
                file.unlink(missing_ok=True)
                with file.open("xb") as stream:
                    stream.write(prompt)
            except OSError as error:
                raise disk_refusal(error, path=file) from error
        return file

    async def interrupt(self) -> None:
        if self._talk is not None and not self._talk.closed.is_set():
            self._tap.say(StepTaken(step=INTERRUPTED))
            await self._talk.stop()

    async def settle(self) -> None:
        """Nothing outlives a turn: its whole tree ends with it."""

    # ── what a command cannot ──

    async def steer(self, text: str) -> None:
        demand(CLAIMS, "turn_steer", strategy=ID)

    async def compact(self) -> None:
        demand(CLAIMS, "compaction", strategy=ID)

    async def read_history(self) -> None:
        raise RefusedError("peer.refused", "a command keeps no history")

    # ── what it is started with ──

    @property
    def _left(self) -> Place | None:
        """Where its result will lie: a workspace that it may not write to cannot hold it."""
        if self._options.result.file is None:
            return None
        is_read_only = self._ask.sandbox is Sandbox.READ_ONLY
        return Place(self._ask.tmp if is_read_only else self._ask.workspace, self._options.result.file)

    def _started(self) -> Started:
        return Started(
            turn=TurnId(str(self._turns)),
            argv=self._options.argv,
            prompt=self._options.prompt,
            good_exits=self._options.good_exits,
            marker=self._options.result.marker,
        )

    @property
    def _search_path(self) -> str:
        # An empty part of it would be the workspace.
        return self._host.env.get("PATH") or os.defpath

    def _variables(self) -> dict[str, str]:
        model, script = self._ask.model, write_launcher(self._home / "bin")
        variables = {
            "HOME": str(self._home),
            "TMPDIR": str(self._ask.tmp),
            "PATH": f"{script.parent}:{self._search_path}",
            "PROCTOR_ATTEMPT": self._ask.attempt,
            "PROCTOR_BIN": str(script),
            "PROCTOR_MODEL": model.name,
            "PROCTOR_PROMPT_FILE": str(self._ask.tmp / PROMPT_FILE) if self._options.prompt == "file" else None,
            "PROCTOR_RESULT": None if self._left is None else str(self._left.path),
            FEEDBACK_VARIABLE: str(self._ask.tmp / SOCKET),
            "OPENAI_BASE_URL": model.base_url,
            # Its clients add the version to the path themselves.
            "ANTHROPIC_BASE_URL": None if model.base_url is None else model.base_url.removesuffix("/v1"),
        }
        if model.provider == SCRIPTED:
            # Clients will not start without one, and this one opens nothing.
            variables |= dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), SCRIPTED)
        return {name: value for name, value in variables.items() if value is not None}

    def _fenced(self) -> Fences | None:
        program = self._options.argv[0] if self._host.executable is None else self._host.executable.path
        search_path = f"{self._search_path}:{interpreter_folder()}"
        return agent_fences(self._ask, home=self._home, program=program, search_path=search_path, readable=packages())

    # ── what the talk tells ──

    def route(self, line: bytes) -> Routed:
        return PLAIN

    def heard(self, line: bytes) -> None:
        """Its words are for the record; nothing is done because of them."""

    def hung_up(self, cause: str) -> None:
        """How it ended is on record."""


@asynccontextmanager
async def open_session(host: HostAsk, ask: SessionAsk, tap: Tap, *, count: Count) -> AsyncIterator[ProcessSession]:
    """In a home of its own."""
    home = host.home / ask.attempt
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise disk_refusal(error, path=home) from error
    session = ProcessSession(host, ask, tap, options=read_options(ask.options), home=home, count=count)
    session.start()
    try:
        yield session
    finally:
        # Shielded so that a cancelled attempt leaves nothing of its command running; `stop` is bounded by itself.
        with anyio.CancelScope(shield=True):
            await session.interrupt()
