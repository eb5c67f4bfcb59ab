"""Read a recorded attempt for a replay: its rows in order, up to the point where the agent is killed."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from proctor.errors import EvidenceError, InputError
from proctor.event.row import Direction, Row
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.disk import open_regular
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import read_artifact, read_bytes, read_rows
from proctor.runtime.replay.options import AtByte, Options
from proctor.transport.replay import RecordedLine

# A row shows this character for bytes that were not UTF-8. Replayed as it is, it could make invalid JSON valid.
_NO_UTF8 = "\ufffd".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A recorded row, and its line on the channel; None for a row of the supervisor."""

    row: Row
    said: RecordedLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recorded attempt. `steps` end at the kill point, if it is reached; `rows` counts all rows."""

    attempt: AttemptRecord
    frames_sha256: str
    prompt: str | None
    steps: tuple[Step, ...]
    rows: int
    is_killed: bool
    problems: tuple[str, ...]


def read_attempt(options: Options) -> AttemptRecord:
    """Read the record of the attempt. Raises InputError if the folder does not contain an attempt."""
    try:
        return read_artifact(_paths(options).attempt, AttemptRecord)
    except EvidenceError as error:
        raise InputError("spec.missing-file", f"{options.attempt} is not the folder of an attempt: {error}") from error


def read_recording(options: Options) -> Recording:
    """Read a whole recording, even a damaged one: what cannot be read is listed in `problems`."""
    paths, attempt = _paths(options), read_attempt(options)
    reading = read_rows(paths.frames, Row)
    steps = [_step(row) for row in reading]
    kept = list(_until(steps, options.kill_at))
    is_killed = len(kept) < len(steps) or any(each.said is not None and each.said.is_torn for each in kept)
    problems = [f"{finding.file}:{finding.line}: {finding.detail}" for finding in reading.findings]
    if options.kill_at is not None and not is_killed:
        problems.append("the recording ends before kill_at")
    return Recording(
        attempt=attempt,
        frames_sha256=_sha256(paths.frames),
        prompt=_prompt(paths),
        steps=tuple(kept),
        rows=len(steps),
        is_killed=is_killed,
        problems=tuple(problems),
    )


def _paths(options: Options) -> AttemptPaths:
    return AttemptPaths(Path(options.attempt).expanduser())


def _sha256(frames: Path) -> str:
    try:
        with open_regular(frames) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except EvidenceError as error:
        return f"unreadable: {error.what}"


def _prompt(paths: AttemptPaths) -> str | None:
    try:
        return read_bytes(paths.prompt).decode(errors="replace")
    except EvidenceError:
        return None


def _step(row: Row) -> Step:
    if row.dir is Direction.SELF:
        return Step(row=row)
    if isinstance(row.frame, msgspec.Raw):
        data = bytes(row.frame)
    else:
        data = (row.text or "").encode(errors="replace").replace(_NO_UTF8, b"\xff")
    return Step(row=row, said=RecordedLine(dir=row.dir, data=data, at_ms=row.at_ms))


def _until(steps: list[Step], kill_at: Any) -> Iterator[Step]:
    """Yield the steps before the kill point. The line that contains it is cut off there."""
    left = kill_at.byte if isinstance(kill_at, AtByte) else None
    for step in steps:
        if isinstance(kill_at, int) and step.row.seq >= kill_at:
            return
        said = step.said
        if left is not None and said is not None and said.dir is Direction.IN:
            if left < len(said.encoded):
                if left:
                    yield replace(step, said=replace(said, data=said.data[:left], is_torn=True))
                return
            left -= len(said.encoded)
        yield step
