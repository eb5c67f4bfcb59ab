import os
from pathlib import Path

import pytest

from proctor.errors import CODES, InputError
from proctor.workspace.clone import clone
from proctor.workspace.diff import diff
from proctor.workspace.prepare import prepare
from proctor.workspace.snapshot import snapshot

from .repositories import commit, git, init, with_a_later_fix
from .trees import read


def refusal(repository: Path, ref: str, into: Path, *, forbidden: tuple[Path, ...] = ()) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        clone(repository, ref, into=into, forbidden=forbidden)
    assert caught.value.code in CODES
    assert not into.exists()
    return caught.value.code, caught.value.what


def everything(root: Path) -> dict[str, tuple[object, ...]]:
    """All that git or we could have changed in a folder, times included."""
    return {
        str(path.relative_to(root)): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in sorted(root.rglob("*"))
    }


@pytest.mark.requirement("attempt.workspace")
@pytest.mark.parametrize("ref", ["base", "main~1", "refs/tags/base^{commit}", "the id"])
def test_nothing_later_than_the_ref_is_in_a_clone_wherever_one_looks(ref: str, tmp_path: Path) -> None:
    source, base = with_a_later_fix(tmp_path / "mine")
    reachable = {line.split()[0] for line in git("rev-list", "--objects", base, cwd=source).splitlines()}
    later = git("rev-parse", "fixed", cwd=source)

    clone(source, base if ref == "the id" else ref, into=tmp_path / "w")

    def ask(*words: str) -> str:
        return git(*words, cwd=tmp_path / "w")

    assert read(tmp_path / "w/docs") == {"a file.txt": b"text\n"}
    assert (tmp_path / "w/greet.py").read_text() == "print('Hello, Bob')\n"
    assert ask("log", "--all", "--format=%s").splitlines() == ["base", "first"]
    assert ask("for-each-ref", "--format=%(refname) %(objectname)") == f"refs/heads/main {base}"
    assert (ask("symbolic-ref", "HEAD"), ask("status", "--porcelain", "--ignored")) == ("refs/heads/main", "")
    assert (ask("reflog", "--all"), ask("stash", "list"), ask("tag"), ask("remote"), ask("notes")) == ("",) * 5
    assert ask("fsck", "--lost-found", "--full", "--strict") == ""
    stored = ask("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    assert set(stored) == reachable
    assert later not in stored
    assert not list((tmp_path / "w/.git").rglob("alternates"))


def test_a_clone_has_its_own_config_no_hook_and_no_word_of_where_it_came_from(tmp_path: Path) -> None:
    source, _ = with_a_later_fix(tmp_path / "mine")
    git("remote", "add", "origin", "ssh://example.invalid/repo", cwd=source)

    clone(source, "base", into=tmp_path / "w")

    inside = tmp_path / "w/.git"
    assert sorted(path.name for path in inside.iterdir()) == ["HEAD", "config", "index", "objects", "refs"]
    assert (inside / "config").read_text() == (
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
        "[user]\n\tname = Agent\n\temail = agent@example.invalid\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n"
    )
    assert not [path for path in inside.rglob("*") if path.is_file() and os.fsencode(source) in path.read_bytes()]
    assert (tmp_path / "w").stat().st_mode & 0o777 == 0o700


@pytest.mark.requirement("attempt.workspace")
def test_neither_cloning_nor_anything_done_in_a_clone_reaches_the_users_repository(tmp_path: Path) -> None:
    source, _ = with_a_later_fix(tmp_path / "mine")
    before = everything(source)

    clone(source, "base", into=tmp_path / "frozen")
    prepare(tmp_path / "frozen", into=tmp_path / "w")
    w = tmp_path / "w"
    (w / ".git/hooks").mkdir()
    (w / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
    (w / "greet.py").write_text("print('Hello, Ada')\n")
    git("commit", "--quiet", "--all", "--message", "mine", cwd=w)
    git("branch", "other", cwd=w)
    git("config", "core.hooksPath", "/somewhere", cwd=w)
    git("gc", "--quiet", "--prune=now", cwd=w)

    assert everything(source) == before


def test_every_copy_of_a_clone_has_the_clones_digest_and_works(tmp_path: Path) -> None:
    source, _ = with_a_later_fix(tmp_path / "mine")
    clone(source, "base", into=tmp_path / "one")
    clone(source, "main~1", into=tmp_path / "two")
    prepare(tmp_path / "one", into=tmp_path / "copy")

    digests = {snapshot(tmp_path / name).digest for name in ("one", "two", "copy")}
    assert len(digests) == 1
    assert git("status", "--porcelain", cwd=tmp_path / "copy") == ""
    clone(source, "main~2", into=tmp_path / "older")
    assert snapshot(tmp_path / "older").digest not in digests


def test_nothing_that_a_repository_or_the_user_configures_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = init(tmp_path / "mine")
    commit(source, {".gitattributes": "* filter=evil diff=evil merge=evil\n", "f": "as committed\n"}, "base")
    ran = tmp_path / "ran"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\necho $0 $@ >>{ran}\ncat\n")
    evil.chmod(0o755)
    hooks = tmp_path / "template/hooks"
    hooks.mkdir(parents=True)
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit", "post-commit"):
        for folder in (hooks, source / ".git/hooks"):
            folder.mkdir(exist_ok=True)
            (folder / name).symlink_to(evil)
    core = ("fsmonitor", "sshCommand", "editor", "pager", "gitProxy", "alternateRefsCommand")
    config = "".join(
        f"[{section}]\n\t{key} = {evil}\n"
        for section, key in (
            *(("core", key) for key in core),
            *(('filter "evil"', key) for key in ("smudge", "clean", "process")),
            *(('diff "evil"', key) for key in ("command", "textconv")),
            *(("alias", name) for name in ("init", "rev-parse", "pack-objects", "read-tree", "checkout-index")),
            ("uploadpack", "packObjectsHook"),
            ("credential", "helper"),
            ("gpg", "program"),
        )
    )
    config += f"[core]\n\thooksPath = {hooks}\n[init]\n\ttemplateDir = {hooks.parent}\n"
    config += '[filter "evil"]\n\trequired = true\n'
    (source / ".git/more").write_text(config)
    with (source / ".git/config").open("a") as file:
        file.write(f"[include]\n\tpath = more\n{config}")
    (tmp_path / "global").write_text(config)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "global"))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(hooks.parent))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(evil))

    clone(source, "main", into=tmp_path / "w")

    assert (tmp_path / "w/f").read_text() == "as committed\n"
    assert not ran.exists(), ran.read_text()
    assert not (tmp_path / "w/.git/hooks").exists()


