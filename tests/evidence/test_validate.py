"""Validation without an agent: a small attempt, made whole by the recorder and then made wrong in one thing."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.event.bounds import PREVIEW_BYTES, TEXT_BYTES
from proctor.event.trace import ToolCall
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.check_run import validate_run
from proctor.evidence.layout import (
    ATTEMPT,
    FEEDBACK,
    FRAMES,
    PROBES,
    PROMPT,
    REPORT,
    RUNNER_REF,
    SEAL,
    TOOL_CALLS,
    TRANSCRIPT,
    WORKSPACE_DIFF,
    AttemptPaths,
    RunPaths,
)
from proctor.evidence.reader import Finding
from proctor.evidence.validate import Status, Validation, conclude, validate_attempt
from proctor.ids import (
    AttemptId,
    ProcessId,
)
from tests.small_attempt import A1, ATTEMPT_RECORD, CALL, CLAIMED, LINE, REPORTED, RUNNER, make


def validated(paths: AttemptPaths, *, is_strict: bool) -> Validation:
    with AttemptFiles(paths) as files:
        return validate_attempt(files, is_strict=is_strict)


def strictly(paths: AttemptPaths) -> Validation:
    return validated(paths, is_strict=True)


def invalid(*findings: Finding, name: str = A1) -> Validation:
    return Validation(kind="attempt", name=name, status=Status.INVALID, findings=findings)


def test_a_whole_attempt_is_valid(tmp_path: Path) -> None:
    paths = make(tmp_path / A1)
    valid = Validation(kind="attempt", name=A1, status=Status.VALID, findings=())
    assert [validated(paths, is_strict=is_strict) for is_strict in (True, False)] == [valid, valid]


# ── what a seal does not show, because it was sealed so ──


def call(**changes: Any) -> list[ToolCall]:
    return [msgspec.structs.replace(CALL, **changes)]


@pytest.mark.requirement("evidence.bounds")
@pytest.mark.parametrize(
    ("rows", "detail"),
    [
        (
            {TRANSCRIPT: [msgspec.structs.replace(LINE, text="x" * TEXT_BYTES + "é")]},
            "a text of 65538 bytes exceeds 65536",
        ),
        ({TOOL_CALLS: call(input=["x" * TEXT_BYTES])}, "an input of 65540 bytes exceeds 65536"),
        ({TOOL_CALLS: call(input="é" * TEXT_BYTES, cut_input_bytes=1)}, "an input of 131072 bytes exceeds 65536"),
        ({TOOL_CALLS: call(output="x" * (PREVIEW_BYTES + 1))}, "an output of 16385 bytes exceeds 16384"),
        ({TOOL_CALLS: call(cut_output_bytes=8)}, "16384 bytes of output and 8 cut do not add up to 16391"),
        ({TOOL_CALLS: call(output_bytes=None)}, "16384 bytes of output and 7 cut do not add up to None"),
    ],
)
def test_a_text_over_its_bound_or_cut_by_another_count_is_found(
    tmp_path: Path, rows: Mapping[str, list[Any]], detail: str
) -> None:
    [file] = rows
    found = strictly(make(tmp_path / A1, rows=rows))
    assert found == invalid(Finding(code="evidence.bounds", file=file, line=1, detail=detail))


def test_an_input_that_was_cut_may_need_more_bytes_as_json_than_as_text(tmp_path: Path) -> None:
    rows = {TOOL_CALLS: call(input='"' * TEXT_BYTES, cut_input_bytes=1)}
    assert strictly(make(tmp_path / A1, rows=rows)).status == "valid"


OTHER = AttemptId("fix.native.r1.2")


@pytest.mark.requirement("evidence.validate")
@pytest.mark.parametrize(
    ("artifact", "detail"),
    [
        ((RUNNER_REF, {"attempt_id": OTHER}), f"attempt '{OTHER}', but attempt.json says '{A1}'"),
        ((FEEDBACK, {"attempt_id": OTHER}), f"attempt '{OTHER}', but attempt.json says '{A1}'"),
        ((REPORT, {"attempt_id": OTHER}), f"attempt '{OTHER}', but attempt.json says '{A1}'"),
        ((RUNNER_REF, {"runtime_id": "another"}), "runtimeId 'another', but attempt.json says 'some_agent'"),
        ((ATTEMPT, {"n": 3}), f"attempt '{A1}', but the trial says 'fix.native.r1.3'"),
    ],
    ids=str,
)
def test_files_that_speak_of_different_attempts_are_found(
    tmp_path: Path, artifact: tuple[str, Mapping[str, Any]], detail: str
) -> None:
    name, fields = artifact
    was = {ATTEMPT: ATTEMPT_RECORD, RUNNER_REF: RUNNER, FEEDBACK: CLAIMED, REPORT: REPORTED}[name]
    paths = make(tmp_path / A1, artifacts={name: msgspec.structs.replace(was, **fields)})
    assert strictly(paths) == invalid(Finding(code="evidence.ids", file=name, detail=detail))


@pytest.mark.requirement("evidence.validate")
def test_a_folder_of_another_name_is_found(tmp_path: Path) -> None:
    detail = f"attempt '{A1}', but the folder says 'elsewhere'"
    finding = Finding(code="evidence.ids", file=ATTEMPT, detail=detail)
    assert strictly(make(tmp_path / "elsewhere")) == invalid(finding, name="elsewhere")


def test_another_prompt_than_the_one_named_is_found(tmp_path: Path) -> None:
    finding = Finding(code="evidence.digest", file=PROMPT, detail="its digest is not the promptDigest of attempt.json")
    assert strictly(make(tmp_path / A1, prompt=b"Break it.\n")) == invalid(finding)


def test_a_text_that_is_none_is_found(tmp_path: Path) -> None:
    [finding] = strictly(make(tmp_path / A1, changes=b"\xff")).findings
    assert (finding.code, finding.file) == ("evidence.syntax", WORKSPACE_DIFF)


@pytest.mark.parametrize("said", [{}, {"frame": 1, "text": "both"}], ids=["neither", "both"])
def test_a_row_that_is_neither_a_frame_nor_a_text_is_found(tmp_path: Path, said: dict[str, Any]) -> None:
    paths = make(tmp_path / A1, rows={FRAMES: [{"atMs": 1, "dir": "in", **said}]})
    detail = "a row must have either a frame or a text"
    assert strictly(paths) == invalid(Finding(code="evidence.schema", file=FRAMES, line=1, detail=detail))


def test_a_sealed_row_of_another_shape_is_found(tmp_path: Path) -> None:
    paths = make(tmp_path / A1, rows={FRAMES: [{"atMs": 1, "dir": "sideways", "frame": {}}]})
    assert [(each.code, each.file, each.line) for each in strictly(paths).findings] == [("evidence.schema", FRAMES, 1)]


def test_a_quick_look_does_not_read_what_the_files_say(tmp_path: Path) -> None:
    paths = make(tmp_path / A1, prompt=b"Break it.\n")
    assert validated(paths, is_strict=False).status == "valid"


# ── what the machine does not let us read ──

LOOK = """
import sys
from pathlib import Path
import msgspec
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.check_run import validate_run
from proctor.evidence.layout import AttemptPaths, RunPaths
from proctor.evidence.validate import validate_attempt
with AttemptFiles(AttemptPaths(Path(sys.argv[1]))) as files:
    found = [validate_attempt(files, is_strict=True)]
