"""Defaults for a runtime that supports little: what it does not support is refused, the rest is empty."""

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import msgspec

from proctor.errors import HangupError, RefusedError
from proctor.event.message import Message
from proctor.fact import Authority, Fact
from proctor.ids import RuntimeId, ThreadId
from proctor.runtime.base import ContextUse, Delivery, HostRequest, SessionRequest
from proctor.runtime.capability import Capabilities, CapabilityProfile, missing_capability, require_capability
from proctor.runtime.credential import Account
from proctor.runtime.executable import identity_fact
from proctor.runtime.failures import Failure
from proctor.runtime.line_process import PLAIN, LineProcess, LineRoute


class RuntimeDefaults:
    """The members of `Runtime` for an agent without options and login, over one transport."""

    profile = CapabilityProfile.HEADLESS_LIMITED
    serves: Mapping[str, tuple[str, ...]] | None = None
    transports = ("stdio",)
    private_paths: frozenset[tuple[str, ...]] = frozenset()
    failures: tuple[Failure, ...] = ()
    option_names: frozenset[str] = frozenset()
    account: Account | None = None

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Accept everything: there are no options."""


class LineSession:
    """The members of `Session` for an agent that takes a prompt as one line, and whose process ends with the session.

    A subclass has `turn`, which calls `send_and_wait`, and `on_line`, which calls `end_turn`.
    """

    id: RuntimeId
    capabilities: Capabilities
    line_process: LineProcess
    """Must be set before the first turn."""

    def __init__(self, request: SessionRequest, *, facts: Mapping[str, Fact]) -> None:
        self.thread: ThreadId | None = None
        self.facts = facts
        self._hangup: str | None = None
        self._over: anyio.Event | None = None

    @property
    def is_alive(self) -> bool:
        return self._hangup is None

    @property
    def last_heard_s(self) -> float:
        return self.line_process.last_output_s

    async def send_and_wait(self, line: bytes) -> None:
        """Send a line that starts a turn, and wait until the turn has ended. Raises the errors of `Session.turn`."""
        if self._over is not None:
            raise RefusedError("peer.refused", "a turn is already running")
        self._over = anyio.Event()
        try:
            await self.line_process.send(line)
            await self._over.wait()
        finally:
            self._over = None
        if self._hangup is not None:
            raise HangupError("peer.hangup", self._hangup)

    def end_turn(self) -> None:
        """Let `send_and_wait` return."""
        if self._over is not None:
            self._over.set()

    def route(self, line: bytes) -> LineRoute:
        """Return that the line carries no piece of a streamed text."""
        return PLAIN

    def on_hangup(self, cause: str) -> None:
        self._hangup = cause
        self.end_turn()

    async def give(self, messages: Sequence[Message], *, instructions: str | None = None) -> Delivery:
        raise missing_capability("takes_history", runtime_id=self.id)

    async def steer(self, text: str) -> None:
        require_capability(self.capabilities, "turn_steer", runtime_id=self.id)

    async def compact(self) -> None:
        require_capability(self.capabilities, "compaction", runtime_id=self.id)

    async def interrupt(self) -> None:
        """Do nothing: a running turn ends with the process."""

    async def settle(self) -> None:
        """Do nothing: what a turn left running ends with the process."""

    async def read_history(self) -> None:
        raise RefusedError("peer.refused", f"{self.id} keeps no history")

    async def read_context(self) -> ContextUse:
        return ContextUse()


def host_facts(request: HostRequest, capabilities: Capabilities, *, transport: str = "stdio") -> dict[str, Fact]:
    """Return the facts that every host with a program has."""
    return {
        "identity": identity_fact(request.program),
        "capability": Fact(
            value=msgspec.to_builtins(capabilities), authority=Authority.DECLARED, source="capabilities"
        ),
        "transport": Fact(value=transport, authority=Authority.OBSERVED, source="how the process is started"),
        "containment": request.containment.fact(),
    }
