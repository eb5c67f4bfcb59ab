"""The real Codex in a private clone: it sees nothing later than the ref, reaches nobody's repository, and is seen."""

from pathlib import Path

import pytest

from tests.lab import Lab, jsonl, mission, report_of, say_done
from tests.workspace.repositories import git, with_a_later_fix
from tests.workspace.test_clone import everything

pytestmark = pytest.mark.real_agent

PROBE = {"kind": "headless_run", "command": ["python3", "greet.py"], "stdout": "Hello, Ada\n"}
FIX = {"patch": {"file": "greet.py", "old": "print('Hello, Bob')", "new": "print('Hello, Ada')"}}


@pytest.mark.requirement("attempt.workspace")
def test_an_agent_with_full_access_finds_no_later_fix_commits_and_leaves_the_users_repository_alone(
    lab: Lab, tmp_path: Path
) -> None:
    source, base = with_a_later_fix(tmp_path / "mine")
    before = everything(source)
    look = (
        "git log --all --format=%s; git reflog; git stash list; git tag; git remote -v; git fsck --lost-found;"
        " git cat-file --batch-all-objects --batch-check | wc -l; git grep -h Ada $(git rev-list --all); git status -s"
    )
    keep = (
        "git switch -q -c mine && git commit -qam 'Greet Ada' && git config core.hooksPath /tmp && git log --format=%s"
    )
    work = mission(
        "fix",
        {"run": look},
        FIX,
        {"run": keep},
        say_done("fixed"),
        workspace={"git": str(source), "ref": "base"},
        probes=[PROBE, {"kind": "headless_run", "command": "git log -1 --format=%s", "stdout": "Greet Ada\n"}],
        expect={
            "verified": "yes",
            "outcome": "completed",
            "answer": "fixed",
            "workspace": {"changed": [".git/refs/heads/mine"], "untouched": [".git/refs/heads/main"]},
        },
    )
    lab.run(lab.write_spec([work], flow={"isolation": "process", "sandbox": "danger-full-access"}, repeats=2))

    attempts = list(lab.attempts().values())
    assert [report_of(paths).expectation.met for paths in attempts] == [True, True]
    assert everything(source) == before
    for paths in attempts:
        looked, _, kept = jsonl(paths.tool_calls)
        objects = len(git("rev-list", "--objects", base, cwd=source).splitlines())
        assert looked["output"].split("\n") == ["base", "first", str(objects), ""]
        assert kept["output"] == "Greet Ada\nbase\nfirst\n"
        told = [line for line in paths.workspace_diff.read_text().splitlines() if line.startswith("# git: ")]
        assert told[0].startswith(f"# git: HEAD was refs/heads/main at {base}, is refs/heads/mine at ")
        assert [line.split(" ", 5)[-1] for line in told if " new commit " in line] == ["Greet Ada"]
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("attempt.workspace")
def test_in_its_own_sandbox_the_agent_may_edit_and_look_but_not_commit(lab: Lab, tmp_path: Path) -> None:
    source, _ = with_a_later_fix(tmp_path / "mine")
    work = mission(
        "fix",
        {"run": "git log --all --format=%s; git -c core.hooksPath=/x commit --allow-empty -qm no; echo rc=$?"},
        FIX,
        say_done(),
        workspace={"git": str(source), "ref": "base"},
        probes=[PROBE],
    )
    lab.run(lab.write_spec([work]))

    [paths] = lab.attempts().values()
    output = jsonl(paths.tool_calls)[0]["output"]
    assert output.startswith("base\nfirst\n")
    assert "Read-only file system" in output
    # git writes to stderr, whose place among the lines of stdout is not fixed.
    assert "rc=128\n" in output
    assert report_of(paths).verified is True
    changes = paths.workspace_diff.read_text()
    assert changes.startswith("diff --git a/greet.py b/greet.py\n"), "the agent's sandbox left no trace in .git"


def test_a_ref_that_is_not_there_is_told_with_its_line_and_what_there_is(lab: Lab, tmp_path: Path) -> None:
    source, _ = with_a_later_fix(tmp_path / "mine")
    spec = lab.write_spec([mission("fix", say_done(), workspace={"git": str(source), "ref": "bsae"})])

    said = lab.proctor("run", str(spec), COLUMNS="1000")

    line = next(at for at, text in enumerate(spec.read_text().splitlines(), 1) if "ref: bsae" in text)
    words = " ".join(said.stderr.split())
    assert said.returncode == 2
    assert f"bsae is not a commit in {source}" in words
    assert f"{spec}:{line}: missions[0].workspace.ref" in words
    assert "Use a commit id or a ref of the repository, such as main, release, base, fixed, told." in words
