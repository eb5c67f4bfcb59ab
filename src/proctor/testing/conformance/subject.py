"""The subject of the suite: a runtime with its real program and the scripted model, in sessions and campaigns."""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
import msgspec

from proctor.attempt.hold import RecordMode
from proctor.attempt.recheck import examine_run
from proctor.campaign.examine_programs import ProgramExaminer
from proctor.campaign.run import run_campaign
from proctor.campaign.scratch import open_scratch
from proctor.campaign.sessions import Sessions, open_sessions
from proctor.campaign.watch import CampaignWatcher
from proctor.config.load import load_config
from proctor.contain.identity import ProcessIdentity
from proctor.errors import InputError
from proctor.event.model import Event
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import ProcessRecord
from proctor.evidence.layout import AttemptPaths, RootPaths, RunPaths
from proctor.evidence.reader import read_artifact
from proctor.evidence.summary import AttemptSummary
from proctor.ids import AttemptId, FlowId, RunId, RuntimeId
from proctor.runtime.base import Executable, Runtime
from proctor.runtime.proof import subject_of
from proctor.runtime.registry import offers, runtime_by_id
from proctor.runtime.samples import Samples, samples_of
from proctor.spec.choices import Isolation
from proctor.spec.load import LoadedSpec, load_built
from proctor.testing.agent_under_test import AgentUnderTest, open_agent
from proctor.testing.conformance.case import NotApplicableError, UnprovenError, must
from proctor.testing.conformance.processes import spawned, unsettled_intents
from proctor.testing.conformance.stage import STAGES, Stage
from proctor.testing.conformance.wire import Wire
from proctor.transport.channel import Channel
from proctor.transport.fault import LineFault

E = TypeVar("E", bound=Event)
Steps = Sequence[Mapping[str, Any]]

DONE = 'PROCTOR-RESULT: {"done": true, "answer": "shown"}'
"""The text with which an agent claims that it is done."""

_LIMITS = {"stall": "20s", "turn": "25s", "attempt": "28s"}


