"""A runtime put to the suite: its real program beside the scripted model, in sessions and in whole campaigns."""

import hashlib
import inspect
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

from proctor.attempt.hold import Keep
from proctor.attempt.recheck import examine_run
from proctor.campaign.run import run_campaign
from proctor.campaign.scratch import open_scratch
from proctor.campaign.sessions import Sessions, open_sessions
from proctor.campaign.watch import CampaignWatcher
from proctor.contain.identity import Identity
from proctor.errors import InputError
from proctor.event.model import Event
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import AttemptReport, ProcessRecord
from proctor.evidence.layout import AttemptPaths, RootPaths, RunPaths
from proctor.evidence.reader import read_artifact
from proctor.ids import AttemptId, FlowId, RunId, StrategyId
from proctor.runtime.base import Executable, Runtime
from proctor.runtime.registry import runtime_by_id
from proctor.runtime.samples import Samples, samples_of
from proctor.spec.load import LoadedSpec, load_built
from proctor.spec.model import Isolation
from proctor.testing.conformance.case import NotApplicableError, UnprovenError, must
from proctor.testing.conformance.look import booked, spawned
from proctor.testing.conformance.stage import STAGES, Stage
from proctor.testing.conformance.wire import Wire
from proctor.testing.trial import Trial, open_trial
from proctor.transport.channel import Channel
from proctor.transport.fault import Break

E = TypeVar("E", bound=Event)
Steps = Sequence[Mapping[str, Any]]

DONE = 'PROCTOR-RESULT: {"done": true, "answer": "shown"}'
"""With these words an agent claims to be done."""

_LIMITS = {"stall": "20s", "turn": "25s", "attempt": "28s"}


class _Seeing(CampaignWatcher):
    """Keeps events, and tells somebody of each as it comes."""

    def __init__(self, tell: Callable[[Event], None] | None) -> None:
        self.events: list[Event] = []
        self._tell = tell

    def saw(self, attempt: AttemptId, event: Event) -> None:
        self.events.append(event)
        if self._tell is not None:
            self._tell(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one mission left."""

    report: AttemptReport
    events: list[Event]
    root: Path
    run: RunPaths
    paths: AttemptPaths
    wires: list[Wire]
    agents: list[Identity]
    """The processes that were talked to."""

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def must_end(self, outcome: Outcome, *codes: str) -> None:
        """As that, with one of these codes, and with a record of it that is whole."""
        report = self.report
        ended = f"it ended as {report.outcome} ({report.code}: {report.detail})"
        must(report.outcome is outcome and (not codes or report.code in codes), ended)
        self.must_be_whole()

    def must_be_whole(self) -> None:
        """Valid in every way we know, and with every line that came through counted: frames in = attempt + process."""
        found = examine_run(self.run, is_strict=True)
        problems = [f"{each.name}: {problem.code}: {problem.detail}" for each in found for problem in each.problems]
        must(not problems, "; ".join(problems[:3]))
        frames_in = sum(read_artifact(each.record, ProcessRecord).frames_in for each in self.run.runtimes())
        told = sum(wire.lines_told for wire in self.wires)
        must(frames_in == told, f"{told} lines were told, and {frames_in} counted")

    def has_on_record(self, line: bytes) -> bool:
        """Whether that is among the frames, of the attempt or of its process."""
        files = (self.paths.frames, *(each.frames for each in self.run.runtimes()))
        return any(line in file.read_bytes() for file in files)


@dataclass(slots=True, kw_only=True)
class Subject:
    """One runtime, one way to talk to it, one isolation. Made by `open_subject` only."""

    runtime: Runtime
    program: Executable | None
    transport: str
    isolation: Isolation
    folder: Path
    stage: Stage | None
    running: Trial | None = None
    """The process that all sessions share, where they do."""
    version: str | None = None
    """As the program says it, when it has run."""
    _numbers: Any = field(default_factory=lambda: count(1))

    @property
    def options(self) -> dict[str, Any]:
        return {"transport": self.transport} if "transport" in self.runtime.option_names else {}

    @property
    def digest(self) -> str:
        return digest_of(self.runtime, None if self.stage is not None else self.program)

    @property
    def samples(self) -> Samples:
        samples = samples_of(self.runtime) or (None if self.stage is None else self.stage.samples)
        if samples is None and not self.is_protocol:
            raise NotApplicableError("its lines are its words: none is known from another")
        if samples is None:
            raise NotApplicableError("the runtime gives no samples of its lines")
        return samples

    @property
    def is_protocol(self) -> bool:
        """Whether its lines are messages, so that one can be wrong or unknown."""
        return self.stage is None or self.stage.samples is not None

    @property
    def has_calls(self) -> bool:
        """Whether calls of tools are seen in its lines."""
        return self.stage is None or self.stage.has_calls

    @property
    def has_process(self) -> bool:
        return self.stage is None or self.stage.has_process

    @property
    def can_share(self) -> bool:
        """Whether two sessions may have one process."""
        return self.runtime.claims.parallel_sessions and self.isolation is Isolation.SHARED

    @asynccontextmanager
    async def trial(self, *, is_own: bool = False, plan: Sequence[Break] = ()) -> AsyncIterator[Trial]:
        """An agent for sessions: the one that all share, unless it has died, or a new one. `plan` is for its own."""
        if self.running is not None and self.running.host.is_alive and not is_own:
            yield self.running
            return
        staged = None if self.stage is None else self.stage.options
        ask: dict[str, Any] = {"between": lambda channel: Wire(channel, plan)} if plan else {}
        async with open_trial(self.runtime, self.program, staged=staged, options=self.options, **ask) as trial:
            if (version := trial.host.facts.get("version")) is not None:
                self.version = str(version.value)
            yield trial

    def heard(self, trial: Trial, name: str) -> tuple[str, ...]:
        """What a session's model was told last; of an agent that asks none, what it was told itself."""
        if self.stage is not None:
            return self.stage.heard(trial.folder / name)
        return trial.model.journal(name)[-1].heard

    async def mission(
        self,
        *steps: Mapping[str, Any],
        prompt: str = "Go on.",
        plan: Sequence[Break] = (),
        tell: Callable[[Event], None] | None = None,
        limits: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        **top: Any,
    ) -> Kept:
        """The steps as a campaign of one mission, with all its evidence. `plan` is what happens to the agent's lines.

        NotApplicableError where nothing could be put between the agent and us, or no line was one that the plan breaks.
        """
        folder = self.folder / f"mission-{next(self._numbers)}"
        folder.mkdir()
        watcher, wires, agents = _Seeing(tell), list[Wire](), list[Identity]()

        def between(_: FlowId, channel: Channel) -> Channel:
            wires.append(Wire(channel, plan))
            agents.extend(spawned(but=before))
            return wires[-1]

        root = folder / "evidence"
        limits = {**_LIMITS, **(limits or {})}
        loaded = await self._loaded(steps, folder=folder, prompt=prompt, limits=limits, options=options or {}, **top)
        before = set(booked())
        done = await run_campaign(loaded, root=root, watcher=watcher, between=between)
        if done.failure is not None:
            raise done.failure
        [attempt] = done.attempts
        if attempt.report is None:
            raise UnprovenError(f"the attempt left no seal: {attempt.error}")
        if not wires:
            raise NotApplicableError("nothing can be put between this agent and us")
        if not any(wire.has_broken for wire in wires):
            raise NotApplicableError("it said no line of the kind that was to be broken")
        run = RootPaths(root).run(done.run_id)
        [paths] = run.attempts()
        return Kept(
            report=attempt.report,
            events=watcher.events,
            root=root,
            run=run,
            paths=paths,
            wires=wires,
            agents=agents,
        )

    @asynccontextmanager
    async def conversations(self, *steps: Mapping[str, Any], approvals: str = "deny") -> AsyncIterator[Sessions]:
        """As a user of the library opens them, who may ask for what the runtime cannot do."""
        folder = self.folder / f"conversation-{next(self._numbers)}"
        folder.mkdir()
        loaded = await self._loaded(steps, folder=folder, prompt="A conversation.", limits=_LIMITS, approvals=approvals)
        async with open_sessions(loaded, root=folder, keep=Keep.MEMORY) as sessions:
            yield sessions

    async def loaded(self, *steps: Mapping[str, Any], approvals: str = "deny") -> LoadedSpec:
        """What one conversation plays."""
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
            "schedule": {"retries": 0},  # it is the one attempt that is looked at
        }
        # Nothing in it is found by way of a folder; the user's own is where settings are looked for.
        return load_built({**spec, **top}, name="conformance", folder=Path.cwd())


