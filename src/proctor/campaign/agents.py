"""The agents of a run: how their processes are opened, which model they use, and the facts known in advance."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from proctor.attempt.model import Lease
from proctor.campaign.health import HealthRecorder, HostHealth, is_program_fault
from proctor.campaign.hiding import AgentSight, hiding_fact
from proctor.campaign.hosts import HostPool
from proctor.campaign.logins import FlowIdentity, credential_key
from proctor.campaign.model_record import MODEL, ModelRecord
from proctor.campaign.preflight import PreflightResult
from proctor.campaign.process import open_recorded_host
from proctor.campaign.schedule import ALL
from proctor.clock import Clock
from proctor.contain.intent import IntentLog
from proctor.errors import MachineError, ProctorError, disk_error, extra_missing
from proctor.event.outcome import Outcome
from proctor.evidence.health import DEGRADED_AFTER
from proctor.evidence.layout import RunPaths
from proctor.evidence.redact import Redactor
from proctor.fact import Authority, Fact
from proctor.ids import AttemptId, FlowId, ProcessId, ThreadId
from proctor.model.script import Script
from proctor.plan.model import ResolvedFlow, Schedule
from proctor.plan.recover import Remedy, remedy
from proctor.runtime.base import FindsThreads, HostRequest, ModelChoice
from proctor.runtime.resolve import Candidate, RuntimeChain
from proctor.spec.choices import SCRIPTED, Profile
from proctor.transport.channel import Channel

if TYPE_CHECKING:
    from proctor.model.server import ScriptedModel

SCRIPTED_MODEL = "proctor-scripted"

Between = Callable[[FlowId, Channel], Channel]
"""Replaces the channel to an agent process. Tests use it to inject faults between Proctor and a real agent."""


@dataclass(slots=True, kw_only=True)
class _Choice:
    """The runtime chain of a flow, and what is known about starting its current runtime."""

    chain: RuntimeChain
    has_started: bool = False
    failures: int = 0
    """Failed starts of the current runtime in a row."""
    start_lock: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while the current runtime is started for the first time, so that only one task tries it."""

    @property
    def is_open(self) -> bool:
        return self.chain.has_more and not self.has_started


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFolders:
    """Folders of a session that outlive its processes."""

    folder: Path
    """The folder that contains them."""
    home: Path | None
    """The agent's home. None if the agent gets a new one."""


class Place:
    """The place of one attempt in an agent process. Made by `Agents.place` only."""

    def __init__(
        self, lease: Callable[[], AbstractAsyncContextManager[Lease]], *, hosts: Mapping[ProcessId, HostHealth]
    ) -> None:
        self._lease = lease
        self._hosts = hosts
        self._leased: tuple[Lease, HostHealth] | None = None

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Lease]:
        async with self._lease() as lease:
            self._leased = lease, self._hosts[lease.process]
            self._leased[1].is_used = True
            yield lease

    def opened(self) -> None:
        """Count the start of the program: the attempt has its session."""
        if self._leased is not None:
            self._leased[1].start_succeeded()

    def ended(self, outcome: Outcome, code: str | None) -> None:
        """Count what the end of the attempt says about its program. A host that failed to start is counted itself."""
        if self._leased is not None:
            lease, health = self._leased
            health.attempt_ended(outcome, code, is_host_alive=lease.host.is_alive)


