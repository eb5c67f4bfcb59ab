"""Records for later runs how each agent program started and crashed. Written in batches; a failure to write is only
a warning.
"""

from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread

from proctor.clock import Clock
from proctor.errors import MachineError
from proctor.event.outcome import Outcome
from proctor.evidence.health import ProgramEvent, ProgramKey, write_health

BATCH = 64

_PROGRAM_FAULTS = ("machine.binary-", "machine.spawn-failed", "peer.")
# These are about the request, the login or the provider, not the program.
_NOT_PROGRAM_FAULTS = frozenset({"peer.refused", "peer.login", "peer.overloaded"})


@dataclass(slots=True, kw_only=True)
class HealthRecorder:
    """Collects starts and crashes. Without a path nothing is written. `failure` is why the last batch was lost."""

    path: Path | None
    clock: Clock
    failure: MachineError | None = None
    _waiting: list[ProgramEvent] = field(default_factory=list)
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    def started(self, program: ProgramKey, *, code: str | None = None) -> None:
        """Record that a process or session started, or failed to start with `code`.

        Failures that are not the program's fault are ignored.
        """
        if code is None or is_program_fault(code):
            self._waiting.append(ProgramEvent(program=program, at_ms=self.clock.wall_ms(), code=code))

    def ended(self, program: ProgramKey, *, outcome: Outcome, code: str | None) -> None:
        """Record how an attempt ended."""
        match outcome:
            case Outcome.REFUSED:
                self.started(program, code=code or "peer.refused")
            case Outcome.CANCELLED | Outcome.UNKNOWN:
                pass
            case _:
                self.started(program)
                if outcome is Outcome.CRASHED:
                    self.crashed(program, code=code)

    def crashed(self, program: ProgramKey, *, code: str | None) -> None:
        """Record that the program's process or channel ended during a session."""
        self._waiting.append(ProgramEvent(program=program, at_ms=self.clock.wall_ms(), code=code, is_crash=True))

    @property
    def warnings(self) -> tuple[str, ...]:
        return () if self.failure is None else (f"the health of the agents could not be recorded: {self.failure}",)

    async def write(self, *, least: int = BATCH) -> None:
        """Write everything collected in one transaction, once there are at least `least` entries."""
        if len(self._waiting) < least or self.path is None:
            return
        async with self._lock:
            # Another task may have written them while this one waited for the lock.
            batch, self._waiting = self._waiting, []
            if not batch:
                return
            try:
                await anyio.to_thread.run_sync(write_health, self.path, batch)
            except MachineError as error:
                self.failure = error


def is_program_fault(code: str) -> bool:
    """Whether a failure with this code is the agent program's fault.

    >>> is_program_fault("peer.hangup"), is_program_fault("peer.refused"), is_program_fault("policy.login")
    (True, False, False)
    """
    return code.startswith(_PROGRAM_FAULTS) and code not in _NOT_PROGRAM_FAULTS