def test_replaced_history_is_cloned_as_it_was_made(tmp_path: Path) -> None:
    source = init(tmp_path / "mine")
    commit(source, {"f": "1"}, "first")
    commit(source, {"f": "2"}, "base")
    last = commit(source, {"f": "3"}, "last")
    git("switch", "--quiet", "--orphan", "aside", cwd=source)
    commit(source, {"f": "fixed"}, "the fix")
    other = commit(source, {}, "after the fix")
    git("replace", last, other, cwd=source)

    clone(source, "main~1", into=tmp_path / "w")

    assert git("log", "--format=%s", cwd=tmp_path / "w").split() == ["base", "first"]


def test_a_linked_worktree_a_bare_repository_and_borrowed_objects_are_cloned_too(tmp_path: Path) -> None:
    source, base = with_a_later_fix(tmp_path / "mine: it's")
    git("worktree", "add", "--quiet", "--detach", str(tmp_path / "tree"), "base", cwd=source)
    git("clone", "--quiet", "--bare", str(source), str(tmp_path / "bare"), cwd=tmp_path)
    git("clone", "--quiet", "--shared", str(source), str(tmp_path / "shared"), cwd=tmp_path)
    for name, ref in ((source.name, "base"), ("tree", "HEAD"), ("bare", "base"), ("shared", "base")):
        into = tmp_path / "w" / name
        clone(tmp_path / name, ref, into=into)
        assert git("rev-parse", "HEAD", cwd=into) == base
        assert git("log", "--all", "--format=%s", cwd=into) == "base\nfirst"
        assert git("fsck", "--full", cwd=into) == ""


def test_a_repository_of_sha256_is_cloned_as_one(tmp_path: Path) -> None:
    source = init(tmp_path / "mine", "--object-format=sha256")
    base = commit(source, {"f": "x"}, "base")

    clone(source, "main", into=tmp_path / "w")

    assert (len(base), git("rev-parse", "HEAD", cwd=tmp_path / "w")) == (64, base)


def test_a_large_file_pointer_stays_the_pointer_it_is(tmp_path: Path) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12\n"
    source = init(tmp_path / "mine")
    commit(source, {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "big.bin": pointer}, "base")

    clone(source, "main", into=tmp_path / "w")

    assert (tmp_path / "w/big.bin").read_text() == pointer
    assert git("status", "--porcelain", cwd=tmp_path / "w") == ""


def test_a_submodule_is_refused_by_name(tmp_path: Path) -> None:
    inner = init(tmp_path / "inner")
    commit(inner, {"f": "x"}, "inner")
    source = init(tmp_path / "mine")
    git("submodule", "--quiet", "add", str(inner), "libs/inner one", cwd=source)
    commit(source, {}, "base")

    assert refusal(source, "main", tmp_path / "w") == (
        "workspace.submodule",
        f"{source} has a submodule at libs/inner one",
    )


