"""The first ten minutes of a new user: the commands of the README, in a repository with a failing test."""

import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from tests.lab import Lab
from tests.surface.repository import git, make_repository, write

BUG = "def add(a, b):\n    return a - b\n"
WITH_PYTEST = {
    "calc.py": BUG,
    "test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(2, 2) == 4\n",
    # Without the plugins of our own test environment, which take pytest three seconds to import in each of 12 runs.
    "pytest.ini": "[pytest]\naddopts = -p no:hypothesispytest -p no:xdist -p no:xdist.looponfail -p no:timeout\n",
}
WITH_MAKE = {
    "calc.py": BUG,
    "test_sum.sh": "test $(python3 -c 'import calc; print(calc.add(2, 2))') = 4\n",
    "Makefile": "test:\n\tbash test_sum.sh\n",
}
FIX = "-    return a - b\n+    return a + b\n"


def make_folder(lab: Lab, kind: str) -> Path:
    folder = lab.folder / "shop"
    match kind:
        case "repository":
            return make_repository(folder, WITH_PYTEST)
        case "shallow clone":
            make_repository(lab.folder / "origin", {"old.txt": "old"})
            write(lab.folder / "origin", WITH_MAKE)
            git(lab.folder / "origin", "add", "--all")
            git(
                lab.folder / "origin",
                *("-c", "user.name=A", "-c", "user.email=a@example.invalid", "commit", "--quiet", "--message", "two"),
            )
            git(lab.folder, "clone", "--quiet", "--depth=1", f"file://{lab.folder}/origin", str(folder))
            assert (folder / ".git/shallow").is_file()
        case "folder without git":
            write(folder, WITH_MAKE)
    return folder


@pytest.mark.long
@pytest.mark.trust
@pytest.mark.real_agent
@pytest.mark.agent("claude_code")
@pytest.mark.timeout(400)
@pytest.mark.requirement("surface.init")
@pytest.mark.parametrize("kind", ["repository", "shallow clone", "folder without git"])
def test_readme_commands_show_a_verified_fix_and_a_diff(lab: Lab, kind: str) -> None:
    project = Lab(make_folder(lab, kind), is_other_agent_allowed=True)
    before = {path.name: path.read_bytes() for path in project.folder.iterdir() if path.is_file()}
    # As for a user: evidence in the folder itself, and Python with pytest on PATH.
    env = {"PROCTOR_ROOT": "", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    began = project.proctor("init", **env)
    assert began.returncode == 0, began.stderr
    assert "changes calc.py: `return a - b` becomes `return a + b`" in began.stdout

    tried = project.proctor("try", "Make the tests pass", "--on", "codex,claude", "--offline", **env)
    assert tried.returncode == 0, tried.stdout + tried.stderr
    rows = {line[:14].strip(): line[14:].split() for line in tried.stdout.splitlines()[:5]}
    assert (rows["model"], rows["verified"]) == (["scripted"] * 2, ["yes"] * 2)
    assert "    -    return a - b\n    +    return a + b\n" in tried.stdout

    ran = project.proctor("run", "proctor.yaml", **env)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "  model   scripted: " in ran.stdout
    assert "With probes: 2 of 2 verified." in ran.stdout
    diffs = [Path(line.split()[-1]) for line in ran.stdout.splitlines() if line.endswith("/workspace.diff")]
    assert [FIX in (project.folder / diff).read_text() for diff in diffs] == [True, True]
    assert all("proctor" not in (project.folder / diff).read_text() for diff in diffs), "agents do not see the spec"
    after = {path.name: path.read_bytes() for path in project.folder.iterdir() if path.name in before}
    assert after == before, "the user's own files are not touched"


@pytest.mark.trust
@pytest.mark.requirement("surface.init")
def test_init_in_a_subfolder_works_on_the_whole_repository(lab: Lab) -> None:
    make_repository(lab.folder / "mono", {f"packages/shop/{name}": text for name, text in WITH_MAKE.items()})
    said = Lab(lab.folder / "mono/packages/shop").proctor("init", "--offline", "--json")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert (found["probe"], found["hasFix"]) == ("cd packages/shop && make test", True)
    spec = yaml.safe_load(Path(lab.folder / "mono/packages/shop/proctor.yaml").read_text())
    assert spec["missions"][0]["workspace"] == {"git": "../..", "ref": "HEAD"}
    assert git(lab.folder / "mono", "status", "--porcelain") == ""


@pytest.mark.trust
@pytest.mark.parametrize("command", [("init", "--offline"), ("try", "Do it", "--offline")])
def test_first_commands_refuse_a_dirty_tree_whose_head_passes(lab: Lab, command: tuple[str, ...]) -> None:
    """The failing test is not committed, so agents would not see it."""
    folder = make_repository(lab.folder / "shop", {**WITH_MAKE, "calc.py": BUG.replace("-", "+")})
    write(folder, {"calc.py": BUG})
    said = Lab(folder).proctor(*command, "--json")
    error = json.loads(said.stdout)["error"]
    assert (said.returncode, error["code"]) == (2, "task.nothing-fails")
    assert "`make test` passes already" in error["what"]
    assert "1 file is not committed" in error["what"]
    assert not (folder / "proctor.yaml").exists()
