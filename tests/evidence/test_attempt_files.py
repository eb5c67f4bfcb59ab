"""AttemptFiles: each file of an attempt is opened once, whatever reads it."""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.attempt.expectation import expectation_of
from proctor.attempt.recheck import examine, examine_run
from proctor.attempt.rederive import rederive
from proctor.errors import EvidenceError
from proctor.event.row import Row
from proctor.evidence.artifacts import ProcessRecord
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.chain import ChainHead, chain_rows
from proctor.evidence.digests import measure
from proctor.evidence.layout import (
    ATTEMPT,
    FEEDBACK,
    FRAMES,
    PROBES,
    PROMPT,
    REPORT,
    RUNNER_REF,
    SEAL,
    SEALED,
    WORKSPACE_DIFF,
    AttemptPaths,
    RunPaths,
    RuntimePaths,
    write_artifact,
)
from proctor.evidence.reader import read_rows
from proctor.evidence.recorder import ChainedLog
from proctor.evidence.redact import Redactor
from proctor.evidence.seal import seal_process
from proctor.evidence.validate import Validation
from proctor.ids import ProcessId, RunId, RuntimeId
from proctor.probe.gate import decide
from proctor.report.view import view_attempt
from proctor.spec.expect import ExpectSpec, TraceExpect, WorkspaceExpect
from tests.attempt.forge import derive_anew, reseal
from tests.small_attempt import A1, ATTEMPT_RECORD, CLAIMED, NOTHING, REPORTED, RUNNER, make

RUN = RunId("r")
P1 = ProcessId("p-1")
CODEX = RuntimeId("codex_app_server")
READ_BY_ALL = ExpectSpec(trace=TraceExpect(max_tool_calls=0), workspace=WorkspaceExpect(only=[]))
INBOUND = {"atMs": 1, "dir": "in", "frame": {"method": "unheard/of"}}

_HOOKS: list[Callable[[str], None]] = []


