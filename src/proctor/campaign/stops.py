"""Stopping a running campaign from outside."""

import signal
from dataclasses import dataclass, field
from typing import Final

import anyio

from proctor.event.row import ASKED_TO_STOP, CancelRequested
from proctor.ids import AttemptId

DRAIN: Final = signal.SIGUSR1
STOP: Final = signal.SIGUSR2
"""Signals from another Proctor. Repeating them changes nothing, whereas each further Ctrl-C stops more."""


@dataclass(slots=True, kw_only=True)
class StopSignals:
    """Events that stop a campaign: `drain` starts no more attempts, `one` ends a single attempt, `all` ends all."""

    drain: anyio.Event = field(default_factory=anyio.Event)
    all: anyio.Event = field(default_factory=anyio.Event)
    one: dict[AttemptId, anyio.Event] = field(default_factory=dict)
    _causes: dict[AttemptId, CancelRequested] = field(default_factory=dict)
    _over: set[AttemptId] = field(default_factory=set)

    def cancel(self, attempt: AttemptId, cause: CancelRequested) -> bool:
        """Stop one attempt. Return False if it is not running, or its turn has ended."""
        if attempt not in self.one or attempt in self._over:
            return False
        self._causes.setdefault(attempt, cause)
        self.one[attempt].set()
        return True

    def cause(self, attempt: AttemptId) -> CancelRequested:
        """Return why an attempt is stopped."""
        return self._causes.get(attempt, ASKED_TO_STOP)

    def turn_over(self, attempt: AttemptId) -> None:
        """Note that the turn of an attempt has ended, so that the attempt can no longer be cancelled alone."""
        self._over.add(attempt)

    def ended(self, attempt: AttemptId) -> None:
        """Forget an attempt that has ended."""
        del self.one[attempt]
        self._causes.pop(attempt, None)
        self._over.discard(attempt)

    def stop_all(self) -> None:
        self.drain.set()
        self.all.set()
        for stop in self.one.values():
            stop.set()

    def of(self, attempt: AttemptId) -> anyio.Event:
        """Create and return the event that stops an attempt. It is already set if all were stopped."""
        stop = self.one[attempt] = anyio.Event()
        if self.all.is_set():
            stop.set()
        return stop
