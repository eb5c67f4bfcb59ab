"""Validation of a run: its attempts, its agent processes, and that together they hold every received frame."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import EvidenceError
from proctor.event.row import Direction, Row
from proctor.event.supervisor_events import dropped_thread
from proctor.evidence.artifacts import AttemptRecord, ProcessRecord, RunnerRef
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.digests import read_stamped
from proctor.evidence.disk import draft_path, unreadable
from proctor.evidence.layout import ATTEMPT, FRAMES, AttemptPaths, RunPaths, RuntimePaths, signature_path
from proctor.evidence.reader import Finding, read_rows
from proctor.evidence.validate import Validation, conclude, validate_attempt
from proctor.ids import ProcessId, RunId

Check = Callable[[AttemptFiles], Validation]
Seen = Callable[[AttemptFiles, Validation], None]
"""Called with each attempt that was validated, while its files are open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """What the run as a whole is checked by, taken from one attempt while its files are open."""

    name: str
    run_id: RunId | None
    """None if attempt.json cannot be read."""
    has_ref: bool
    """Whether runner.ref.json can be read. If not, the attempt may belong to any process."""
    processes: frozenset[ProcessId]
    """The agent processes that it used."""
    inbound_frames: Mapping[ProcessId, int] | None
    """The received frames by process. None if they cannot be counted."""


def validate_run(
    run: RunPaths, *, is_strict: bool, check: Check | None = None, seen: Seen | None = None
) -> tuple[Validation, ...]:
    """Validate the run's own folder, then its attempts (with `check`, if given), then its processes.

    Each file is opened once. Raises only what `seen` raises.
    """
    top = _Listing(run.folder)
    attempts_in = _Listing(run.folder / "attempts")
    runtimes_in = _Listing(run.folder / "runtimes")
    findings = [*top.not_folders({"attempts", "runtimes"}), *attempts_in.not_folders(), *runtimes_in.not_folders()]
    if not attempts_in.folders:
        code = "evidence.partial" if run.folder.is_dir() else "evidence.not-found"
        findings.append(Finding(code=code, file=run.folder.name, detail="the run has no attempts"))
    processes = [RuntimePaths(folder) for folder in runtimes_in.folders]
    results: list[Validation] = []
    members: list[_Member] | None = [] if is_strict else None
    for folder in attempts_in.folders:
        with AttemptFiles(AttemptPaths(folder)) as files:
            result = check(files) if check else validate_attempt(files, is_strict=is_strict)
            results.append(result)
            if members is not None:
                members.append(_member(files, result))
            if seen is not None:
                seen(files, result)
    if members is not None:
        findings += _check_members(run, members, processes)
    return (
        conclude("run", run.folder.name, findings),
        *results,
        *(conclude("process", each.folder.name, _check_process(each, members)) for each in processes),
    )


