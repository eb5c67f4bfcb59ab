"""The agents of a run: how their processes are opened, which model they use, and the facts known in advance."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from proctor.attempt.model import Lease
from proctor.campaign.health import HealthRecorder, is_program_fault
from proctor.campaign.hosts import HostPool
from proctor.campaign.logins import FlowIdentity, credential_key
from proctor.campaign.preflight import PreflightResult
from proctor.campaign.process import open_recorded_host
from proctor.campaign.schedule import ALL
from proctor.clock import Clock
from proctor.contain.intent import IntentLog
from proctor.errors import MachineError, ProctorError
from proctor.event.outcome import Outcome
from proctor.evidence.health import DEGRADED_AFTER
from proctor.evidence.layout import RunPaths
from proctor.evidence.redact import Redactor
from proctor.fact import Authority, Fact
from proctor.ids import AttemptId, FlowId, ProcessId
from proctor.model.script import Script
from proctor.plan.model import ResolvedFlow, Schedule
from proctor.plan.recover import Remedy, remedy
from proctor.runtime.base import HostRequest, ModelChoice
from proctor.runtime.resolve import Candidate, RuntimeChain
from proctor.spec.model import SCRIPTED
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

    def __post_init__(self) -> None:
        self._choices = {id_: _Choice(chain=RuntimeChain(links)) for id_, links in self.ready.chains.items()}

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
            self.health.started(tried.key)
        except ProctorError as error:
            self.health.started(tried.key, code=error.code)
            choice.chain.refuse(error)

    def ended(self, flow: ResolvedFlow, candidate: Candidate, *, outcome: Outcome, code: str | None) -> None:
        """Learn from the end of an attempt. A runtime that no longer starts is replaced by the next of the chain."""
        self.health.ended(candidate.key, outcome=outcome, code=code)
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
        """Yield a message for each runtime that was skipped in favour of a later one of its chain."""
        for flow, choice in self._choices.items():
            for each in choice.chain.passed:
                reason = f"{each.runtime_id} was skipped: {each.error.what}"
                yield f"flow `{flow}` runs on {choice.chain.current.runtime_id}, because {reason}"

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
        }

    def lease(self, flow: ResolvedFlow, candidate: Candidate, pool: HostPool) -> AbstractAsyncContextManager[Lease]:
        """Lease a place in an agent process: one of this flow, or of a flow that shares the same login."""
        process = self._identity(flow, candidate).process
        return pool.lease(process, flow.isolation, lambda id_: self._open_host(flow, candidate, id_))

    def _open_host(
        self, flow: ResolvedFlow, candidate: Candidate, process: ProcessId
    ) -> AbstractAsyncContextManager[Lease]:
        runtime, identity = candidate.runtime, self._identity(flow, candidate)
        place = self.scratch / "processes" / process
        ask = HostRequest(
            process=process,
            executable=candidate.executable,
            home=place / "home",
            tmp=place / "tmp",
            env=identity.environment.values,
            containment=self.ready.containment,
            intents=self.intents,
            clock=self.clock,
            model=self._model(flow, candidate, None),
            wrap_channel=None if self.between is None else partial(self.between, flow.id),
            profile=flow.profile,
            user_home=identity.user_home,
            options=flow.options.get(runtime.id, {}),
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
            raise MachineError("machine.extra-missing", f"no {error.name}: install 'proctor[model]'") from error
        self.stage = await stack.enter_async_context(open_model(clock=self.clock))

    @contextmanager
    def playing(
        self, attempt: AttemptId, script: Script | None, flow: ResolvedFlow, candidate: Candidate
    ) -> Iterator[ModelChoice]:
        """Serve the script to this attempt, if its model is scripted."""
        if self.stage is None or script is None or not flow.model.is_scripted:
            yield self._model(flow, candidate, None)
            return
        try:
            yield self._model(flow, candidate, self.stage.play(attempt, script))
        finally:
            self.stage.forget(attempt)
