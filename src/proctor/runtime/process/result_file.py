"""Read the result file of a command, after its whole process tree has ended and without following links."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from proctor.event.row import ResultRead
from proctor.protocol.hand_in import MAX_MESSAGE_BYTES, read_file_result

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking, because opening a FIFO would otherwise wait for a writer forever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A result file below a folder."""

    folder: Path
    file: str

    @property
    def path(self) -> Path:
        return self.folder / self.file

    def stamp(self) -> tuple[int, ...] | None:
        """Return numbers that change with any change to the file. None if the file does not exist."""
        try:
            found = self.path.lstat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def read(self, *, before: tuple[int, ...] | None) -> ResultRead:
        """Return the result in the file, if the file was written after its stamp was `before`."""
        source = f"file {self.file}"

        def none(code: str, problem: str) -> ResultRead:
            return ResultRead(source=source, code=code, problem=problem)

        now = self.stamp()
        if now is None:
            return none("agent.result-missing", f"{self.file} does not exist")
        if now == before:
            return none("agent.result-missing", f"{self.file} was not written in this turn")
        try:
            left = read_file_result(self._bytes())
        except OSError as error:
            return none("agent.result-invalid", f"{self.file}: {error.strerror}")
        except ValueError as error:
            return none("agent.result-invalid", f"{self.file}: {error}")
        return ResultRead(source=source, done=left.done, answer=left.answer, result=left.result)

    def _bytes(self) -> bytes:
        """Read the file, opening folder by folder so that no link is followed."""
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
