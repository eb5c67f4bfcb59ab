"""What a runtime process says that belongs to no single attempt: recorded, not interpreted."""

from collections.abc import Callable

from proctor.errors import MachineError
from proctor.event.row import Dir, Row, Seen
from proctor.evidence.recorder import FrameLog
from proctor.evidence.redact import TextStream


class ProcessTap:
    """The process's own end of the connection. A disk that refuses is kept as `failure`."""

    def __init__(self, log: FrameLog) -> None:
        self.failure: MachineError | None = None
        self._log = log

    @property
    def rows(self) -> int:
        return self._log.head.rows

    def stage(self, dir_: Dir, data: bytes, *, stream: TextStream | None = None) -> None:
        if self.failure is None:
            self._log.stage(dir_, data, stream=stream)

    def commit(self) -> None:
        self._write(self._log.commit)

    def say(self, seen: Seen) -> None:
        self._write(lambda: (self._log.say(seen),))

    def release(self, key_prefix: str) -> None:
        self._write(lambda: self._log.release(key_prefix))

    def _write(self, write: Callable[[], tuple[Row, ...]]) -> None:
        if self.failure is not None:
            return
        try:
            write()
        except MachineError as error:
            self.failure = error