found += validate_run(RunPaths(Path(sys.argv[1]).parent.parent), is_strict=True)
sys.stdout.buffer.write(msgspec.json.encode(found))
"""


def look_as_anybody(folder: Path) -> list[Validation]:
    # Root reads everything unless it lays down two capabilities.
    less = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"] if os.geteuid() == 0 else []
    done = subprocess.run([*less, sys.executable, "-c", LOOK, str(folder)], capture_output=True, timeout=60)
    assert done.stderr == b""
    return msgspec.json.decode(done.stdout, type=list[Validation])


def lock_every_file(folder: Path) -> set[str]:
    for file in folder.iterdir():
        file.chmod(0)
    return {ATTEMPT, PROMPT, FRAMES, TOOL_CALLS, TRANSCRIPT, RUNNER_REF, FEEDBACK, PROBES, WORKSPACE_DIFF, REPORT, SEAL}


def lock_the_folder(folder: Path) -> set[str]:
    folder.chmod(0)
    return {A1}


@pytest.mark.proctor_process
@pytest.mark.requirement("evidence.validate")
@pytest.mark.parametrize("lock", [lock_every_file, lock_the_folder])
def test_what_may_not_be_read_is_told(tmp_path: Path, lock: Callable[[Path], set[str]]) -> None:
    folder = make(tmp_path / "r" / "attempts" / A1).folder
    files = lock(folder)
    try:
        alone, run, in_run = look_as_anybody(folder)
    finally:
        folder.chmod(0o700)

    assert alone == in_run
    assert alone.status == "invalid"
    assert {(each.code, each.file) for each in alone.findings} == {("evidence.unreadable", file) for file in files}
    assert run.status == "valid"


@pytest.mark.proctor_process
def test_a_run_that_may_not_be_listed_is_told(tmp_path: Path) -> None:
    folder = make(tmp_path / "r" / "attempts" / A1).folder
    folder.parent.chmod(0)
    try:
        _, run = look_as_anybody(folder)
    finally:
        folder.parent.chmod(0o700)
    assert {each.code for each in run.findings} == {"evidence.unreadable", "evidence.partial"}
    assert run.status == "invalid"


@pytest.mark.requirement("evidence.validate")
def test_a_run_that_was_cut_off_before_its_first_attempt_is_partial(tmp_path: Path) -> None:
    [found] = validate_run(RunPaths(tmp_path), is_strict=True)
    assert (found.status, [finding.code for finding in found.findings]) == ("partial", ["evidence.partial"])


@pytest.mark.requirement("evidence.crash-safe")
def test_a_process_that_was_cut_off_before_its_first_row_is_partial(tmp_path: Path) -> None:
    """As kill -9 leaves it between the folder and the file."""
    RunPaths(tmp_path).runtime(ProcessId("p-1")).create()
    _, found = validate_run(RunPaths(tmp_path), is_strict=True)
    assert (found.kind, found.status, [finding.code for finding in found.findings]) == (
        "process",
        "partial",
        ["evidence.partial"],
    )


@pytest.mark.requirement("evidence.validate")
@pytest.mark.parametrize("place", ["nowhere", "file"])
def test_a_run_that_is_none_gets_a_code(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    [found] = validate_run(RunPaths(tmp_path / place), is_strict=True)

    assert (found.kind, found.name, found.status) == ("run", place, "invalid")
    assert "evidence.not-found" in {finding.code for finding in found.findings}


# ── what findings come to ──


@pytest.mark.requirement("evidence.integrity")
@pytest.mark.parametrize(
    ("codes", "status"),
    [
        ([], "valid"),
        (["evidence.partial"], "partial"),
        (["evidence.partial", "evidence.torn"], "partial"),
        (["spec.unknown-runtime"], "partial"),
        (["runtime.not-allowed"], "partial"),
        (["runtime.ambiguous"], "partial"),
        (["runtime.broken"], "partial"),
        (["evidence.torn"], "invalid"),
        (["evidence.torn", "spec.unknown-runtime"], "invalid"),
        (["evidence.partial", "evidence.chain"], "invalid"),
        (["evidence.partial", "evidence.missing-file"], "invalid"),
    ],
)
def test_only_a_cut_off_explains_a_torn_row_and_nothing_explains_more(codes: list[str], status: str) -> None:
    assert conclude("attempt", A1, [Finding(code=code, file="f") for code in codes]).status == status