def _hear_open(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _HOOKS and isinstance(arguments[0], str | Path):
        for hook in _HOOKS:
            hook(os.fspath(arguments[0]))


@pytest.fixture(scope="module", autouse=True)
def _audited() -> None:
    sys.addaudithook(_hear_open)  # cannot be removed; does nothing while there are no hooks


@contextmanager
def opens_in(folder: Path) -> Iterator[Counter[str]]:
    """Count the opens of each file below a folder."""
    counts: Counter[str] = Counter()
    inside = f"{folder}/"

    def count(path: str) -> None:
        if path.startswith(inside):
            counts[path.removeprefix(inside)] += 1

    _HOOKS.append(count)
    try:
        yield counts
    finally:
        _HOOKS.remove(count)


def strictly_valid(folder: Path) -> AttemptPaths:
    """A sealed attempt of a known runtime that every check finds valid, and whose expectation reads trace and diff."""
    record = msgspec.structs.replace(ATTEMPT_RECORD, runtime_id=CODEX, expect=READ_BY_ALL)
    ref = msgspec.structs.replace(RUNNER, runtime_id=CODEX, process_id=P1)
    paths = make(folder, artifacts={ATTEMPT: record, RUNNER_REF: ref}, rows={FRAMES: [INBOUND] * 3, PROBES: []})
    derive_anew(paths)
    with AttemptFiles(paths) as files:
        derived = rederive(files).derived
        decision = decide([], [], workspace_digest=NOTHING, base_digest=NOTHING)
        expectation = expectation_of(record, files, derived, decision)
    ending, claim = msgspec.structs.asdict(derived.ending), msgspec.structs.asdict(derived.claim)
    shared = {name: value for name, value in {**ending, **claim}.items() if name in REPORTED.__struct_fields__}
    own = {"metrics": derived.metrics, "expectation": expectation, "workspace_digest_after": NOTHING}
    own["reasons"] = ("the mission has no probe",)
    write_artifact(paths.report, msgspec.structs.replace(REPORTED, **shared, **own), redactor=None)
    write_artifact(paths.feedback, msgspec.structs.replace(CLAIMED, **claim), redactor=None)
    write_artifact(paths.runner_ref, msgspec.structs.replace(ref, facts=derived.facts), redactor=None)
    reseal(paths)
    return paths


def with_process(run: RunPaths, *, frames_in: int) -> RuntimePaths:
    paths = run.runtime(P1)
    paths.create()
    with ChainedLog(paths.frames) as log:
        log.append([INBOUND])
        head = log.head
    record = ProcessRecord(
        process_id=P1,
        runtime_id=CODEX,
        facts={},
        frames_in=frames_in,
        rows={"in": 1},
        stream=head,
        sha256="",
    )
    seal_process(paths, record, redactor=Redactor([]))
    return paths


# ── opened once ──


@pytest.mark.requirement("evidence.validate")
def test_a_strict_examination_opens_each_file_of_an_attempt_once(tmp_path: Path) -> None:
    paths = strictly_valid(tmp_path / A1)
    with opens_in(paths.folder) as opens, AttemptFiles(paths) as files:
        found = examine(files, is_strict=True)
    assert found.findings == ()
    assert opens == dict.fromkeys((*SEALED, SEAL), 1)


def test_a_strict_examination_of_a_run_opens_each_file_once(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / RUN)
    strictly_valid(run.folder / "attempts" / A1)
    with_process(run, frames_in=4)
    seen: list[tuple[Validation, str]] = []

    def take(files: AttemptFiles, validation: Validation) -> None:
        seen.append((validation, files.record.attempt_id))

    with opens_in(run.folder) as opens:
        whole, attempt, process = examine_run(run, is_strict=True, seen=take)

    assert [each.findings for each in (whole, attempt, process)] == [()] * 3
    assert seen == [(attempt, A1)]
    attempt_files = [f"attempts/{A1}/{name}" for name in (*SEALED, SEAL)]
    assert opens == dict.fromkeys([*attempt_files, f"runtimes/{P1}/{FRAMES}", f"runtimes/{P1}/process.json"], 1)


def test_the_frames_of_a_run_are_counted_while_each_attempt_is_open(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / RUN)
    strictly_valid(run.folder / "attempts" / A1)
    with_process(run, frames_in=5)
    *_, process = examine_run(run, is_strict=True)
    assert [each.detail for each in process.findings] == ["5 frames came in, but 1 + 3 are recorded"]


def test_a_view_opens_each_file_of_an_attempt_once(tmp_path: Path) -> None:
    paths = strictly_valid(tmp_path / A1)
    with opens_in(paths.folder) as opens, AttemptFiles(paths) as files:
        assert view_attempt(files).is_whole
    assert opens == dict.fromkeys((*SEALED, SEAL), 1)


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir() if path.exists()}


def test_closing_releases_every_descriptor(tmp_path: Path) -> None:
    paths = strictly_valid(tmp_path / A1)
    before = descriptors()
    with AttemptFiles(paths) as files:
        examine(files, is_strict=True)
        assert len(descriptors() - before) == len((*SEALED, SEAL))
    assert descriptors() <= before


# ── artifacts ──


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def test_an_artifact_is_decoded_once(tmp_path: Path) -> None:
    with AttemptFiles(make(tmp_path / A1)) as files:
        assert files.record == ATTEMPT_RECORD
        assert files.record is files.record
        assert files.seal is files.seal
        assert (files.report, files.runner_ref, files.feedback) == (REPORTED, RUNNER, CLAIMED)


@pytest.mark.parametrize(
    ("name", "damage", "code"),
    [
        (REPORT, lambda path: path.unlink(), "evidence.missing-file"),
        (REPORT, lambda path: path.write_bytes(b"{"), "evidence.syntax"),
        (REPORT, lambda path: path.write_bytes(b"{}"), "evidence.schema"),
        (REPORT, lambda path: (path.unlink(), path.symlink_to(FEEDBACK)), "evidence.containment"),
        (REPORT, replace_by_pipe, "evidence.containment"),
        (REPORT, lambda path: (path.unlink(), path.mkdir()), "evidence.containment"),
        (SEAL, lambda path: path.unlink(), "evidence.partial"),
        (SEAL, lambda path: path.write_bytes(path.read_bytes() + b"\n"), "evidence.seal"),
    ],
    ids=["absent", "torn", "other", "link", "pipe", "folder", "no seal", "changed seal"],
)
def test_a_second_read_raises_the_same_error(
    tmp_path: Path, name: str, damage: Callable[[Path], object], code: str
) -> None:
    paths = make(tmp_path / A1)
    damage(paths.folder / name)
    errors = []
    with opens_in(paths.folder) as opens, AttemptFiles(paths) as files:
        for _ in range(2):
            with pytest.raises(EvidenceError) as raised:
                files.seal if name == SEAL else files.report  # noqa: B018
            errors.append(raised.value)
    first, second = errors
    assert first is second
    assert (first.code, first.file) == (code, name)
    assert opens == {name: 1}


