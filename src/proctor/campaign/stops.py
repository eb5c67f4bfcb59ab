"""Stopping a running campaign from outside."""

import signal
from dataclasses import dataclass, field
from typing import Final

import anyio

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
