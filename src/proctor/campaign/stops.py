"""How a running campaign is stopped from outside."""

import signal
from dataclasses import dataclass, field
from typing import Final

import anyio

from proctor.ids import AttemptId

DRAIN: Final = signal.SIGUSR1
STOP: Final = signal.SIGUSR2
"""What another Proctor asks by, however often. The signals of people are counted instead: each asks for more."""


@dataclass(slots=True, kw_only=True)
class StopSignals:
    """Nothing new begins, or one attempt ends, or everything does."""

    drain: anyio.Event = field(default_factory=anyio.Event)
    all: anyio.Event = field(default_factory=anyio.Event)
    one: dict[AttemptId, anyio.Event] = field(default_factory=dict)

    def stop_all(self) -> None:
        self.drain.set()
        self.all.set()
        for stop in self.one.values():
            stop.set()

    def of(self, attempt: AttemptId) -> anyio.Event:
        """What stops this one, from now on; one that comes after all were stopped is stopped too."""
        stop = self.one[attempt] = anyio.Event()
        if self.all.is_set():
            stop.set()
        return stop
