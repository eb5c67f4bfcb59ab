"""A whole run: each attempt, each runtime process, and that together they hold every frame that came in."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import EvidenceError
from proctor.event.row import Dir, Row
from proctor.evidence.artifacts import AttemptRecord, ProcessRecord, RunnerRef
from proctor.evidence.disk import beside, unreadable
from proctor.evidence.layout import ATTEMPT, FRAMES, AttemptPaths, RunPaths, RuntimePaths, signature_beside
from proctor.evidence.reader import Problem, read_artifact, read_rows
from proctor.evidence.seal import read_stamped
from proctor.evidence.validate import Validation, conclude, validate_attempt

Check = Callable[[AttemptPaths], Validation]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """An attempt as a part of the count. Without a readable `ref` it may belong to any process."""

    paths: AttemptPaths
    ref: RunnerRef | None
    is_cut_off: bool


def validate_run(run: RunPaths, *, is_strict: bool, check: Check | None = None) -> tuple[Validation, ...]:
    """The run's own folder, then its attempts as `check` finds them, then its processes. Never raises."""
    top = _Listing(run.folder)
    attempts_in = _Listing(run.folder / "attempts")
    runtimes_in = _Listing(run.folder / "runtimes")
    problems = [*top.not_folders({"attempts", "runtimes"}), *attempts_in.not_folders(), *runtimes_in.not_folders()]
    if not attempts_in.folders:
        code = "evidence.partial" if run.folder.is_dir() else "evidence.not-found"
        problems.append(Problem(code=code, file=run.folder.name, detail="no attempts here"))
    attempts = [AttemptPaths(folder) for folder in attempts_in.folders]
    processes = [RuntimePaths(folder) for folder in runtimes_in.folders]
    found = [check(paths) if check else validate_attempt(paths, is_strict=is_strict) for paths in attempts]
    members = [_member(paths, each) for paths, each in zip(attempts, found, strict=True)] if is_strict else None
    if members is not None:
        problems += _loose_ends(run, members, processes)
    return (
        conclude("run", run.folder.name, problems),
        *found,
        *(conclude("process", each.folder.name, _check_process(each, members)) for each in processes),
    )


class _Listing:
    """What a folder of a run holds; one that is absent holds nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._problems: list[Problem] = []
        self._folders: list[str] = []
        self._files: list[str] = []
        self._others: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    is_folder, is_file = entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False)
                    kind = self._folders if is_folder else self._files if is_file else self._others
                    kind.append(entry.name)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._problems.append(Problem.of(unreadable(error, path=folder)))

    @property
    def folders(self) -> list[Path]:
        return [self._folder / name for name in self._folders]

    def not_folders(self, known: set[str] | None = None) -> Iterator[Problem]:
        """Everything that is no folder, or none of those known."""
        yield from self._problems
        for name in [*self._files, *(name for name in self._folders if known is not None and name not in known)]:
            file = f"{self._folder.name}/{name}"
            yield Problem(code="evidence.extra-file", file=file, detail="not a part of a run")
        for name in self._others:
            file = f"{self._folder.name}/{name}"
            yield Problem(code="evidence.containment", file=file, detail="neither a file nor a folder")

    def not_files(self, known: set[str]) -> Iterator[Problem]:
        """Everything that is no regular file, or none of those known."""
        yield from self._problems
        for name in [*self._folders, *self._others]:
            yield Problem(code="evidence.containment", file=name, detail="not a regular file")
        for name in self._files:
            if name not in known:
                yield Problem(code="evidence.extra-file", file=name, detail="not a file of a process")


def _member(paths: AttemptPaths, found: Validation) -> _Member:
    is_cut_off = any(problem.code == "evidence.partial" for problem in found.problems)
    try:
        ref = read_artifact(paths.runner_ref, RunnerRef)
    except EvidenceError:  # the attempt's own validation has said so
        ref = None
    return _Member(paths=paths, ref=ref, is_cut_off=is_cut_off)


def _loose_ends(run: RunPaths, members: Sequence[_Member], processes: Sequence[RuntimePaths]) -> Iterator[Problem]:
    """Attempts of another run, and processes that an attempt names but that are gone."""
    there = {paths.folder.name for paths in processes}
    for member in members:
        name = member.paths.folder.name
        if member.ref is not None and member.ref.process_id is not None and member.ref.process_id not in there:
            detail = f"{name} was run by it"
            yield Problem(code="evidence.missing-file", file=f"runtimes/{member.ref.process_id}", detail=detail)
        try:
            run_id = read_artifact(member.paths.attempt, AttemptRecord).run_id
        except EvidenceError:  # the attempt's own validation has said so
            continue
        if run_id != run.folder.name:
            detail = f"run {run_id!r}, but the folder is {run.folder.name!r}"
            yield Problem(code="evidence.ids", file=f"attempts/{name}/{ATTEMPT}", detail=detail)


def _check_process(paths: RuntimePaths, members: Sequence[_Member] | None) -> Iterator[Problem]:
    """Without members only what the process's own record says of itself."""
    record: ProcessRecord | None = None
    try:
        record = read_stamped(paths.record, ProcessRecord)
    except EvidenceError as error:
        yield Problem.of(error)
    late = signature_beside(paths.record) if record else beside(paths.record)
    yield from _Listing(paths.folder).not_files({FRAMES, paths.record.name, late.name})
    if members is None:
        return
    reading = read_rows(paths.frames, Row)
    rows = Counter(row.dir.value for row in reading)
    if record is None:
        # One that was cut off may have had no time to write any.
        yield from (problem for problem in reading.problems if problem.code != "evidence.missing-file")
        return
    yield from reading.problems
    if record.process_id != paths.folder.name:
        detail = f"process {record.process_id!r}, but the folder is {paths.folder.name!r}"
        yield Problem(code="evidence.ids", file=paths.record.name, detail=detail)
    if reading.head != record.stream:
        detail = f"ends with row {reading.head.rows}, and not as row {record.stream.rows} was recorded"
        yield Problem(code="evidence.chain", file=FRAMES, detail=detail)
    if rows != record.rows:
        detail = f"{dict(rows)}, but {paths.record.name} says {record.rows}"
        yield Problem(code="evidence.counts", file=FRAMES, detail=detail)
    yield from _census(record, rows[Dir.IN], members)


def _census(record: ProcessRecord, own: int, members: Sequence[_Member]) -> Iterator[Problem]:
    """The law: frames in = the process's own + those of its attempts."""
    mine = [member for member in members if member.ref is None or member.ref.process_id == record.process_id]
    unsure = [member.paths.folder.name for member in mine if member.ref is None or member.is_cut_off]
    if unsure:
        more = f" and {len(unsure) - 1} more" if len(unsure) > 1 else ""
        detail = f"the frames of {unsure[0]}{more} cannot be counted"
        yield Problem(code="evidence.partial", file=FRAMES, detail=detail)
        return
    theirs = sum(row.dir is Dir.IN for member in mine for row in read_rows(member.paths.frames, Row))
    if own + theirs != record.frames_in:
        detail = f"{record.frames_in} frames came in, but {own} + {theirs} are recorded"
        yield Problem(code="evidence.counts", file=FRAMES, detail=detail)
