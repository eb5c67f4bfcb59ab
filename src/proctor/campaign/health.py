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

_NOT_SPAWNED = ("machine.binary-", "machine.spawn-failed")
_PROGRAM_FAULTS = (*_NOT_SPAWNED, "peer.")
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
        """Record one start of the program, which failed with `code` if that is given."""
        self._waiting.append(ProgramEvent(program=program, at_ms=self.clock.wall_ms(), code=code))

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


@dataclass(slots=True, kw_only=True)
class HostHealth:
    """Counts the starts and crashes of one host's program, however many attempts use the host.

    A process that was started is counted once it is known whether the start was good: when an attempt that uses the
    host ends, or the host itself.
    """

    recorder: HealthRecorder
    program: ProgramKey
    is_used: bool = False
    """Whether an attempt uses the host, and so decides whether its start was good."""
    _undecided: int = 0
    _is_crash_counted: bool = False

    def process_started(self) -> None:
        self._undecided += 1

    def start_succeeded(self) -> None:
        """Count all processes that were started and are not counted yet."""
        for _ in range(self._undecided):
            self.recorder.started(self.program)
        self._undecided = 0

    def start_failed(self, code: str) -> None:
        """Count a failed start: of a process that was started and is of no use, or of one that could not be started.

        If the failure is not the program's fault, what was started did start.
        """
        if not is_program_fault(code):
            self.start_succeeded()
            return
        self._undecided = max(0, self._undecided - 1)
        self.recorder.started(self.program, code=code)

    def attempt_ended(self, outcome: Outcome, code: str | None, *, is_host_alive: bool) -> None:
        """Learn from the end of an attempt that used the host."""
        match outcome:
            case Outcome.CANCELLED | Outcome.UNKNOWN:
                pass
            case Outcome.REFUSED:
                # Otherwise no process was started for this attempt, and the one that it was to use is counted already.
                if code is not None and (self._undecided or code.startswith(_NOT_SPAWNED)):
                    self.start_failed(code)
            case _:
                self.start_succeeded()
                # The end of a process that several attempts share is one crash.
                if outcome is Outcome.CRASHED and (is_host_alive or not self._is_crash_counted):
                    self._is_crash_counted = True
                    self.recorder.crashed(self.program, code=code)


def is_program_fault(code: str) -> bool:
    """Whether a failure with this code is the agent program's fault.

    >>> is_program_fault("peer.hangup"), is_program_fault("peer.refused"), is_program_fault("policy.login")
    (True, False, False)
    """
    return code.startswith(_PROGRAM_FAULTS) and code not in _NOT_PROGRAM_FAULTS
