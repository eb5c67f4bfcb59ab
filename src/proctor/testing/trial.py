"""An agent on trial: its real program beside the scripted model, offline, and sessions whose events are kept."""

import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from proctor import places
from proctor.campaign.scratch import open_scratch
from proctor.clock import SYSTEM_CLOCK
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import open_intents
from proctor.contain.ladder import choose, survey
from proctor.errors import MachineError
from proctor.event.model import Event
from proctor.event.row import GENESIS, Dir, Row, Seen
from proctor.evidence.redact import TextStream
from proctor.ids import AttemptId, ProcessId, RunId
from proctor.model.script import Script
from proctor.runtime.base import Executable, Host, HostAsk, ModelAsk, Normalizer, Runtime, Session, SessionAsk
from proctor.runtime.environment import agent_environment
from proctor.spec.model import Approvals, Sandbox

if TYPE_CHECKING:
    from proctor.model.server import ScriptedModel

E = TypeVar("E", bound=Event)
_MODEL = "scripted"


class Staged(Protocol):
    """Options with which an agent that asks no model does what these steps say; `folder` is its session's own."""

    def __call__(
        self, steps: Sequence[Mapping[str, Any]], *, prompt: str, folder: Path
    ) -> Awaitable[Mapping[str, Any]]: ...


class EventTap:
    """A record in memory: what is said becomes events and is forgotten."""

    def __init__(self, normalizer: Normalizer) -> None:
        self.events: list[Event] = []
        self._normalizer = normalizer
        self._rows: list[Row] = []
        self._seq = 0

    def stage(self, dir_: Dir, data: bytes, *, stream: TextStream | None = None) -> None:
        try:
            msgspec.json.decode(data)
            self._add(dir_, frame=msgspec.Raw(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._add(dir_, text=data.decode(errors="replace"))

    def commit(self) -> None:
        rows, self._rows = self._rows, []
        for row in rows:
            self.events += self._normalizer.feed(row)

    def say(self, seen: Seen) -> None:
        self._add(Dir.SELF, frame=msgspec.Raw(msgspec.json.encode(seen)))
        self.commit()

    def release(self, key_prefix: str) -> None:
        """Nothing is held back here."""

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def _add(self, dir_: Dir, **said: Any) -> None:
        self._seq += 1
        self._rows.append(Row(seq=self._seq, at_ms=SYSTEM_CLOCK.wall_ms(), dir=dir_, prev=GENESIS, **said))


@dataclass(slots=True, kw_only=True)
class Trial:
    """One running agent process."""

    runtime: Runtime
    host: Host
    model: "ScriptedModel"
    folder: Path
    options: Mapping[str, Any]
    staged: Staged | None = None

    def workspace(self, name: str) -> Path:
        """Of the session of that name."""
        return self.folder / name / "workspace"

    @asynccontextmanager
    async def session(
        self, *steps: Mapping[str, Any], name: str, prompt: str = "Go on.", **ask: Any
    ) -> AsyncIterator[tuple[Session, EventTap]]:
        """Whose model plays these steps; `name` is also where its journal is found.

        `prompt` is what it will be asked, for an agent on a stage, which may have to know.
        """
        script = msgspec.convert({"version": 1, "steps": list(steps)}, Script)
        tap = EventTap(self.runtime.normalizer())
        staged = {} if self.staged is None else await self.staged(steps, prompt=prompt, folder=self.folder / name)
        ask = {"options": {**self.options, **staged}, **ask}
        asked = session_asked(self.folder, name=name, base_url=self.model.play(name, script), **ask)
        async with self.host.open_session(asked, tap) as session:
            yield session, tap


def session_asked(folder: Path, *, name: str, base_url: str, **ask: Any) -> SessionAsk:
    """A session in its own places below the folder, which are made; it may do little."""
    workspace, tmp = folder / name / "workspace", folder / name / "tmp"
    for place in (workspace, tmp):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole: dict[str, Any] = {
        "attempt": AttemptId(name),
        "workspace": workspace,
        "tmp": tmp,
        "sandbox": Sandbox.WORKSPACE_WRITE,
        "approvals": Approvals.DENY,
        "model": ModelAsk(provider=_MODEL, name=_MODEL, base_url=base_url),
    }
    return SessionAsk(**{**whole, **ask})


@asynccontextmanager
async def host_asked(folder: Path, *, name: str, program: Executable | None, **ask: Any) -> AsyncIterator[HostAsk]:
    """A process of the program, contained, with its home below the folder and a scripted model."""
    whole: dict[str, Any] = {
        "process": ProcessId(name),
        "executable": program,
        "home": folder / "home",
        "tmp": folder / "process-tmp",
        "env": agent_environment(os.environ, env={}).values,
        "containment": choose(survey(bundled_bwrap=bundled_bwrap())),
        "clock": SYSTEM_CLOCK,
        "model": ModelAsk(provider=_MODEL, name=_MODEL, base_url="http://127.0.0.1:1/v1"),
    }
    async with open_intents(places.state_dir() / "spawns") as intents:
        yield HostAsk(**{**whole, **ask}, intents=intents)


@asynccontextmanager
async def open_trial(
    runtime: Runtime, program: Executable | None, *, staged: Staged | None = None, **ask: Any
) -> AsyncIterator[Trial]:
    """Contained, in a scratch folder of its own; nothing of it is left. `ask` is what else to say in the HostAsk."""
    try:
        # Imported when used: a web server is a heavy thing to start with.
        from proctor.model.server import open_model
    except ModuleNotFoundError as error:
        raise MachineError("machine.extra-missing", f"no {error.name}: install 'proctor[model]'") from error
    name = f"trial-{secrets.token_hex(4)}"
    with open_scratch(RunId(name), is_kept=False) as folder:
        async with (
            open_model() as model,
            host_asked(folder, name=name, program=program, **ask) as asked,
            runtime.open_host(asked, EventTap(runtime.normalizer())) as host,
        ):
            yield Trial(runtime=runtime, host=host, model=model, folder=folder, options=asked.options, staged=staged)
