"""Our end of a connection: rows are recorded, then derived from, then shown to whoever watches."""

from collections.abc import Callable

import msgspec

from proctor.attempt.derive import Derivation
from proctor.errors import MachineError
from proctor.event.model import Event
from proctor.event.row import Dir, Row, Seen
from proctor.evidence.recorder import FrameLog
from proctor.evidence.redact import TextStream

OnEvent = Callable[[Event], None]


class RecordingTap:
    """A disk that refuses breaks this record and no other: `failure` says so, and whoever needs it stops.

    So does a normalizer or a watcher that raises: on a shared connection nothing may get past the tap of one attempt.
    A process's own record has no derivation.
    """

    def __init__(self, log: FrameLog, derivation: Derivation | None = None, *, watcher: OnEvent | None = None) -> None:
        self.failure: MachineError | None = None
        self._log = log
        self._derivation = derivation
        self._watcher = watcher

    def stage(self, dir_: Dir, data: bytes, *, stream: TextStream | None = None) -> None:
        if self.failure is None:
            try:
                self._log.stage(dir_, data, stream=stream)
            except Exception as error:
                self._break(error)

    def commit(self) -> None:
        self._record(self._log.commit)

    def say(self, seen: Seen) -> None:
        def said() -> tuple[Row, ...]:
            last = self._log.say(seen)
            return (*self._log.commit(), last)

        self._record(said)

    def note(self, seen: Seen) -> None:
        """The same, with whatever is recorded next: for what nobody needs to know before that."""
        self.stage(Dir.SELF, msgspec.json.encode(seen))

    def release(self, key_prefix: str) -> None:
        self._record(lambda: self._log.release(key_prefix))

    def _record(self, write: Callable[[], tuple[Row, ...]]) -> None:
        if self.failure is not None:
            return
        try:
            rows = write()
            for event in self._derivation.feed(rows) if self._derivation is not None else ():
                if self._watcher is not None:
                    self._watcher(event)
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        if isinstance(error, MachineError):
            self.failure = error
            return
        self.failure = MachineError("run.harness", f"{type(error).__name__}: {error}")
        self.failure.__cause__ = error