class _EventWatcher(CampaignWatcher):
    """Stores events and passes each to a callback as it arrives."""

    def __init__(self, tell: Callable[[Event], None] | None) -> None:
        self.events: list[Event] = []
        self._tell = tell

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        self.events.append(event)
        if self._tell is not None:
            self._tell(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissionEvidence:
    """The evidence of one mission."""

    summary: AttemptSummary
    events: list[Event]
    root: Path
    run: RunPaths
    paths: AttemptPaths
    wires: list[Wire]
    agents: list[ProcessIdentity]
    """The agent processes that Proctor communicated with."""

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def must_end(self, outcome: Outcome, *codes: str) -> None:
        """Require this outcome, one of the codes if any are given, and complete evidence."""
        summary = self.summary
        ended = f"the attempt ended as {summary.outcome} ({summary.code}: {summary.detail})"
        must(summary.outcome is outcome and (not codes or summary.code in codes), ended)
        self.must_be_whole()

    def must_be_whole(self) -> None:
        """Require that the evidence is strictly valid and that every delivered line was counted as a frame."""
        checks = examine_run(self.run, is_strict=True)
        findings = [f"{each.name}: {finding.code}: {finding.detail}" for each in checks for finding in each.findings]
        must(not findings, "; ".join(findings[:3]))
        frames_in = sum(read_artifact(each.record, ProcessRecord).frames_in for each in self.run.runtimes())
        delivered = sum(wire.lines_delivered for wire in self.wires)
        must(frames_in == delivered, f"{delivered} lines were delivered, but {frames_in} were counted")

    def has_on_record(self, line: bytes) -> bool:
        """Return whether these bytes are in the frames of the attempt or of its process."""
        files = (self.paths.frames, *(each.frames for each in self.run.runtimes()))
        return any(line in file.read_bytes() for file in files)


@dataclass(slots=True, kw_only=True)
class Subject:
    """One runtime with one transport and one isolation. Made by `open_subject` only."""

    runtime: Runtime
    program: Executable | None
    transport: str
    isolation: Isolation
    folder: Path
    stage: Stage | None
    running: AgentUnderTest | None = None
    """The process that all sessions share; None if each has its own."""
    version: str | None = None
    """The program's version, as far as it is known."""
    _numbers: Any = field(default_factory=lambda: count(1))

    @property
    def options(self) -> dict[str, Any]:
        return {"transport": self.transport} if "transport" in self.runtime.option_names else {}

    @property
    def digest(self) -> str:
        return subject_of(self.runtime, None if self.stage is not None else self.program)

    @property
    def samples(self) -> Samples:
        samples = samples_of(self.runtime) or (None if self.stage is None else self.stage.samples)
        if samples is None and not self.is_protocol:
            raise NotApplicableError("the program writes plain text: its lines cannot be classified")
        if samples is None:
            raise NotApplicableError("the runtime provides no samples of its lines")
        return samples

    @property
    def is_protocol(self) -> bool:
        """Whether the agent's lines are protocol messages, which can be invalid or unknown."""
        return self.stage is None or self.stage.samples is not None

    @property
    def has_calls(self) -> bool:
        """Whether tool calls are visible in the agent's output."""
        return self.stage is None or self.stage.has_calls

    @property
    def has_process(self) -> bool:
        return self.stage is None or self.stage.has_process

    @property
    def can_share(self) -> bool:
        """Whether two sessions can share one process."""
        return self.runtime.capabilities.parallel_sessions and self.isolation is Isolation.SHARED

    @asynccontextmanager
    async def agent(self, *, is_own: bool = False, plan: Sequence[LineFault] = ()) -> AsyncIterator[AgentUnderTest]:
        """Yield an agent for sessions: the shared one if it is alive, otherwise a new one.

        `is_own` always starts a new one. `plan` lists faults, and applies only to a new one.
        """
        if self.running is not None and self.running.host.is_alive and not is_own:
            yield self.running
            return
        staged = None if self.stage is None else self.stage.options
        ask: dict[str, Any] = {"wrap_channel": lambda channel: Wire(channel, plan)} if plan else {}
        async with open_agent(self.runtime, self.program, staged=staged, options=self.options, **ask) as agent:
            if (version := agent.host.facts.get("version")) is not None:
                self.version = str(version.value)
            yield agent

    def heard(self, agent: AgentUnderTest, name: str) -> tuple[str, ...]:
        """Return the texts in the last request to a session's model, or what the agent received if it uses no model."""
        if self.stage is not None:
            return self.stage.heard(agent.folder / name)
        return agent.model.journal(name)[-1].texts

    async def mission(
        self,
        *steps: Mapping[str, Any],
        prompt: str = "Go on.",
        plan: Sequence[LineFault] = (),
        tell: Callable[[Event], None] | None = None,
        limits: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        **top: Any,
    ) -> MissionEvidence:
        """Run the steps as a campaign of one mission and return its evidence. `plan` lists faults in the agent's lines.

        Raises NotApplicableError if faults cannot be injected or a fault matched no line, and UnprovenError if the
        attempt was not sealed.
        """
        folder = self.folder / f"mission-{next(self._numbers)}"
        folder.mkdir()
        watcher, wires, agents = _EventWatcher(tell), list[Wire](), list[ProcessIdentity]()

        def between(_: FlowId, channel: Channel) -> Channel:
            wires.append(Wire(channel, plan))
            agents.extend(spawned(but=before))
            return wires[-1]

        root = folder / "evidence"
        limits = {**_LIMITS, **(limits or {})}
        loaded = await self._loaded(steps, folder=folder, prompt=prompt, limits=limits, options=options or {}, **top)
        before = set(unsettled_intents())
        done = await run_campaign(loaded, root=root, watcher=watcher, between=between)
        if done.failure is not None:
            raise done.failure
        [attempt] = done.attempts
        if attempt.summary is None:
            raise UnprovenError(f"the attempt was not sealed: {attempt.error}")
        if not wires:
            raise NotApplicableError("faults cannot be injected between this agent and Proctor")
        if not any(wire.has_broken for wire in wires):
            raise NotApplicableError("the agent wrote no line that the planned fault applies to")
        run = RootPaths(root).run(done.run_id)
        [paths] = run.attempts()
        return MissionEvidence(
            summary=attempt.summary,
            events=watcher.events,
            root=root,
            run=run,
            paths=paths,
            wires=wires,
            agents=agents,
        )

    @asynccontextmanager
    async def conversations(self, *steps: Mapping[str, Any], approvals: str = "deny") -> AsyncIterator[Sessions]:
        """Open sessions as a user of the library does, who may request capabilities that the runtime lacks."""
        folder = self.folder / f"conversation-{next(self._numbers)}"
        folder.mkdir()
        loaded = await self._loaded(steps, folder=folder, prompt="A conversation.", limits=_LIMITS, approvals=approvals)
        async with open_sessions(loaded, root=folder, keep=RecordMode.DISK) as sessions:
            yield sessions

    async def loaded(self, *steps: Mapping[str, Any], approvals: str = "deny") -> LoadedSpec:
        """Return a loaded spec for one conversation with these steps."""
        folder = self.folder / f"wish-{next(self._numbers)}"
        folder.mkdir()
        return await self._loaded(steps, folder=folder, prompt="A conversation.", limits=_LIMITS, approvals=approvals)

    async def _loaded(
        self,
        steps: Steps,
        *,
        folder: Path,
        prompt: str,
        limits: Mapping[str, str],
        approvals: str = "deny",
        options: Mapping[str, Any] | None = None,
        **top: Any,
    ) -> LoadedSpec:
        script = folder / "script.yaml"
        script.write_bytes(msgspec.json.encode({"version": 1, "steps": steps}))
        staged = {} if self.stage is None else await self.stage.options(steps, prompt=prompt, folder=folder, **top)
        flow: dict[str, Any] = {
            "id": "flow",
            "runtime": [self.runtime.id],
            "isolation": self.isolation.value,
            "approvals": approvals,
            "options": {self.runtime.id: {**self.options, **staged, **(options or {})}},
        }
        mission = {"id": "mission", "prompt": prompt, "script": str(script)}
        spec = {
            "version": 1,
            "campaign": "conformance",
            "missions": [mission],
            "flows": [flow],
            "limits": dict(limits),
            "schedule": {"retries": 0},  # exactly one attempt is examined
        }
        # The spec names no relative paths; the folder only determines which settings file is used.
        return load_built({**spec, **top}, name="conformance", folder=self.folder)


def isolations_of(runtime: Runtime) -> tuple[Isolation, ...]:
    """Return the isolations that the runtime supports, the default first."""
    return (Isolation.SHARED, Isolation.PROCESS) if runtime.capabilities.parallel_sessions else (Isolation.PROCESS,)


@asynccontextmanager
async def open_subject(
    runtime_id: str, *, transport: str | None = None, isolation: str | None = None, stage: Stage | None = None
) -> AsyncIterator[Subject]:
    """Locate a runtime and its program. Defaults: its first transport, and shared isolation if it is declared.

    Raises InputError if the runtime, transport or isolation is not available, and MachineError if there is no program.
    """
    runtime = runtime_by_id(RuntimeId(runtime_id))
    if transport is not None and transport not in runtime.transports:
        known = ", ".join(runtime.transports)
        raise InputError("usage", f"{runtime_id} does not support the transport {transport!r}; supported: {known}")
    possible = isolations_of(runtime)
    if isolation is not None and isolation not in possible:
        what = f"{runtime_id} cannot run several sessions at once, which isolation {isolation!r} needs"
        raise InputError("usage", what)
    stage = stage or STAGES.get(runtime.id)
    with open_scratch(RunId(f"conformance-{secrets.token_hex(4)}"), is_kept=False) as folder:
        has_program = stage is None or stage.has_process
        options = {} if stage is None or not has_program else await stage.options([], prompt="", folder=folder)
        # In a thread, because it hashes the program.
        await anyio.to_thread.run_sync(_write_config, folder)
        located = await anyio.to_thread.run_sync(partial(runtime.locate, options)) if has_program else None
        program = await ProgramExaminer().examine(runtime, located)
        yield Subject(
            runtime=runtime,
            program=program,
            transport=transport or runtime.transports[0],
            isolation=possible[0] if isolation is None else Isolation(isolation),
            folder=folder,
            stage=stage,
            version=None if program is None else program.version,
        )


def _write_config(folder: Path) -> None:
    """Write a config that names the same plugins. It requires no proof, which is only made here."""
    plugins = load_config(Path.cwd()).plugins
    required = "".join(f'[rollout."{name}"]\nrequires = "declared"\n' for name in offers())
    text = f"plugins = {msgspec.json.encode(plugins).decode()}\n{required}"
    (folder / "proctor.toml").write_text(text, encoding="utf-8")
