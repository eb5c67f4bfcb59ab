"""The result that a command leaves in a file: read when all of it has ended, and never by way of a link."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from proctor.event.row import ResultRead
from proctor.protocol.handing_in import MAX_MESSAGE_BYTES, read_left

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking, because opening a FIFO would otherwise wait for a writer for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Place:
    """A file below a folder, both as they were named."""

    folder: Path
    file: str

    @property
    def path(self) -> Path:
        return self.folder / self.file

    def stamp(self) -> tuple[int, ...] | None:
        """What changes with every kind of change to the file; None where there is none."""
        try:
            found = self.path.lstat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def read(self, *, before: tuple[int, ...] | None) -> ResultRead:
        """What it holds, if it was written since `before` was its stamp."""
        source = f"file {self.file}"

        def none(code: str, problem: str) -> ResultRead:
            return ResultRead(source=source, code=code, problem=problem)

        now = self.stamp()
        if now is None:
            return none("agent.result-missing", f"there is no {self.file}")
        if now == before:
            return none("agent.result-missing", f"{self.file} is as it was before")
        try:
            left = read_left(self._bytes())
        except OSError as error:
            return none("agent.result-invalid", f"{self.file}: {error.strerror}")
        except ValueError as error:
            return none("agent.result-invalid", f"{self.file}: {error}")
        return ResultRead(source=source, done=left.done, answer=left.answer, result=left.result)

    def _bytes(self) -> bytes:
        """Folder by folder, so that no link on the way leads out of it."""
        *folders, name = PurePosixPath(self.file).parts
        held = [os.open(self.folder, _DIRECTORY)]
        try:
            for each in folders:
                held.append(os.open(each, _DIRECTORY, dir_fd=held[-1]))
            held.append(os.open(name, _FILE, dir_fd=held[-1]))
            if not stat.S_ISREG(os.fstat(held[-1]).st_mode):
                raise ValueError("not a regular file")
            return os.read(held[-1], MAX_MESSAGE_BYTES + 1)
        finally:
            for descriptor in held:
                with suppress(OSError):
                    os.close(descriptor)
