"""Names under the evidence root, and files that are there whole or not at all."""

import errno
import os
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import EvidenceError, MachineError, disk_error
from proctor.evidence.artifacts import Feedback
from proctor.evidence.layout import SEAL, SEALED, AttemptPaths, RootPaths, write_artifact, write_text_artifact
from proctor.evidence.reader import read_artifact
from proctor.evidence.redact import Redactor
from proctor.ids import AttemptId, CampaignId, ProcessId, RunId, TrialId

FEEDBACK = Feedback(attempt_id=AttemptId("a.1"), claimed=True, answer="42", frame=7, problem=None, result=None)


@pytest.mark.requirement("evidence.layout")
def test_an_attempt_has_the_files_of_the_layout() -> None:
    paths = RootPaths(Path("root")).run(RunId("r1")).attempt(TrialId("fix.native.1"), n=2)

    folder = Path("root/runs/r1/attempts/fix.native.1.2")
    assert paths == AttemptPaths(folder)
    assert [
        paths.attempt,
        paths.prompt,
        paths.frames,
        paths.tool_calls,
        paths.transcript,
        paths.runner_ref,
        paths.feedback,
        paths.probes,
        paths.workspace_diff,
        paths.report,
        paths.seal,
    ] == [folder / name for name in (*SEALED, SEAL)]


def test_campaigns_and_runtime_processes_have_their_own_folders() -> None:
    root = RootPaths(Path("root"))

    assert root.run(RunId("r1")).runtime(ProcessId("p1")).frames == Path("root/runs/r1/runtimes/p1/frames.jsonl")
    assert root.campaign(CampaignId("c1")).ledger == Path("root/campaigns/c1/ledger.db")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc", "a/b", "a\0b", ".hidden", "a\n", "é", "x" * 300])
@pytest.mark.requirement("evidence.layout")
def test_an_id_that_could_lead_out_of_the_root_is_refused(name: str) -> None:
    with pytest.raises(EvidenceError) as refused:
        RootPaths(Path("root")).run(RunId(name))

    assert refused.value.code == "evidence.containment"


@settings(deadline=None)
@given(st.text())
def test_no_id_whatever_names_a_path_outside_its_folder(name: str) -> None:
    try:
        path = RootPaths(Path("root")).run(RunId(name)).folder
    except EvidenceError:
        return
    assert path.parent == Path("root/runs")
    assert os.path.normpath(path) == f"root/runs/{name}"


def test_what_exists_is_listed_in_order_and_links_are_not_followed(tmp_path: Path) -> None:
    root = RootPaths(tmp_path / "root")
    assert list(root.runs()) == []
    run = root.run(RunId("r1"))
    made = [run.attempt(TrialId("b"), n=1), run.attempt(TrialId("a"), n=1)]
    for paths in made:
        paths.create()
    (run.folder / "attempts" / "link.1").symlink_to(tmp_path)
    (run.folder / "attempts" / "stray.txt").touch()

    assert list(root.runs()) == [run]
    assert list(run.attempts()) == made[::-1]


def test_folders_and_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    paths = RootPaths(tmp_path / "root").run(RunId("r1")).attempt(TrialId("a"), n=1)
    before = os.umask(0)
    try:
        paths.create()
        write_artifact(paths.feedback, FEEDBACK, redactor=None)
    finally:
        os.umask(before)

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [paths.feedback, *paths.folder.parents][:5]}
    assert modes == {
        paths.feedback: 0o600,
        paths.folder.parent: 0o700,
        tmp_path / "root/runs/r1": 0o700,
        tmp_path / "root/runs": 0o700,
        tmp_path / "root": 0o700,
    }
    assert stat.S_IMODE(paths.folder.stat().st_mode) == 0o700


def test_an_attempts_folder_is_never_used_twice(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path / "a.1")
    paths.create()

    with pytest.raises(MachineError) as refused:
        paths.create()

    assert refused.value.code == "machine.unwritable"


def test_an_artifact_reads_back_and_is_fit_for_human_eyes(tmp_path: Path) -> None:
    path = tmp_path / "feedback.json"

    write_artifact(path, FEEDBACK, redactor=None)

    assert path.read_text() == (
        '{\n  "schemaVersion": 1,\n  "attemptId": "a.1",\n  "claimed": true,\n  "answer": "42",\n'
        '  "frame": 7,\n  "problem": null,\n  "result": null\n}\n'
    )
    assert read_artifact(path, Feedback) == FEEDBACK
    assert list(tmp_path.iterdir()) == [path]


def test_an_artifact_takes_the_place_of_an_older_one_even_after_a_write_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "feedback.json"
    (tmp_path / ".feedback.json.tmp").write_text('{"half": ' * 99)
    path.write_text("old")

    write_artifact(path, FEEDBACK, redactor=None, is_durable=False)

    assert read_artifact(path, Feedback) == FEEDBACK
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"schemaVersion": 2}, "evidence.version"),
        ({"surprise": 1}, "evidence.schema"),
        ({"claimed": "yes"}, "evidence.schema"),
    ],
)
def test_an_artifact_of_another_schema_is_told_apart(tmp_path: Path, change: dict[str, object], code: str) -> None:
    path = tmp_path / "feedback.json"
    path.write_bytes(msgspec.json.encode(msgspec.to_builtins(FEEDBACK) | change))

    with pytest.raises(EvidenceError) as refused:
        read_artifact(path, Feedback)

    assert (refused.value.code, refused.value.file) == (code, "feedback.json")


def test_text_that_utf8_cannot_spell_is_written_as_an_escape(tmp_path: Path) -> None:
    path = tmp_path / "workspace.diff"

    write_text_artifact(path, "naïve \udc80\n", redactor=Redactor([]))

    assert path.read_bytes() == "naïve \\udc80\n".encode()


def test_a_write_that_fails_leaves_nothing_behind_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "feedback.json"
    path.mkdir()

    with pytest.raises(MachineError) as refused:
        write_artifact(path, FEEDBACK, redactor=None)

    assert (refused.value.code, refused.value.file) == ("machine.unwritable", str(path))
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_a_file_is_a_typed_refusal(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("I am a file")

    with pytest.raises(MachineError) as refused:
        RootPaths(tmp_path / "root").run(RunId("r1")).attempt(TrialId("a"), n=1).create()

    assert refused.value.code == "machine.unwritable"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "machine.disk-full"),
        (errno.EDQUOT, "machine.disk-full"),
        (errno.EROFS, "machine.unwritable"),
        (errno.EACCES, "machine.unwritable"),
        (errno.EIO, "machine.exhausted"),
    ],
)
def test_the_machines_reason_becomes_a_code(number: int, code: str) -> None:
    told = disk_error(OSError(number, os.strerror(number)), path=Path("a.1/frames.jsonl"))

    assert (told.code, told.what, told.file) == (code, os.strerror(number), "a.1/frames.jsonl")