@pytest.mark.trust
def test_clone_of_shallow_repository_is_shallow_and_hides_later_commits(tmp_path: Path) -> None:
    source, base = with_a_later_fix(tmp_path / "mine")
    shallow = tmp_path / "shallow"
    git("clone", "--quiet", "--depth=1", "--branch=base", f"file://{source}", str(shallow), cwd=tmp_path)
    git("fetch", "--quiet", "--depth=1", "origin", "main", cwd=shallow)

    clone(shallow, "base", into=tmp_path / "w")
    clone(shallow, "base", into=tmp_path / "again")

    work = tmp_path / "w"
    assert (work / ".git/shallow").read_text() == f"{base}\n", "not the other commit that was fetched"
    assert (work / "greet.py").read_text() == "print('Hello, Bob')\n"
    assert git("log", "--all", "--format=%s", cwd=work) == "base"
    assert (git("status", "--porcelain", "--ignored", cwd=work), git("fsck", "--full", "--strict", cwd=work)) == (
        "",
        "",
    )
    assert snapshot(work).digest == snapshot(tmp_path / "again").digest
    commit(work, {"greet.py": "print('Hello, Ada')\n"}, "the fix")
    described = diff(tmp_path / "again", work).decode()
    assert f"# git: new commit {git('rev-parse', 'HEAD', cwd=work)} the fix\n" in described


def test_a_history_that_has_holes_is_refused(tmp_path: Path) -> None:
    holed = init(tmp_path / "holed")
    commit(holed, {"f": "x"}, "first")
    blob = git("rev-parse", "HEAD:f", cwd=holed)
    (holed / ".git/objects" / blob[:2] / blob[2:]).unlink()

    code, what = refusal(holed, "main", tmp_path / "w")
    assert (code, what.startswith(f"the history in {holed} is incomplete: ")) == ("workspace.history", True)


@pytest.mark.parametrize(
    "ref", ["nowhere", "-h", "--all", "base^{tree}", "HEAD:greet.py", "a b", "base\0x", "f" * 40, ":/"]
)
def test_a_ref_that_is_no_commit_is_refused_and_what_there_is_named(ref: str, tmp_path: Path) -> None:
    source, _ = with_a_later_fix(tmp_path / "mine")

    with pytest.raises(InputError) as caught:
        clone(source, ref, into=tmp_path / "w")

    assert (caught.value.code, caught.value.suggestion) == (
        "workspace.ref",
        "Use a commit id or a ref of the repository, such as main, release, base, fixed, told.",
    )
    assert not (tmp_path / "w").exists()


def test_only_the_top_of_a_repository_will_do(tmp_path: Path) -> None:
    source, _ = with_a_later_fix(tmp_path / "mine")
    (tmp_path / "plain").mkdir()
    init(tmp_path / "empty")

    for place in (tmp_path / "plain", source / "docs"):
        code, what = refusal(place, "HEAD", tmp_path / "w")
        assert code == "workspace.not-a-repository"
        assert what.startswith(f"{place} is not the top of a git repository")
    assert refusal(tmp_path / "empty", "HEAD", tmp_path / "w")[0] == "workspace.ref"


def test_a_tracked_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    source = init(tmp_path / "mine")
    (source / "out").symlink_to("../../etc")
    commit(source, {}, "base")

    assert refusal(source, "main", tmp_path / "w") == (
        "workspace.link-out",
        "out is a link to ../../etc, outside the workspace",
    )


@pytest.mark.requirement("attempt.workspace")
def test_a_history_that_ever_held_what_the_agent_must_not_see_is_refused(tmp_path: Path) -> None:
    source = init(tmp_path / "mine")
    commit(source, {"f": "x"}, "first")
    git("switch", "--quiet", "--create", "side", cwd=source)
    commit(source, {"suite/*.yaml": "expected"}, "told")
    (source / "suite/*.yaml").unlink()
    commit(source, {}, "untold")
    git("switch", "--quiet", "main", cwd=source)
    commit(source, {"f": "y"}, "second")
    git("merge", "--quiet", "--no-edit", "side", cwd=source)
    (source / "suite").mkdir(exist_ok=True)
    (source / "suite/*.yaml").write_text("expected")
    (source / "suite/a.yaml").write_text("never committed")

    assert refusal(source, "main", tmp_path / "w", forbidden=(source / "suite/*.yaml",)) == (
        "spec.unsupported",
        "the history of the ref contains *.yaml, which the agent must not see",
    )
    clone(source, "main", into=tmp_path / "w", forbidden=(source / "suite/a.yaml", tmp_path / "elsewhere.yaml"))
