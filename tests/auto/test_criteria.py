"""Criteria of an auto run: read by the spec loader, with errors at the lines of their own file."""

from pathlib import Path

import pytest

from proctor.auto.criteria import criteria_digest, load_goal, read_project_criteria
from proctor.errors import InputError
from proctor.spec.criteria_file import CriteriaSpec
from proctor.spec.load import LoadedSpec

GOOD = """\
protect: [tests/**]
probes:
  - kind: headless_run
    criterion: the program greets
    command: ./greet
"""


def load(folder: Path, text: str) -> LoadedSpec:
    path = folder / "criteria.yaml"
    path.write_text(text)
    (folder / "steps.yaml").write_text("version: 1\nsteps: [say: Done.]\n")
    (folder / "tree").mkdir(exist_ok=True)
    return load_goal(
        "Greet.",
        read_project_criteria(path),
        folder=folder,
        workspace={"copy": "tree"},
        flow={"runtime": ["codex_app_server"]},
        settings={"limits": {"turn": "1m"}},
        script="steps.yaml",
    )


def refused(folder: Path, text: str) -> tuple[InputError, ...]:
    with pytest.raises(InputError) as error:
        load(folder, text)
    return tuple(error.value.all_errors)


def test_criteria_become_those_of_the_mission(tmp_path: Path) -> None:
    [mission] = load(tmp_path, GOOD).missions
    assert (mission.prompt, mission.protect, len(mission.probes)) == ("Greet.", ["tests/**"], 1)


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        (GOOD.replace("command", "comand"), 5, "comand"),
        (GOOD.replace("headless_run", "headles_run"), 3, "headless_run"),
        (GOOD.replace("    command: ./greet\n", ""), 3, "command"),
        (GOOD + "prompt: Do it.\n", 6, "prompt"),
        (GOOD + "overlay: nowhere\n", 6, "nowhere"),
        ("probes: {", 1, ""),
        ("task_class: clii\n", 1, "clii"),
    ],
)
def test_errors_are_at_the_lines_of_the_criteria_file(tmp_path: Path, text: str, line: int, word: str) -> None:
    error = refused(tmp_path, text)[0]
    assert (error.file, error.line) == (str(tmp_path / "criteria.yaml"), line)
    assert word in f"{error.what} {error.suggestion}"


def test_criteria_without_a_probe_are_refused(tmp_path: Path) -> None:
    [error] = refused(tmp_path, "protect: [a]\n")
    assert (error.code, error.key) == ("spec.missing-key", "probes")


def test_digest_of_criteria_covers_their_files_and_nothing_else(tmp_path: Path) -> None:
    golden = GOOD + "  - {kind: stdout_golden, cases: [{command: ./greet, golden: want.txt}]}\n"
    (tmp_path / "want.txt").write_text("hello\n")
    first = criteria_digest(load(tmp_path, golden), overlay=None)
    (tmp_path / "tree/other.txt").write_text("other\n")
    assert criteria_digest(load(tmp_path, f"# a comment\n{golden}"), overlay=None) == first
    (tmp_path / "want.txt").write_text("bye\n")
    assert criteria_digest(load(tmp_path, golden), overlay=None) != first


def test_criteria_may_be_built_in_python(tmp_path: Path) -> None:
    built = read_project_criteria(write(tmp_path)).value
    assert isinstance(built, CriteriaSpec)
    flow = {"runtime": ["codex_app_server"], "model": {"provider": "openai", "name": "m"}, "login": "api-key"}
    loaded = load_goal("Greet.", built, folder=tmp_path, workspace={}, flow=flow, settings={})
    assert loaded.is_built


def write(folder: Path) -> Path:
    path = folder / "criteria.yaml"
    path.write_text(GOOD)
    return path


def test_criteria_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_project_criteria(tmp_path / "criteria.yaml")
    assert error.value.code == "spec.unreadable"