def test_a_file_that_appears_later_stays_absent(tmp_path: Path) -> None:
    paths = make(tmp_path / A1)
    data = paths.feedback.read_bytes()
    paths.feedback.unlink()
    with AttemptFiles(paths) as files:
        assert FEEDBACK not in files.entries()
        paths.feedback.write_bytes(data)
        assert not files.exists(FEEDBACK)
        assert FEEDBACK not in files.entries()


def test_reading_bytes_refuses_more_than_the_limit(tmp_path: Path) -> None:
    with AttemptFiles(make(tmp_path / A1, changes=b"12345")) as files:
        assert files.read_bytes(WORKSPACE_DIFF, limit_bytes=5) == b"12345"
        assert files.read_start(WORKSPACE_DIFF, size_bytes=4) == b"1234"
        with pytest.raises(EvidenceError, match="larger than 4 bytes"):
            files.read_bytes(WORKSPACE_DIFF, limit_bytes=4)


def test_every_file_measures_as_it_was_sealed(tmp_path: Path) -> None:
    paths = make(tmp_path / A1, changes=b"x" * 200_000)
    with AttemptFiles(paths) as files:
        assert {name: files.measure(name) for name in SEALED} == files.seal.files
        assert files.measure(SEAL) == measure(paths.seal)


# ── streams ──


def stream_in(folder: str, *, rows: int, size_bytes: int) -> AttemptPaths:
    paths = AttemptPaths(Path(folder))
    lines = [{"dir": "in", "atMs": at, "text": "x" * size_bytes} for at in range(rows)]
    paths.frames.write_bytes(chain_rows(lines, head=ChainHead()))
    return paths


@settings(deadline=None, max_examples=50)
@given(
    rows=st.integers(0, 20),
    # Rows that are longer than the buffer, too.
    size_bytes=st.sampled_from([0, 100, 5_000, 70_000]),
    turns=st.lists(st.integers(0, 2), max_size=60),
)
def test_interleaved_iterations_each_give_every_row(rows: int, size_bytes: int, turns: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = stream_in(folder, rows=rows, size_bytes=size_bytes)
        expected = list(read_rows(paths.frames, Row))
        with opens_in(paths.folder) as opens, AttemptFiles(paths) as files:
            readings = [files.rows(FRAMES, Row) for _ in range(3)]
            iterators = [iter(reading) for reading in readings]
            found: list[list[Row]] = [[], [], []]
            for turn in turns:
                found[turn] += [row for row in [next(iterators[turn], None)] if row is not None]
            for rows_so_far, rest in zip(found, iterators, strict=True):
                rows_so_far.extend(rest)
            again = list(readings[0])
        assert [*found, again] == [expected] * 4
        assert [(each.findings, each.head.rows) for each in readings] == [((), rows)] * 3
        assert opens == {FRAMES: 1}


def test_a_stream_that_cannot_be_opened_is_a_finding_each_time(tmp_path: Path) -> None:
    with AttemptFiles(AttemptPaths(tmp_path)) as files:
        reading = files.rows(FRAMES, Row)
        for _ in range(2):
            assert list(reading) == []
            assert [(each.code, each.file) for each in reading.findings] == [("evidence.missing-file", FRAMES)]


def test_nothing_is_read_after_closing(tmp_path: Path) -> None:
    """A descriptor's number may belong to another file by then."""
    paths = stream_in(str(tmp_path), rows=9, size_bytes=70_000)
    with AttemptFiles(paths) as files:
        rows = iter(files.rows(FRAMES, Row))
        next(rows)
    with pytest.raises(ValueError, match="closed"):
        list(rows)
    with pytest.raises(ValueError, match="closed"):
        files.read_bytes(PROMPT)
