"""What a run learns of its runtimes' health, kept for the next one: written in batches, and never in a run's way."""

from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread

from proctor.clock import Clock
from proctor.errors import MachineError
from proctor.event.outcome import Outcome
from proctor.evidence.health import ProgramEvent, ProgramKey, write_health

BATCH = 64

_OF_THE_PROGRAM = ("machine.binary-", "machine.spawn-failed", "peer.")
# These are about what was asked and of whom.
_OF_OTHERS = frozenset({"peer.refused", "peer.login", "peer.overloaded"})


@dataclass(slots=True, kw_only=True)
class HealthRecorder:
    """Without a path nothing is kept. `failure` is why the last batch could not be."""

    path: Path | None
    clock: Clock
    failure: MachineError | None = None
    _waiting: list[ProgramEvent] = field(default_factory=list)
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    def started(self, program: ProgramKey, *, code: str | None = None) -> None:
        """A process or a session of it was to be had, or not, and then why. What is not the runtime's fault is
        no news.
        """
        if code is None or is_of_the_program(code):
            self._waiting.append(ProgramEvent(program=program, at_ms=self.clock.wall_ms(), code=code))

    def ended(self, program: ProgramKey, *, outcome: Outcome, code: str | None) -> None:
        """An attempt is over."""
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
        """Its process or channel went away under a session."""
        self._waiting.append(ProgramEvent(program=program, at_ms=self.clock.wall_ms(), code=code, is_crash=True))

    @property
    def warnings(self) -> tuple[str, ...]:
        return () if self.failure is None else (f"how the agents started could not be kept: {self.failure}",)

    async def write(self, *, least: int = BATCH) -> None:
        """One transaction for all that waits, once that is enough."""
        if len(self._waiting) < least or self.path is None:
            return
        async with self._lock:
            # Another one may have written it meanwhile.
            batch, self._waiting = self._waiting, []
            if not batch:
                return
            try:
                await anyio.to_thread.run_sync(write_health, self.path, batch)
            except MachineError as error:
                self.failure = error


def is_of_the_program(code: str) -> bool:
    """
    >>> is_of_the_program("peer.hangup"), is_of_the_program("peer.refused"), is_of_the_program("policy.login")
    (True, False, False)
    """
    return code.startswith(_OF_THE_PROGRAM) and code not in _OF_OTHERS
