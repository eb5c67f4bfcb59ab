"""A repository in a workspace counts by what it means, and is never run."""

import os
from pathlib import Path

import pytest

from proctor.workspace.changed import ChangedPaths, changed_in
from proctor.workspace.clone import clone
from proctor.workspace.diff import diff
from proctor.workspace.prepare import prepare
from proctor.workspace.repository import Repository
from proctor.workspace.snapshot import remove_leftovers, snapshot

from .repositories import commit, git, init, with_a_later_fix
from .test_diff import apply


@pytest.fixture
def base(tmp_path: Path) -> Path:
    source, _ = with_a_later_fix(tmp_path / "mine")
    clone(source, "base", into=tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def w(base: Path, tmp_path: Path) -> Path:
    prepare(base, into=tmp_path / "w")
    return tmp_path / "w"


def told(base: Path | None, w: Path, *, start: str = "# ") -> list[str]:
    """The lines of the diff that are no diff."""
    return [line for line in diff(base, w).decode().splitlines() if line.startswith(start)]


def test_how_a_repository_is_stored_does_not_count(base: Path, w: Path) -> None:
    before = snapshot(w)
    head = git("rev-parse", "HEAD", cwd=w)
    assert before.repository == Repository(head="ref: refs/heads/main", refs=(("refs/heads/main", head),))
    assert [entry.path for entry in before.entries] == [
        *(".git", ".git/HEAD", ".git/config", "docs", "docs/a file.txt", "greet.py"),
    ]

    os.utime(w / "greet.py")
    git("status", cwd=w)
    git("pack-refs", "--all", cwd=w)
    git("repack", "-adq", cwd=w)
    git("hash-object", "-w", "greet.py", cwd=w)

    assert (w / ".git/packed-refs").exists()
    assert snapshot(w) == before
    assert diff(base, w) == b""


@pytest.mark.requirement("attempt.workspace")
def test_commits_branches_and_tags_of_the_agent_change_the_digest_and_are_told(base: Path, w: Path) -> None:
    was = git("rev-parse", "HEAD", cwd=w)
    first = commit(w, {"greet.py": "print('Hello, Ada')\n"}, "Greet Ada\n\nAs asked.")
    second = commit(w, {"note": "x\n"}, 'Two words: "é"')
    git("tag", "mine", cwd=w)
    git("switch", "--quiet", "--create", "side", cwd=w)
    third = commit(w, {}, "aside")

    assert snapshot(w).digest != snapshot(base).digest
    assert changed_in(diff(base, w).decode()).paths == (
        *(".git/HEAD", ".git/refs/heads/main", ".git/refs/heads/side", ".git/refs/tags/mine"),
        *(".git/COMMIT_EDITMSG", "greet.py", "note"),
    )
    assert told(base, w, start="# git: ") == [
        f"# git: HEAD was refs/heads/main at {was}, is refs/heads/side at {third}",
        f"# git: refs/heads/main was at {was}, is at {second}",
        f"# git: new refs/heads/side at {third}",
        f"# git: new refs/tags/mine at {second}",
        f"# git: new commit {third} aside",
        f'# git: new commit {second} "Two words: \\"é\\""',
        f"# git: new commit {first} Greet Ada",
    ]
    applied = apply(diff(base, w), to=base)
    assert (applied.returncode, applied.stderr) == (0, b"")
    assert (base / "greet.py").read_text() == "print('Hello, Ada')\n"


def test_a_branch_counts_though_not_a_file_has_changed(base: Path, w: Path) -> None:
    git("branch", "side", cwd=w)

    assert snapshot(w).digest != snapshot(base).digest
    assert changed_in(diff(base, w).decode()) == ChangedPaths(paths=(".git/refs/heads/side",))


def test_a_rewritten_history_a_detached_head_and_removed_refs_are_told(base: Path, w: Path) -> None:
    was = git("rev-parse", "HEAD", cwd=w)
    git("checkout", "--quiet", "--detach", "HEAD~1", cwd=w)
    git("branch", "--quiet", "-D", "main", cwd=w)
    now = git("rev-parse", "HEAD", cwd=w)
    git("reflog", "expire", "--expire=now", "--all", cwd=w)
    git("gc", "--quiet", "--prune=now", cwd=w)

    assert told(base, w, start="# git: ") == [
        f"# git: HEAD was refs/heads/main at {was}, is {now}",
        f"# git: removed refs/heads/main, was at {was}",
    ]
    assert changed_in(diff(base, w).decode()).paths[:2] == (".git/HEAD", ".git/refs/heads/main")


def test_config_and_hooks_count_as_content_and_are_told_by_digest(base: Path, w: Path) -> None:
    git("config", "alias.x", "!evil", cwd=w)
    (w / ".git/hooks").mkdir()
    (w / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")

    assert snapshot(w).digest != snapshot(base).digest
    was, now = snapshot(base).by_path, snapshot(w).by_path
    assert told(base, w) == [
        f"# removed file .git/config ({was['.git/config'].sha256})",
        f"# new file .git/config ({now['.git/config'].sha256})",
        f"# new file .git/hooks/pre-commit ({now['.git/hooks/pre-commit'].sha256})",
    ]
    assert apply(diff(base, w), to=base).returncode == 0


def test_a_repository_that_is_new_or_gone_is_told(base: Path, w: Path, tmp_path: Path) -> None:
    made = init(tmp_path / "made")
    head = commit(made, {"f": "x\n"}, "made here")
    assert told(None, made, start="# git: ") == [
        f"# git: new repository, HEAD is refs/heads/main at {head}",
        f"# git: new refs/heads/main at {head}",
        f"# git: new commit {head} made here",
    ]
    (w / ".git").rename(tmp_path / "taken")
    (w / ".git").mkdir()
    remove_leftovers(w, snapshot(base))
    assert told(base, w)[0] == "# git: the repository is gone"


def test_nothing_an_agent_puts_into_its_repository_is_run_or_blocks(base: Path, w: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    evil.chmod(0o755)
    commit(w, {".gitattributes": "* filter=evil\n"}, "quiet")
    with (w / ".git/config").open("a") as config:
        for section, key in (
            ("core", "fsmonitor"),
            ("core", "pager"),
            ("core", "sshCommand"),
            ("gpg", "program"),
            ('filter "evil"', "clean"),
            ('diff "evil"', "command"),
        ):
            config.write(f"[{section}]\n\t{key} = {evil}\n")
        config.write("[log]\n\tshowSignature = true\n[extensions]\n\tunheardOf = true\n")
    git_dir = w / ".git"
    os.mkfifo(git_dir / "refs/heads/pipe")
    (git_dir / "refs/heads/link").symlink_to("/etc/passwd")
    (git_dir / "refs/heads/long").write_text("x" * 100_000)
    (git_dir / "packed-refs").write_bytes(b"\xff\xfe\nno pair\n^peeled\n" + b"a" * 40 + b" refs/heads/b\xff d\n")

    lines = told(base, w)

    assert not ran.exists()
    assert "# git: new refs/heads/pipe at unreadable" in lines
    assert "# git: new refs/heads/link at unreadable" in lines
    assert f'# git: new "refs/heads/b\\377 d" at {"a" * 40}' in lines
    assert any(line.startswith("# git: new commit ") and line.endswith(" quiet") for line in lines)
    assert ".git/refs/heads/b\udcff d" in changed_in(diff(base, w).decode()).paths


def test_a_repository_whose_objects_are_gone_still_has_its_diff(base: Path, w: Path) -> None:
    commit(w, {"f": "x\n"}, "new")
    (w / ".git/objects").rename(w / ".git/away")

    assert "# git: the new commits are missing" in told(base, w)
    assert b"+x\n" in diff(base, w)
