"""The recording end of a connection: rows are recorded, then derived from, then passed to the watcher."""

from collections.abc import Callable, Sequence

import msgspec

from proctor.attempt.derive import Derivation
from proctor.errors import MachineError
from proctor.event.model import Event
from proctor.event.row import Direction, Row, SupervisorRow
from proctor.evidence.recorder import ChainedLog, FrameLog
from proctor.evidence.redact import TextStream

OnEvent = Callable[[Event], None]


class RecordingTap:
    """Records one attempt, or one process. Its methods never raise.

    A write error, or an exception in the normalizer or the watcher, is stored in `failure`, and nothing more is
    recorded. On a shared connection it must not affect other attempts, so the owner of this record checks `failure` and
    stops. A process's own record has no derivation.
    """

    def __init__(
        self,
        log: FrameLog,
        derivation: Derivation | None = None,
        *,
        derived: Sequence[ChainedLog] = (),
        watcher: OnEvent | None = None,
    ) -> None:
        self.failure: MachineError | None = None
        self._derived = derived
        self._log = log
        self._derivation = derivation
        self._watcher = watcher

    @property
    def size_bytes(self) -> int:
        """The size of the record and of the `derived` streams, in bytes."""
        return self._log.size_bytes + sum(stream.size_bytes for stream in self._derived)

    def stage(self, dir_: Direction, data: bytes, *, stream: TextStream | None = None) -> None:
        """Stage one line for the next commit."""
        if self.failure is None:
            try:
                self._log.stage(dir_, data, stream=stream)
            except Exception as error:
                self._break(error)

    def commit(self) -> None:
        """Write the staged lines and process their events."""
        self._record(self._log.commit)

    def record(self, seen: SupervisorRow) -> None:
        """Write a row of the supervisor at once, after the staged lines."""

        def write() -> tuple[Row, ...]:
            last = self._log.say(seen)
            return (*self._log.commit(), last)

        self._record(write)

    def note(self, seen: SupervisorRow) -> None:
        """Stage a row of the supervisor for the next commit."""
        self.stage(Direction.SELF, msgspec.json.encode(seen))

    def release(self, key_prefix: str) -> None:
        """End the text streams whose key has this prefix, and record what redaction held back of them."""
        self._record(lambda: self._log.release(key_prefix))

    def _record(self, write: Callable[[], tuple[Row, ...]]) -> None:
        if self.failure is not None:
            return
        try:
            rows = write()
            for event in self._derivation.feed(rows) if self._derivation is not None else ():
                self._pass_on(event)
        except Exception as error:
            self._break(error)

    def _pass_on(self, event: Event) -> None:
        if self._watcher is None:
            return
        try:
            self._watcher(event)
        except MachineError:
            raise
        except Exception as error:
            what = f"the watcher raised {type(error).__name__}: {error}"
            raise MachineError("listener.failed", what) from error

    def _break(self, error: Exception) -> None:
        if isinstance(error, MachineError):
            self.failure = error
            return
        self.failure = MachineError("run.harness", f"{type(error).__name__}: {error}")
        self.failure.__cause__ = error
