"""Missions as a folder of Markdown files: each is read like one in the spec, and each fault names its own file."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from proctor.canonical import digest_bytes
from proctor.errors import CollectedInputError, InputError
from proctor.ids import MissionId
from proctor.spec.expect import ExpectSpec
from proctor.spec.load import load_built, load_spec
from proctor.spec.model import MissionSpec, WorkspaceSpec
from proctor.spec.source_file import MAX_FILE_BYTES

SPEC = """\
version: 1
campaign: night
missions: {folder: missions}
flows: [{id: native, runtime: [one]}]
"""
FIX = """\
---
# who, where
script: say.yaml
workspace: {copy: tree}
tags: [quick, greeting]
expect: {answer: "42"}
---

Fix `greet.py`.

---
Then stop.
"""

Folder: TypeAlias = Callable[..., Path]


@pytest.fixture
def spec(folder: Path) -> Folder:
    """Writes a spec with these mission files."""

    def write(**files: str | bytes) -> Path:
        (folder / "missions").mkdir(exist_ok=True)
        for name, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            (folder / "missions" / f"{name.replace('_', '-')}.md").write_bytes(data)
        (folder / "spec.yaml").write_text(SPEC)
        return folder / "spec.yaml"

    return write


def refusals(path: Path) -> list[tuple[str, str, int | None, str]]:
    """As (code, file, line, what), files as seen from the spec's folder."""
    with pytest.raises(InputError) as caught:
        load_spec(path)
    error = caught.value
    each = error.errors if isinstance(error, CollectedInputError) else (error,)
    return [(one.code, os.path.relpath(one.file or "", path.parent), one.line, one.what) for one in each]


@pytest.mark.requirement("campaign.matrix")
def test_every_file_is_a_mission_in_the_order_of_names(spec: Folder, folder: Path) -> None:
    path = spec(fix=FIX, ask="---\nscript: say.yaml\n---\nWhat is 6 * 7?\n")
    (folder / "missions" / "notes.txt").write_text("no mission")
    (folder / "missions" / ".#fix.md").write_text("an editor's own")
    loaded = load_spec(path)
    assert loaded.missions == (
        MissionSpec(id=MissionId("ask"), prompt="What is 6 * 7?", script="say.yaml"),
        MissionSpec(
            id=MissionId("fix"),
            prompt="Fix `greet.py`.\n\n---\nThen stop.",
            script="say.yaml",
            workspace=WorkspaceSpec(copy="tree"),
            tags=["quick", "greeting"],
            expect=ExpectSpec(answer="42"),
        ),
    )
    assert loaded.source_digests == {
        f"missions/{name}.md": digest_bytes((folder / "missions" / f"{name}.md").read_bytes())
        for name in ("ask", "fix")
    }
    assert (loaded.scripts, loaded.workspaces) == ({"say.yaml": folder / "say.yaml"}, {"tree": folder / "tree"})


def test_a_file_without_front_matter_is_a_prompt_and_nothing_else(folder: Path) -> None:
    (folder / "missions").mkdir()
    (folder / "missions" / "ask.md").write_bytes(b"\xef\xbb\xbfWhat?\r\n\r\n--- really ---\r\n")
    real = {"provider": "x", "name": "y"}
    built = {"version": 1, "campaign": "c", "missions": {"folder": "missions"}, "model": real, "login": "api-key"}
    loaded = load_built({**built, "flows": [{"id": "f", "runtime": ["one"]}]}, name="built", folder=folder)
    assert loaded.missions == (MissionSpec(id=MissionId("ask"), prompt="What?\r\n\r\n--- really ---"),)


@pytest.mark.requirement("campaign.matrix")
def test_all_faults_of_all_files_are_told_each_with_its_own_line(spec: Folder) -> None:
    path = spec(
        a_typo="---\nscript: say.yaml\n\nexpct: {}\n---\nGo.\n",
        b_id="---\nid: other\nscript: say.yaml\n---\nGo.\n",
        c_open="---\nscript: say.yaml\nGo.\n",
        d_empty="---\nscript: say.yaml\n---\n\n \n",
        e_bytes=b"---\nscript: say.yaml\n---\nfine\n\xff\n",
        f_type="---\nscript: [1]\ntags: quick\n---\nGo.\n",
        g_script="---\n{}\n---\nGo.\n",
        h_missing="---\nscript: sya.yaml\nworkspace: {copy: tere}\n---\nGo.\n",
        i_control="Go\n\0\n",
        j_twice="---\nscript: say.yaml\nscript: say.yaml\n---\nGo.\n",
        k_yaml="---\nscript: [\n---\nGo.\n",
        Bad_Name="---\nscript: say.yaml\n---\nGo.\n",
    )
    told = refusals(path)
    assert {(code, file, line) for code, file, line, _ in told} == {
        ("spec.unknown-key", "missions/a-typo.md", 4),
        ("spec.unknown-key", "missions/b-id.md", 2),
        ("spec.syntax", "missions/c-open.md", 1),
        ("spec.missing-key", "missions/d-empty.md", 4),
        ("spec.syntax", "missions/e-bytes.md", 5),
        ("spec.type", "missions/f-type.md", 2),
        ("spec.type", "missions/f-type.md", 3),
        ("spec.missing-key", "missions/g-script.md", 1),
        ("spec.missing-file", "missions/h-missing.md", 2),
        ("spec.missing-file", "missions/h-missing.md", 3),
        ("spec.syntax", "missions/i-control.md", 2),
        ("spec.duplicate-key", "missions/j-twice.md", 3),
        ("spec.syntax", "missions/k-yaml.md", 2),
        ("spec.type", "missions/Bad-Name.md", 1),
    }
    assert len(told) == 14
    files = [file for _, file, _, _ in told]
    assert files == sorted(files, key=files.index), "what is wrong with a file stands together"