@dataclass(slots=True, kw_only=True)
class Agents:
    """Opens agent processes and serves scripted models. Without `paths` the output of a process is not recorded."""

    ready: PreflightResult
    paths: RunPaths | None
    scratch: Path
    intents: IntentLog
    clock: Clock
    health: HealthRecorder
    make_durable: Callable[[], Awaitable[None]] | None = None
    between: Between | None = None
    stage: "ScriptedModel | None" = None
    _choices: dict[FlowId, "_Choice"] = field(init=False)
    _hosts: dict[ProcessId, HostHealth] = field(default_factory=dict)
    _model_record: ModelRecord | None = None

    def __post_init__(self) -> None:
        self._choices = {id_: _Choice(chain=RuntimeChain(links)) for id_, links in self.ready.chains.items()}

    @property
    def workspaces(self) -> Path:
        """The folder with the workspace and TMPDIR of every attempt. All agents of the run see it, and nothing beside.

        Mounted as a whole, because a shared process starts before most of the workspaces exist.
        """
        return self.scratch / "attempts"

    @property
    def judging(self) -> Path:
        """The folder with what the probes of every attempt see. No agent sees it."""
        return self.scratch / "judging"

    @property
    def sessions(self) -> Path:
        """The folder with the sessions of attempts that have a context engine. No agent sees it."""
        return self.scratch / "sessions"

    async def choose(self, flow: ResolvedFlow, pool: HostPool) -> Candidate:
        """Return the current runtime of a flow: the first of its chain that starts.

        The last runtime of the chain is returned without a trial start, because there is nothing to fall back to.
        """
        choice = self._choices[flow.id]
        while choice.is_open:
            async with choice.start_lock:
                if choice.is_open:
                    await self._try(choice, flow, pool)
        return choice.chain.current

    async def _try(self, choice: "_Choice", flow: ResolvedFlow, pool: HostPool) -> None:
        tried = choice.chain.current
        try:
            async with self.lease(flow, tried, pool):
                choice.has_started = True
        except ProctorError as error:
            choice.chain.refuse(error)

    def ended(self, flow: ResolvedFlow, candidate: Candidate, *, outcome: Outcome, code: str | None) -> None:
        """Learn from the end of an attempt. A runtime that no longer starts is replaced by the next of the chain."""
        choice = self._choices[flow.id]
        if candidate is not choice.chain.current or outcome in (Outcome.CANCELLED, Outcome.UNKNOWN):
            return
        is_no_start = outcome is Outcome.REFUSED and code is not None and is_program_fault(code)
        choice.failures = choice.failures + 1 if is_no_start else 0
        is_hopeless = is_no_start and remedy(outcome, code) is Remedy.STOP
        if (is_hopeless or choice.failures >= DEGRADED_AFTER) and choice.chain.has_more:
            what = f"it failed to start {choice.failures} times in a row, last with {code}"
            choice.chain.refuse(MachineError("runtime.degraded", what))
            choice.has_started, choice.failures = False, 0

    def warnings(self) -> Iterator[str]:
        """Yield a message for each runtime that was skipped for a later one, and for clients that the model refused."""
        for flow, choice in self._choices.items():
            for each in choice.chain.passed:
                reason = f"{each.runtime_id} was skipped: {each.error.what}"
                yield f"flow `{flow}` runs on {choice.chain.current.runtime_id}, because {reason}"
        if self._model_record is not None:
            yield from self._model_record.warnings()

    def keys(self, flow: ResolvedFlow) -> tuple[str, ...]:
        """Return the keys of the limits that an attempt of the flow counts against on its current runtime."""
        current = self._choices[flow.id].chain.current
        return self._identity(flow, current).keys(flow, current.runtime_id)

    def limits(self, schedule: Schedule) -> dict[str, int]:
        """Return the largest number of attempts at a time, by the key of the limit."""
        credentials = {credential_key(each.credential) for each in self.ready.identities.values()}
        each = {} if schedule.per_credential is None else dict.fromkeys(credentials, schedule.per_credential)
        return {
            ALL: schedule.parallel,
            **{f"runtime:{runtime_id}": most for runtime_id, most in schedule.runtimes.items()},
            **{f"provider:{provider}": most for provider, most in schedule.providers.items()},
            **{key: most for key, most in each.items() if key is not None},
        }

    # ── for a chosen candidate: the flow may move on to the next runtime of its chain while an attempt is running ──

    def _identity(self, flow: ResolvedFlow, candidate: Candidate) -> FlowIdentity:
        return self.ready.identities[flow.id, candidate.runtime_id]

    def facts(self, flow: ResolvedFlow, candidate: Candidate) -> dict[str, Fact]:
        """Return the facts about a flow's agent that are known before it is started."""
        identity = self._identity(flow, candidate)
        return {
            "resolution": self._choices[flow.id].chain.fact(),
            **candidate.facts(),
            "environment": identity.environment.fact(),
            "credentialInput": identity.credential.fact(),
            "profile": Fact(value=flow.profile.value, authority=Authority.DECLARED, source="flow"),
            "hiding": self.hiding_fact(flow, candidate),
        }

    def sight(self, flow: ResolvedFlow, candidate: Candidate) -> AgentSight:
        """Return what an agent of the flow sees of the folders that hold what judges it."""
        return self.ready.sights[flow.id, candidate.runtime_id]

    def hiding_fact(self, flow: ResolvedFlow, candidate: Candidate) -> Fact:
        return hiding_fact(self.sight(flow, candidate), candidate.runtime, flow, self.ready.containment)

    def has_thread(self, flow: ResolvedFlow, candidate: Candidate, thread: ThreadId, *, home: Path) -> bool | None:
        """Return whether the agent has stored a thread in a home. None if the runtime cannot tell."""
        runtime = candidate.runtime
        if not isinstance(runtime, FindsThreads):
            return None
        user_home = self._identity(flow, candidate).user_home if flow.profile is Profile.MINE else None
        return runtime.has_thread(thread, home=home, user_home=user_home)

    def lease(
        self, flow: ResolvedFlow, candidate: Candidate, pool: HostPool, *, kept: KeptFolders | None = None
    ) -> AbstractAsyncContextManager[Lease]:
        """Lease a place in an agent process: one of this flow, or of a flow that shares the same login.

        With `kept`, a process that is not shared gets these folders, which exist.
        """
        process = self._identity(flow, candidate).process
        return pool.lease(process, flow.isolation, lambda id_: self._open_host(flow, candidate, id_, kept))

    def place(
        self, flow: ResolvedFlow, candidate: Candidate, pool: HostPool, *, kept: KeptFolders | None = None
    ) -> "Place":
        """Return a place for one attempt, which is leased later."""
        return Place(lambda: self.lease(flow, candidate, pool, kept=kept), hosts=self._hosts)

    def host_gone(self, process: ProcessId, failure: ProctorError | None) -> None:
        """Learn that a host has ended, and why it failed to start. Must be called for every host."""
        its = self._hosts.pop(process, None)
        if its is None:
            return  # it was stopped before it was opened
        if failure is not None:
            its.start_failed(failure.code)
        elif not its.is_used:
            its.start_succeeded()

    def _open_host(
        self, flow: ResolvedFlow, candidate: Candidate, process: ProcessId, kept: KeptFolders | None
    ) -> AbstractAsyncContextManager[Lease]:
        runtime, identity = candidate.runtime, self._identity(flow, candidate)
        its = self._hosts[process] = HostHealth(recorder=self.health, program=candidate.key)

        def wrap_channel(channel: Channel) -> Channel:
            # Called for every process that the runtime starts.
            its.process_started()
            return channel if self.between is None else self.between(flow.id, channel)

        place = self.scratch / "processes" / process
        try:
            for folder in (self.workspaces, place):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(error, path=self.scratch) from error
        writable = (self.workspaces, place) if kept is None else (self.workspaces, place, kept.folder)
        ask = HostRequest(
            process=process,
            executable=candidate.executable,
            home=place / "home" if kept is None or kept.home is None else kept.home,
            tmp=place / "tmp",
            env=identity.environment.values,
            containment=self.ready.containment,
            intents=self.intents,
            clock=self.clock,
            model=self._model(flow, candidate, None),
            wrap_channel=wrap_channel,
            profile=flow.profile,
            user_home=identity.user_home,
            options=flow.options.get(runtime.id, {}),
            hiding=self.sight(flow, candidate).hiding(*writable),
        )
        paths = None if self.paths is None else self.paths.runtime(process)
        redactor = Redactor(self.ready.secrets, private=runtime.private_paths)
        return open_recorded_host(
            runtime,
            ask,
            paths=paths,
            redactor=redactor,
            planted=self.ready.tripwire,
            make_durable=self.make_durable,
        )

    def _model(self, flow: ResolvedFlow, candidate: Candidate, base_url: str | None) -> ModelChoice:
        if flow.model.is_scripted:
            # The host gets a placeholder address: each session passes its own.
            return ModelChoice(provider=SCRIPTED, name=SCRIPTED_MODEL, base_url=base_url or "http://127.0.0.1:1/v1")
        credential = self._identity(flow, candidate).credential
        return ModelChoice(
            provider=flow.model.provider,
            name=flow.model.name or "",
            base_url=flow.model.base_url,
            key_variable=credential.variable,
            login=credential.login,
        )

    async def open_model(self, stack: AsyncExitStack, flows: Mapping[FlowId, ResolvedFlow]) -> None:
        if not any(flow.model.is_scripted for flow in flows.values()):
            return
        # Imported when used: the web server is slow to import.
        try:
            from proctor.model.server import open_model
        except ModuleNotFoundError as error:
            raise extra_missing(error, extra="model") from error
        record = self._model_record = ModelRecord(
            None if self.paths is None else self.paths.runtime(MODEL),
            redactor=Redactor(self.ready.secrets),
            planted=self.ready.tripwire,
            clock=self.clock,
        )
        stack.push_async_callback(record.seal)
        self.stage = await stack.enter_async_context(
            open_model(clock=self.clock, on_refused=record.add, dialects=self.ready.dialects)
        )

    @contextmanager
    def playing(
        self,
        attempt: AttemptId,
        script: Script | None,
        flow: ResolvedFlow,
        candidate: Candidate,
        *,
        ids_from: str | None = None,
    ) -> Iterator[ModelChoice]:
        """Serve the script to this attempt, if its model is scripted. `ids_from` as in `ScriptedModel.play`."""
        if self.stage is None or script is None or not flow.model.is_scripted:
            yield self._model(flow, candidate, None)
            return
        try:
            url = self.stage.play(attempt, script, runtime_id=candidate.runtime_id, ids_from=ids_from)
            yield self._model(flow, candidate, url)
        finally:
            self.stage.forget(attempt)

    def script_misfit(self, attempt: AttemptId) -> str | None:
        """Return why the scripted model cannot play its current step for this attempt, or None."""
        return None if self.stage is None else self.stage.misfit(attempt)
