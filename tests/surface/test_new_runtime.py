"""`proctor runtimes new`: a package that passes its own test as written, and names that are refused."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.lab import Lab

pytestmark = [pytest.mark.trust, pytest.mark.requirement("runtime.strategy.ids")]

# pip and hatchling as they are here: no index, and no environment for the build.
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_QUIET": "1"}


def environment_on_top_of_this_one(folder: Path) -> Path:
    """Return the Python of a new virtual environment that also has all packages of the present one."""
    venv.create(folder, symlinks=True)
    [site] = folder.glob("lib/python*/site-packages")
    (site / "parent.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return folder / "bin" / Path(sys.executable).name


@pytest.mark.proctor_process
def test_new_runtime_passes_its_own_test_with_the_printed_commands(tmp_path: Path) -> None:
    python = environment_on_top_of_this_one(tmp_path / "environment")

    def run(*words: str) -> str:
        env = {**os.environ, **OFFLINE}
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=150)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    shown = run(str(python), "-m", "proctor", "runtimes", "new", "mynah")
    install, test = [line.strip() for line in shown.partition("Next:")[2].splitlines() if line.strip()]
    assert install == f"{python} -m pip install --editable 'proctor-mynah[test]'"
    assert test == f"{python} -m pytest proctor-mynah"
    run("bash", "-c", install)
    assert "2 passed" in run("bash", "-c", test)
    listed = json.loads(run(str(python), "-m", "proctor", "runtimes", "list", "--json"))["runtimes"]
    assert [each["distributions"] for each in listed if each["id"] == "mynah"] == [["proctor-mynah"]]


def test_new_runtime_is_one_short_file_and_a_dialect(lab: Lab) -> None:
    written = json.loads(lab.proctor("runtimes", "new", "my_bird", "--json").stdout)

    assert (written["id"], written["folder"]) == ("my_bird", "proctor-my-bird")
    folder = lab.folder / "proctor-my-bird"
    sources = {path: (folder / path).read_text() for path in written["files"]}
    assert len(sources["src/proctor_my_bird/__init__.py"].splitlines()) < 200
    assert not any("mynah" in text.lower() for text in sources.values())
    assert 'my_bird = "proctor_my_bird.dialect"' in sources["pyproject.toml"]
    assert sources["proctor.toml"] == 'plugins = ["my_bird"]\n'


@pytest.mark.parametrize("name", ["", "My", "my-bird", "1st", "my__bird", "../up", "a" * 41, "mynäh"])
def test_new_runtime_refuses_a_name_that_is_no_id(lab: Lab, name: str) -> None:
    refused = lab.proctor("runtimes", "new", name)

    assert refused.returncode == 2
    assert f"{name!r} cannot be the id of a runtime" in refused.stderr
    assert "code   usage" in refused.stderr
    assert list(lab.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "owner"),
    [("process", "proctor-harness"), ("codex", "proctor-harness"), ("auto", "Proctor itself"), ("pi", "proctor-pi")],
)
def test_new_runtime_refuses_a_name_that_is_taken(lab: Lab, name: str, owner: str) -> None:
    refused = lab.proctor("runtimes", "new", name)

    assert (refused.returncode, list(lab.folder.iterdir())) == (2, [])
    assert f"{name!r} is used by {owner}" in refused.stderr


def test_new_runtime_leaves_an_existing_folder_unchanged(lab: Lab) -> None:
    (lab.folder / "proctor-mynah").mkdir()
    (lab.folder / "proctor-mynah" / "mine").write_text("mine")
    refused = lab.proctor("runtimes", "new", "mynah")

    assert refused.returncode == 2
    assert "the folder exists already, and was not changed\n  where  proctor-mynah\n" in refused.stderr
    assert [path.name for path in (lab.folder / "proctor-mynah").iterdir()] == ["mine"]


def test_new_runtime_in_a_folder_that_cannot_be_written_is_a_typed_error(lab: Lab) -> None:
    (lab.folder / "file").write_text("")
    refused = lab.proctor("runtimes", "new", "mynah", "--folder", "file")

    assert (refused.returncode, "Not a directory" in refused.stderr) == (3, True)
