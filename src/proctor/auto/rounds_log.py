"""rounds.jsonl: the chained rows of an auto run, each durable before the next step begins."""

import os
from pathlib import Path
from typing import Final

from proctor.auto.model import AnyAutoRow
from proctor.errors import EvidenceError, MachineError, disk_error
from proctor.evidence.chain import ChainHead, chain_rows
from proctor.evidence.disk import sync_folder
from proctor.evidence.reader import Reading

TORN: Final = "evidence.torn"


class RoundsLog:
    """The log of one run, opened by the process that holds the run."""

    def __init__(self, path: Path) -> None:
        """Read the rows that exist. A half-written last row is cut off: its step did not begin.

        Raises EvidenceError for any other damage, and MachineError if the disk refuses.
        """
        self._path = path
        self._rows, self._head, size_bytes = _read(path)
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            if os.fstat(self._fd).st_size != size_bytes:
                os.ftruncate(self._fd, size_bytes)
        except OSError as error:
            raise disk_error(error, path=path) from error
        self._is_broken = False
        sync_folder(path.parent)

    @property
    def rows(self) -> tuple[AnyAutoRow, ...]:
        """All rows, oldest first."""
        return tuple(self._rows)

    def append(self, row: AnyAutoRow) -> None:
        """Write one row, and return when it is on disk.

        Raises MachineError if the disk refuses, and then takes no more rows.
        """
        if self._is_broken:
            raise MachineError("machine.unwritable", "a row could not be written before", file=str(self._path))
        head = ChainHead(self._head.rows, self._head.prev)
        data = chain_rows([row], head=head)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
            os.fsync(self._fd)
        except OSError as error:
            self._is_broken = True
            raise disk_error(error, path=self._path) from error
        self._head = head
        self._rows.append(row)

    def close(self) -> None:
        os.close(self._fd)


def read_rounds(path: Path) -> tuple[AnyAutoRow, ...]:
    """Return the complete rows of a run that another process may be writing. Raises EvidenceError for damage."""
    return tuple(_read(path)[0])


def _read(path: Path) -> tuple[list[AnyAutoRow], ChainHead, int]:
    if not path.exists():
        return [], ChainHead(), 0
    reading: Reading[AnyAutoRow] = Reading(path, AnyAutoRow)
    rows = list(reading)
    damage = next((each for each in reading.findings if each.code != TORN), None)
    if damage is not None:
        raise EvidenceError(damage.code, damage.detail, file=damage.file, line=damage.line)
    data = path.read_bytes()
    size_bytes = data.rfind(b"\n") + 1
    return rows, ChainHead(reading.head.rows, reading.head.head), size_bytes