def isolations_of(runtime: Runtime) -> tuple[Isolation, ...]:
    """Those that a flow may ask of it, the first by default."""
    return (Isolation.SHARED, Isolation.PROCESS) if runtime.claims.parallel_sessions else (Isolation.PROCESS,)


@asynccontextmanager
async def open_subject(
    strategy: str, *, transport: str | None = None, isolation: str | None = None, stage: Stage | None = None
) -> AsyncIterator[Subject]:
    """The runtime of that id with its program; by default over its first transport, and shared where it says it can.

    InputError where there is no such runtime or transport, MachineError where there is no program.
    """
    runtime = runtime_by_id(StrategyId(strategy))
    if transport is not None and transport not in runtime.transports:
        known = ", ".join(runtime.transports)
        raise InputError("usage", f"{strategy} is talked to over {known}, not over {transport!r}")
    possible = isolations_of(runtime)
    if isolation is not None and isolation not in possible:
        raise InputError("usage", f"{strategy} cannot carry several sessions at once: isolation {isolation!r} needs it")
    stage = stage or STAGES.get(runtime.id)
    with open_scratch(RunId(f"conformance-{secrets.token_hex(4)}"), is_kept=False) as folder:
        has_program = stage is None or stage.has_process
        options = {} if stage is None or not has_program else await stage.options([], prompt="", folder=folder)
        # In a thread: it hashes the program.
        program = await anyio.to_thread.run_sync(partial(runtime.locate, options)) if has_program else None
        yield Subject(
            runtime=runtime,
            program=program,
            transport=transport or runtime.transports[0],
            isolation=possible[0] if isolation is None else Isolation(isolation),
            folder=folder,
            stage=stage,
            version=None if program is None else program.version,
        )


def digest_of(runtime: Runtime, program: Executable | None) -> str:
    """What a proof is bound to: the program's bytes, or those of the code that stands for one."""
    if program is not None:
        return program.sha256
    sources = sorted(Path(inspect.getfile(type(runtime))).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(hashlib.sha256(each.read_bytes()).digest() for each in sources)).hexdigest()
