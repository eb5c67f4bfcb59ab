"""The files of one attempt, each opened at most once and each JSON file decoded at most once."""

import io
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, RunnerRef, Seal, SealedFile
from proctor.evidence.digests import load_seal, measure_descriptor
from proctor.evidence.disk import buffer_descriptor, open_descriptor, read_start, unreadable
from proctor.evidence.layout import ATTEMPT, FEEDBACK, REPORT, RUNNER_REF, SEAL, AttemptPaths
from proctor.evidence.reader import MAX_ARTIFACT_BYTES, Reading, decode_artifact, read_whole

T = TypeVar("T")


class AttemptFiles:
    """The files of one attempt, each opened at most once. Use as a context manager: closing releases the descriptors.

    A file is opened when it is first read, as `disk.open_descriptor` does, and stays open. Decoded JSON files are kept;
    the content of other files is read again each time. A file that cannot be opened or decoded raises the same
    EvidenceError each time. After closing every read raises ValueError, also one of an iteration that began before.
    """

    def __init__(self, paths: AttemptPaths) -> None:
        self.paths = paths
        self._answers: dict[tuple[str, object], Any] = {}
        self._descriptors: list[int] = []
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file, and forget what was read."""
        self._is_closed = True
        self._answers.clear()
        while self._descriptors:
            os.close(self._descriptors.pop())

    # ── the folder ──

    def entries(self) -> Mapping[str, bool]:
        """Return the names in the folder, and whether each is a regular file. Listed once. Raises EvidenceError."""
        return self._once(("", "entries"), lambda: _list_entries(self.paths.folder))

    def exists(self, name: str) -> bool:
        """Whether the folder has an entry of this name, of any kind. If it was listed, the list decides."""
        entries = self._answers.get(("", "entries"))
        return name in entries if isinstance(entries, dict) else os.path.lexists(self.paths.folder / name)

    @property
    def is_sealed(self) -> bool:
        """Whether the folder has an entry seal.json, valid or not. Asked once."""
        return self._once((SEAL, "exists"), lambda: self.exists(SEAL))

    # ── any file ──

    def read_bytes(self, name: str, *, limit_bytes: int = MAX_ARTIFACT_BYTES) -> bytes:
        """Read a whole file. Raises EvidenceError if it cannot be read or is larger than the limit."""
        return read_whole(self._descriptor(name), file=name, limit_bytes=limit_bytes)

    def read_start(self, name: str, *, size_bytes: int) -> bytes:
        """Read the start of a file, at most `size_bytes`. Raises EvidenceError if it cannot be read."""
        return read_start(self._descriptor(name), size_bytes=size_bytes, file=name)

    def artifact(self, name: str, type_: type[T]) -> T:
        """Read a JSON file as a struct, once. Raises EvidenceError if it cannot be read or does not fit."""
        return self._once((name, type_), lambda: decode_artifact(self.read_bytes(name), type_, file=name))

    def rows(self, name: str, type_: type[T]) -> Reading[T]:
        """Read the rows of a stream lazily, as `reader.read_rows` does.

        Each iteration has its own position, so any number may follow each other or be interleaved, of one Reading or of
        several. `findings` and `head` of a Reading are those of its latest iteration.
        """
        return Reading(self.paths.folder / name, type_, open_file=self._open_buffered)

    def measure(self, name: str) -> SealedFile:
        """Return the digest and size of a file. Raises EvidenceError if it cannot be read."""
        return measure_descriptor(self._descriptor(name), file=name)

    # ── the JSON files ──

    @property
    def record(self) -> AttemptRecord:
        """attempt.json. Raises EvidenceError."""
        return self.artifact(ATTEMPT, AttemptRecord)

    @property
    def runner_ref(self) -> RunnerRef:
        """runner.ref.json. Raises EvidenceError."""
        return self.artifact(RUNNER_REF, RunnerRef)

    @property
    def feedback(self) -> Feedback:
        """feedback.json. Raises EvidenceError."""
        return self.artifact(FEEDBACK, Feedback)

    @property
    def report(self) -> AttemptReport:
        """attempt.report.json. Raises EvidenceError."""
        return self.artifact(REPORT, AttemptReport)

    @property
    def seal(self) -> Seal:
        """seal.json, which matches its own digest. Raises EvidenceError like `digests.load_stamped`."""
        return self._once((SEAL, "checked"), lambda: load_seal(lambda: self.read_bytes(SEAL), file=SEAL))

    # ── once ──

    def _open_buffered(self, path: Path) -> io.BufferedReader:
        self._descriptor(path.name)  # raises now, and not only when the first line is read
        return buffer_descriptor(lambda: self._descriptor(path.name))

    def _descriptor(self, name: str) -> int:
        return self._once((name, "open"), lambda: self._open(name))

    def _open(self, name: str) -> int:
        descriptor = open_descriptor(self.paths.folder / name)
        self._descriptors.append(descriptor)
        return descriptor

    def _once(self, key: tuple[str, object], answer: Callable[[], T]) -> T:
        """Return the first answer to a question, or raise the EvidenceError that it raised."""
        if self._is_closed:
            raise ValueError(f"the files of {self.paths.folder.name} are closed")
        if key not in self._answers:
            try:
                self._answers[key] = answer()
            except EvidenceError as error:
                self._answers[key] = error
                raise
        known: T | EvidenceError = self._answers[key]
        if isinstance(known, EvidenceError):
            raise known
        return known


def _list_entries(folder: Path) -> dict[str, bool]:
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise EvidenceError("evidence.containment", "not a folder", file=folder.name)
        with os.scandir(folder) as entries:
            return {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
    except FileNotFoundError as error:
        raise EvidenceError("evidence.not-found", "no such folder", file=folder.name) from error
    except OSError as error:
        raise unreadable(error, path=folder) from error