def test_a_bad_name_is_told_with_one_that_would_do(spec: Folder) -> None:
    path = spec(README="---\nscript: say.yaml\n---\nGo.\n")
    with pytest.raises(InputError) as caught:
        load_spec(path)
    assert caught.value.suggestion == "Rename the file to `readme.md`, or move it out of the folder."


def test_a_secret_written_out_in_a_mission_file_is_refused_and_not_repeated(spec: Folder) -> None:
    path = spec(fix="---\nscript: say.yaml\n---\nLog in.\nUse sk-proj-4f9a8b7c6d5e4f3a.\n")
    assert refusals(path) == [
        ("spec.secret-literal", "missions/fix.md", 4, "the value looks like a secret"),
    ]


def test_links_that_lead_in_circles_huge_files_and_folders_named_like_missions_are_refused(
    spec: Folder, folder: Path
) -> None:
    path = spec(fix=FIX)
    missions = folder / "missions"
    (missions / "a.md").symlink_to("b.md")
    (missions / "b.md").symlink_to("a.md")
    (missions / "c.md").symlink_to("nowhere.md")
    (missions / "d.md").mkdir()
    with (missions / "e.md").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    os.mkfifo(missions / "f.md")
    assert refusals(path) == [
        ("spec.unreadable", "missions/a.md", None, "this file cannot be read: Too many levels of symbolic links"),
        ("spec.unreadable", "missions/b.md", None, "this file cannot be read: Too many levels of symbolic links"),
        ("spec.unreadable", "missions/c.md", None, "this file does not exist"),
        ("spec.unreadable", "missions/d.md", None, "this is a folder, not a file"),
        ("spec.unreadable", "missions/e.md", None, "the file is larger than 4 MiB"),
        ("spec.unreadable", "missions/f.md", None, "this is not a regular file"),
    ]


def _missing(missions: Path) -> None:
    missions.rename(missions.with_name("mission"))


def _a_file(missions: Path) -> None:
    missions.rmdir()
    missions.write_text("no folder")


def _a_circle(missions: Path) -> None:
    missions.rmdir()
    missions.symlink_to("missions")


def _empty(missions: Path) -> None:
    (missions / "notes.txt").touch()


@pytest.mark.parametrize(
    ("make", "code", "what"),
    [
        (_missing, "spec.missing-file", "`missions` does not exist"),
        (_a_file, "spec.missing-file", "`missions` is a file, not a folder"),
        (_a_circle, "spec.unreadable", "`missions` cannot be read: Too many levels of symbolic links"),
        (_empty, "spec.missing-file", "the folder `missions` contains no mission: no file name ends in .md"),
    ],
)
def test_a_folder_that_holds_no_missions_is_told_at_its_line_of_the_spec(
    spec: Folder, folder: Path, make: Callable[[Path], Any], code: str, what: str
) -> None:
    path = spec()
    make(folder / "missions")
    assert refusals(path) == [(code, "spec.yaml", 3, what)]


def test_a_folder_that_may_not_be_read_is_told(spec: Folder, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = spec(fix=FIX)
    real = os.scandir

    def deny(place: Any) -> Any:
        # Whoever runs this as root may read everything.
        if Path(place) == folder / "missions":
            raise PermissionError(13, "Permission denied")
        return real(place)

    monkeypatch.setattr(os, "scandir", deny)
    assert refusals(path) == [("spec.unreadable", "spec.yaml", 3, "`missions` cannot be read: Permission denied")]


def test_a_workspace_that_holds_the_mission_files_is_refused(spec: Folder, folder: Path) -> None:
    path = spec(fix=FIX.replace("copy: tree", "copy: missions"))
    assert refusals(path) == [
        (
            "spec.unsupported",
            "missions/fix.md",
            4,
            "the workspace `missions` contains fix.md, which the agent must not see",
        )
    ]
