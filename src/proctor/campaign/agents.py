"""The agents of a run: how a process of one is opened, which model it talks to, what is known of it beforehand."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.attempt.model import Lease
from proctor.campaign.hosts import HostPool
from proctor.campaign.preflight import Ready
from proctor.campaign.process import open_recorded_host
from proctor.clock import Clock
from proctor.contain.intent import IntentBook
from proctor.errors import MachineError
from proctor.evidence.layout import RunPaths
from proctor.evidence.redact import Redactor
from proctor.fact import Authority, Fact
from proctor.ids import AttemptId, FlowId, ProcessId
from proctor.model.script import Script
from proctor.plan.model import ResolvedFlow
from proctor.runtime.base import HostAsk, ModelAsk
from proctor.spec.model import SCRIPTED
from proctor.transport.channel import Channel

if TYPE_CHECKING:
    from proctor.model.server import ScriptedModel

SCRIPTED_MODEL = "proctor-scripted"

Between = Callable[[FlowId, Channel], Channel]
"""Given the channel to each agent process, gives the one to use: how a test breaks what a real agent says."""


@dataclass(slots=True, kw_only=True)
class Agents:
    """How agent processes are opened and models played. Without `paths` nothing is kept of what a process says."""

    ready: Ready
    paths: RunPaths | None
    scratch: Path
    intents: IntentBook
    clock: Clock
    make_durable: Callable[[], Awaitable[None]] | None = None
    between: Between | None = None
    stage: "ScriptedModel | None" = None

    def facts(self, flow: ResolvedFlow) -> dict[str, Fact]:
        """What is known of a flow's agent before there is one."""
        identity = self.ready.identities[flow.id]
        return {
            "resolution": self.ready.resolutions[flow.id].fact(),
            "environment": identity.environment.fact(),
            "credentialInput": identity.credential.fact(),
            "profile": Fact(value=flow.profile.value, authority=Authority.DECLARED, source="flow"),
        }

    def lease(self, flow: ResolvedFlow, pool: HostPool) -> AbstractAsyncContextManager[Lease]:
        """A place in a process of the flow's, or of another's whose login it shares."""
        process = self.ready.identities[flow.id].process
        return pool.lease(process, flow.isolation, lambda id_: self.open_host(flow, id_))

    def open_host(self, flow: ResolvedFlow, process: ProcessId) -> AbstractAsyncContextManager[Lease]:
        resolution = self.ready.resolutions[flow.id]
        identity = self.ready.identities[flow.id]
        place = self.scratch / "processes" / process
        ask = HostAsk(
            process=process,
            executable=resolution.executable,
            home=place / "home",
            tmp=place / "tmp",
            env=identity.environment.values,
            containment=self.ready.containment,
            intents=self.intents,
            clock=self.clock,
            model=self._model(flow, None),
            between=None if self.between is None else partial(self.between, flow.id),
            profile=flow.profile,
            user_home=identity.user_home,
            options=flow.options.get(resolution.runtime.id, {}),
        )
        paths = None if self.paths is None else self.paths.runtime(process)
        redactor = Redactor(self.ready.secrets, private=resolution.runtime.private)
        return open_recorded_host(
            resolution.runtime,
            ask,
            paths=paths,
            redactor=redactor,
            planted=self.ready.canary,
            make_durable=self.make_durable,
        )

    def _model(self, flow: ResolvedFlow, base_url: str | None) -> ModelAsk:
        if flow.model.is_scripted:
            # A host is told of no model at all: each session brings its own address.
            return ModelAsk(provider=SCRIPTED, name=SCRIPTED_MODEL, base_url=base_url or "http://127.0.0.1:1/v1")
        credential = self.ready.identities[flow.id].credential
        return ModelAsk(
            provider=flow.model.provider,
            name=flow.model.name or "",
            base_url=flow.model.base_url,
            key_variable=credential.variable,
            login=credential.login,
        )

    async def open_model(self, stack: AsyncExitStack, flows: Mapping[FlowId, ResolvedFlow]) -> None:
        if not any(flow.model.is_scripted for flow in flows.values()):
            return
        # Imported when used: a web server is a heavy thing to start with.
        try:
            from proctor.model.server import open_model
        except ModuleNotFoundError as error:
            raise MachineError("machine.extra-missing", f"no {error.name}: install 'proctor[model]'") from error
        self.stage = await stack.enter_async_context(open_model(clock=self.clock))

    @contextmanager
    def playing(self, attempt: AttemptId, script: Script | None, flow: ResolvedFlow) -> Iterator[ModelAsk]:
        """The script is on for this attempt, where its model is scripted."""
        if self.stage is None or script is None or not flow.model.is_scripted:
            yield self._model(flow, None)
            return
        try:
            yield self._model(flow, self.stage.play(attempt, script))
        finally:
            self.stage.forget(attempt)
