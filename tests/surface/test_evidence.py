"""`proctor validate`, `proctor report` and `proctor attempt rederive`, on evidence of the real agent."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from proctor.evidence.layout import AttemptPaths
from tests.attempt.forge import alter_json, reseal
from tests.lab import Lab
from tests.surface.conftest import Quickstart, ask

pytestmark = pytest.mark.real_agent

DERIVED = ("tool.calls.jsonl", "transcript.jsonl")


def told(lab: Lab, *words: str) -> tuple[int, dict[str, Any]]:
    said = ask(lab, *words, "--json")
    assert said.stderr == ""
    return said.code, said.json


def flip_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def findings(examination: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (each["name"], finding["code"], finding["file"])
        for each in examination["examined"]
        for finding in each["findings"]
    }


def test_every_attempt_of_the_quickstart_is_strictly_valid_by_whatever_name(quickstart: Quickstart) -> None:
    lab = quickstart.lab
    [campaign] = (lab.root / "campaigns").iterdir()
    for words in ((), (str(lab.root),), (campaign.name,), (str(quickstart.folder("fix")),)):
        code, found = told(lab, "validate", "--strict", *words)
        assert (code, found["status"], findings(found)) == (0, "valid", set())
    said = lab.proctor("validate", "--strict", str(lab.root))
    assert (said.returncode, said.stdout) == (0, "valid: 4 attempts and 1 agent process, checked strictly\n")


@pytest.mark.requirement("evidence.integrity")
def test_one_flipped_byte_is_told_with_its_code_by_validate_report_and_explain(quickstart: Quickstart) -> None:
    lab = quickstart.lab
    flip_a_byte(quickstart.folder("fix") / "transcript.jsonl")
    code, found = told(lab, "validate")
    assert (code, found["status"]) == (5, "invalid")
    assert findings(found) == {("fix.codex.r1.1", "evidence.digest", "transcript.jsonl")}
    assert lab.proctor("validate", "--strict").stdout.splitlines()[-1] == (
        "invalid: 1 of 4 attempts (1 agent process checked, none invalid); checked strictly"
    )
    code, report = told(lab, "report")
    row = next(row for row in report["attempts"] if row["missionId"] == "fix")
    assert (code, row["evidence"], row["summary"]["verified"]) == (5, "invalid", None)
    said = ask(lab, "attempt", "explain", "fix")
    assert (said.code, said.stdout.split("\n", 1)[0]) == (
        5,
        "fix.codex.r1.1   recorded as completed, but the evidence is DAMAGED",
    )
    assert re.search(r"DAMAGED\n  evidence\.digest +transcript\.jsonl +altered", said.stdout)
    assert "Verified\n  unknown: the evidence is damaged\n" in said.stdout
    story = told(lab, "attempt", "explain", "fix")[1]
    assert (story["verified"], story["expectationMet"], story["evidence"]) == (None, None, "invalid")
    command = f"proctor attempt rederive {quickstart.folder('fix')} --root {lab.root}"
    assert story["next"] == [f"Move transcript.jsonl away, then run `{command}`."]


def test_an_attempt_without_its_seal_is_partial_alone_and_invalid_to_a_ledger_that_knew_it(
    quickstart: Quickstart,
) -> None:
    folder = quickstart.folder("ask")
    (folder / "seal.json").unlink()
    code, found = told(quickstart.lab, "validate", "--strict", str(folder))
    assert (code, found["status"], findings(found)) == (
        4,
        "partial",
        {("ask.codex.r1.1", "evidence.partial", "seal.json")},
    )
    assert told(quickstart.lab, "report")[0] == 5


def test_a_report_that_its_frames_do_not_give_is_told_and_invalid_when_strict(quickstart: Quickstart) -> None:
    paths = AttemptPaths(quickstart.folder("ask"))
    report = json.loads(paths.report.read_text())
    alter_json(paths.report, metrics={**report["metrics"], "warnings": 7})
    reseal(paths)
    code, lenient = told(quickstart.lab, "report")
    [row] = [row for row in lenient["attempts"] if row["missionId"] == "ask"]
    assert (code, row["evidence"]) == (0, "valid")
    assert [finding["code"] for finding in row["findings"]] == ["evidence.derived"]
    code, strict = told(quickstart.lab, "report", "--strict")
    assert (code, strict["verdict"]) == (5, "evidence invalid")


def test_derived_files_that_are_gone_are_put_back_as_they_were_sealed(quickstart: Quickstart) -> None:
    lab, folder = quickstart.lab, quickstart.folder("fix")
    sealed = {name: (folder / name).read_bytes() for name in DERIVED}
    for name in DERIVED:
        (folder / name).unlink()
    command = f"proctor attempt rederive {folder} --root {lab.root}"
    assert told(lab, "attempt", "explain", "fix")[1]["next"] == [f"Run `{command}`."]
    code, checked = told(lab, "attempt", "rederive", "fix", "--check")
    assert (code, checked["files"]) == (5, dict.fromkeys(DERIVED, "absent"))
    assert not (folder / DERIVED[0]).exists()
    code, done = told(lab, "attempt", "rederive", "fix")
    assert (code, done["files"], done["findings"]) == (0, dict.fromkeys(DERIVED, "restored"), [])
    assert {name: (folder / name).read_bytes() for name in DERIVED} == sealed
    assert told(lab, "validate", "--strict")[0] == 0


def test_a_derived_file_that_differs_is_told_and_left_alone(quickstart: Quickstart) -> None:
    file = quickstart.folder("fix") / "tool.calls.jsonl"
    file.write_bytes(b"")
    for words in (("--check",), ()):
        code, done = told(quickstart.lab, "attempt", "rederive", "fix", *words)
        assert (code, done["files"]) == (5, {"tool.calls.jsonl": "differs", "transcript.jsonl": "same"})
        assert [finding["code"] for finding in done["findings"]] == ["evidence.derived"]
    assert file.read_bytes() == b""


def test_a_corrupt_folder_is_told_and_hides_no_other(quickstart: Quickstart) -> None:
    lab, folder = quickstart.lab, quickstart.folder("fix")
    (folder / "attempt.json").write_bytes(b"\xff\x00 junk")
    (folder / "frames.jsonl").unlink()
    (folder / "frames.jsonl").mkdir()
    code, report = told(lab, "report", "--strict")
    assert (code, [row["state"] for row in report["attempts"]]) == (5, ["sealed", "sealed", "unreadable", "sealed"])
    for command in ("explain", "show"):
        said = ask(lab, "attempt", command, "fix")
        assert (said.code, said.stderr) == (5 if command == "explain" else 0, "")
    said = ask(lab, "attempt", "rederive", "fix")
    assert (said.code, "code   evidence.syntax" in said.stderr) == (5, True)