class _Listing:
    """The entries of a folder of a run, by kind. An absent folder has none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._findings: list[Finding] = []
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
            self._findings.append(Finding.of(unreadable(error, path=folder)))

    @property
    def folders(self) -> list[Path]:
        return [self._folder / name for name in self._folders]

    def not_folders(self, known: set[str] | None = None) -> Iterator[Finding]:
        """Yield a finding for each entry that is not a folder, or not one of the known names."""
        yield from self._findings
        for name in [*self._files, *(name for name in self._folders if known is not None and name not in known)]:
            file = f"{self._folder.name}/{name}"
            yield Finding(code="evidence.extra-file", file=file, detail="not a part of a run")
        for name in self._others:
            file = f"{self._folder.name}/{name}"
            yield Finding(code="evidence.containment", file=file, detail="neither a file nor a folder")

    def not_files(self, known: set[str]) -> Iterator[Finding]:
        """Yield a finding for each entry that is not a regular file, or not one of the known names."""
        yield from self._findings
        for name in [*self._folders, *self._others]:
            yield Finding(code="evidence.containment", file=name, detail="not a regular file")
        for name in self._files:
            if name not in known:
                yield Finding(code="evidence.extra-file", file=name, detail="not a file of a process")


def _member(files: AttemptFiles, result: Validation) -> _Member:
    # What cannot be read is reported by the attempt's own validation.
    record: AttemptRecord | None = None
    ref: RunnerRef | None = None
    with suppress(EvidenceError):
        record = files.record
    with suppress(EvidenceError):
        ref = files.runner_ref
    is_cut_off = any(finding.code == "evidence.partial" for finding in result.findings)
    last = None if ref is None else ref.process_id
    is_counted = ref is not None and not is_cut_off
    inbound = _count_inbound(files.rows(FRAMES, Row), last=last) if is_counted else Counter[ProcessId]()
    return _Member(
        name=files.paths.folder.name,
        run_id=None if record is None else record.run_id,
        has_ref=ref is not None,
        processes=frozenset(inbound if last is None else {*inbound, last}),
        inbound_frames=inbound if is_counted else None,
    )


def _count_inbound(rows: Iterable[Row], *, last: ProcessId | None) -> Counter[ProcessId]:
    """Count the received frames by process. The last process is that of the frames after the last thread was left."""
    counts, since = Counter[ProcessId](), 0
    for row in rows:
        if row.dir is Direction.IN:
            since += 1
        elif (left := dropped_thread(row)) is not None and left.process is not None:
            counts[left.process] += since
            since = 0
    if last is not None:
        counts[last] += since
    return counts


def _check_members(run: RunPaths, members: Sequence[_Member], processes: Sequence[RuntimePaths]) -> Iterator[Finding]:
    """Yield a finding for each attempt of another run, and for each absent process that an attempt names."""
    process_ids = {paths.folder.name for paths in processes}
    for member in members:
        for process_id in sorted(member.processes - process_ids):
            detail = f"absent, but {member.name} names it as its process"
            yield Finding(code="evidence.missing-file", file=f"runtimes/{process_id}", detail=detail)
        if member.run_id is not None and member.run_id != run.folder.name:
            detail = f"run {member.run_id!r}, but the folder is {run.folder.name!r}"
            yield Finding(code="evidence.ids", file=f"attempts/{member.name}/{ATTEMPT}", detail=detail)


def _check_process(paths: RuntimePaths, members: Sequence[_Member] | None) -> Iterator[Finding]:
    """Check one process. Without `members`, only its record and the names of its files."""
    record: ProcessRecord | None = None
    try:
        record = read_stamped(paths.record, ProcessRecord)
    except EvidenceError as error:
        yield Finding.of(error)
    last_file = signature_path(paths.record) if record else draft_path(paths.record)
    yield from _Listing(paths.folder).not_files({FRAMES, paths.record.name, last_file.name})
    if members is None:
        return
    reading = read_rows(paths.frames, Row)
    rows = Counter(row.dir.value for row in reading)
    if record is None:
        # A process that was cut off may not have written any frame.
        yield from (finding for finding in reading.findings if finding.code != "evidence.missing-file")
        return
    yield from reading.findings
    if record.process_id != paths.folder.name:
        detail = f"process {record.process_id!r}, but the folder is {paths.folder.name!r}"
        yield Finding(code="evidence.ids", file=paths.record.name, detail=detail)
    if reading.head != record.stream:
        detail = f"its {reading.head.rows} rows do not end as {paths.record.name} records for {record.stream.rows} rows"
        yield Finding(code="evidence.chain", file=FRAMES, detail=detail)
    if rows != record.rows:
        detail = f"the rows by direction are {dict(rows)}, but {paths.record.name} says {record.rows}"
        yield Finding(code="evidence.counts", file=FRAMES, detail=detail)
    yield from _check_frame_count(record, rows[Direction.IN], members)


def _check_frame_count(record: ProcessRecord, own_frames: int, members: Sequence[_Member]) -> Iterator[Finding]:
    """Check that the received frames are those in the process's own record plus those of its attempts."""
    own_members = [member for member in members if not member.has_ref or record.process_id in member.processes]
    uncountable = [member.name for member in own_members if member.inbound_frames is None]
    if uncountable:
        more = f" and {len(uncountable) - 1} more" if len(uncountable) > 1 else ""
        detail = f"the frames of {uncountable[0]}{more} cannot be counted"
        yield Finding(code="evidence.partial", file=FRAMES, detail=detail)
        return
    member_frames = sum((member.inbound_frames or {}).get(record.process_id, 0) for member in own_members)
    if own_frames + member_frames != record.frames_in:
        detail = f"{record.frames_in} frames came in, but {own_frames} + {member_frames} are recorded"
        yield Finding(code="evidence.counts", file=FRAMES, detail=detail)
