"""Run a real agent program with the scripted model, offline, in sessions whose events are kept in memory."""

import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from proctor import decoding, places
from proctor.campaign.scratch import open_scratch
from proctor.clock import SYSTEM_CLOCK
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import open_intents
from proctor.contain.ladder import choose, survey
from proctor.errors import extra_missing
from proctor.event.model import Event
from proctor.event.row import GENESIS, Direction, Row, SupervisorRow
from proctor.evidence.redact import TextStream
from proctor.ids import AttemptId, ProcessId, RunId
from proctor.model.dialects import load_dialects
from proctor.model.script import Script
from proctor.runtime.base import (
    Executable,
    Host,
    HostRequest,
    ModelChoice,
    Normalizer,
    Runtime,
    Session,
    SessionRequest,
)
from proctor.runtime.environment import agent_environment
from proctor.spec.choices import Approvals, Sandbox
from proctor.testing.journals import TEXT_BYTES

if TYPE_CHECKING:
    from proctor.model.server import ScriptedModel

E = TypeVar("E", bound=Event)
_MODEL = "scripted"


class StageOptions(Protocol):
    """Returns flow options with which an agent that uses no model carries out the steps. `folder` is per session."""

    def __call__(
        self, steps: Sequence[Mapping[str, Any]], *, prompt: str, folder: Path
    ) -> Awaitable[Mapping[str, Any]]: ...


class EventTap:
    """A tap that turns recorded rows into events in memory and keeps only the events."""

    def __init__(self, normalizer: Normalizer) -> None:
        self.events: list[Event] = []
        self._normalizer = normalizer
        self._rows: list[Row] = []
        self._seq = 0

    def stage(self, dir_: Direction, data: bytes, *, stream: TextStream | None = None) -> None:
        try:
            decoding.decode(data)
            self._add(dir_, frame=msgspec.Raw(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._add(dir_, text=data.decode(errors="replace"))

    def commit(self) -> None:
        rows, self._rows = self._rows, []
        for row in rows:
            self.events += self._normalizer.feed(row)

    def record(self, seen: SupervisorRow) -> None:
        self._add(Direction.SELF, frame=msgspec.Raw(msgspec.json.encode(seen)))
        self.commit()

    def release(self, key_prefix: str) -> None:
        """Do nothing: this tap holds no text back."""

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def _add(self, dir_: Direction, **said: Any) -> None:
        self._seq += 1
        self._rows.append(Row(seq=self._seq, at_ms=SYSTEM_CLOCK.wall_ms(), dir=dir_, prev=GENESIS, **said))


@dataclass(slots=True, kw_only=True)
class AgentUnderTest:
    """One running agent process."""

    runtime: Runtime
    host: Host
    model: "ScriptedModel"
    folder: Path
    options: Mapping[str, Any]
    staged: StageOptions | None = None

    def workspace(self, name: str) -> Path:
        """Return the workspace of the session with that name."""
        return self.folder / name / "workspace"

    @asynccontextmanager
    async def session(
        self, *steps: Mapping[str, Any], name: str, prompt: str = "Go on.", **ask: Any
    ) -> AsyncIterator[tuple[Session, EventTap]]:
        """Open a session whose model plays these steps. `name` is also the key of the model's journal.

        `prompt` is the prompt of the first turn, which a stage may need in advance. `ask` are further fields of the
        SessionRequest.
        """
        script = decoding.convert({"version": 1, "steps": list(steps)}, Script)
        tap = EventTap(self.runtime.normalizer())
        staged = {} if self.staged is None else await self.staged(steps, prompt=prompt, folder=self.folder / name)
        ask = {"options": {**self.options, **staged}, **ask}
        base_url = self.model.play(name, script, runtime_id=self.runtime.id)
        asked = session_asked(self.folder, name=name, base_url=base_url, **ask)
        async with self.host.open_session(asked, tap) as session:
            yield session, tap


def session_asked(folder: Path, *, name: str, base_url: str, **ask: Any) -> SessionRequest:
    """Return a session request with few permissions. Creates its workspace and temporary folder below `folder`."""
    workspace, tmp = folder / name / "workspace", folder / name / "tmp"
    for place in (workspace, tmp):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole: dict[str, Any] = {
        "attempt": AttemptId(name),
        "workspace": workspace,
        "tmp": tmp,
        "sandbox": Sandbox.WORKSPACE_WRITE,
        "approvals": Approvals.DENY,
        "model": ModelChoice(provider=_MODEL, name=_MODEL, base_url=base_url),
    }
    return SessionRequest(**{**whole, **ask})


@asynccontextmanager
async def host_asked(folder: Path, *, name: str, program: Executable | None, **ask: Any) -> AsyncIterator[HostRequest]:
    """Yield a request for a contained process of the program, with its home below `folder` and a scripted model."""
    whole: dict[str, Any] = {
        "process": ProcessId(name),
        "executable": program,
        "home": folder / "home",
        "tmp": folder / "process-tmp",
        "env": agent_environment(os.environ, env={}).values,
        "containment": choose(survey(bundled_bwrap=bundled_bwrap())),
        "clock": SYSTEM_CLOCK,
        "model": ModelChoice(provider=_MODEL, name=_MODEL, base_url="http://127.0.0.1:1/v1"),
    }
    async with open_intents(places.spawns_dir()) as intents:
        yield HostRequest(**{**whole, **ask}, intents=intents)


@asynccontextmanager
async def open_agent(
    runtime: Runtime, program: Executable | None, *, staged: StageOptions | None = None, **ask: Any
) -> AsyncIterator[AgentUnderTest]:
    """Start an agent, contained, in a scratch folder that is removed at the end.

    `ask` are further fields of the HostRequest. Raises MachineError if the `model` extra is not installed.
    """
    try:
        # Imported when used, because a web server is slow to import.
        from proctor.model.server import open_model
    except ModuleNotFoundError as error:
        raise extra_missing(error, extra="model") from error
    name = f"agent-{secrets.token_hex(4)}"
    with open_scratch(RunId(name), is_kept=False) as folder:
        async with (
            open_model(dialects=load_dialects(), text_bytes=TEXT_BYTES) as model,
            host_asked(folder, name=name, program=program, **ask) as asked,
            runtime.open_host(asked, EventTap(runtime.normalizer())) as host,
        ):
            yield AgentUnderTest(
                runtime=runtime, host=host, model=model, folder=folder, options=asked.options, staged=staged
            )
