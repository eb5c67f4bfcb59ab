"""Clone a git repository for an agent: the history of one ref, without any reference to the original.

A shallow repository gives a shallow clone: its history ends at the same commits.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from proctor.errors import InputError, MachineError
from proctor.workspace.copy import unwritable
from proctor.workspace.git import GitRefusedError, escape_list_path, git
from proctor.workspace.name import quoted
from proctor.workspace.prepare import refuse_unsafe_entry
from proctor.workspace.remove import remove
from proctor.workspace.repository import SHALLOW
from proctor.workspace.walk import walk

BRANCH: Final = "main"

# The agent can commit under a neutral name. Automatic packing is off: its background process would outlive the agent.
_CONFIG: Final = """\
[user]
\tname = Agent
\temail = agent@example.invalid
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""


def clone(repository: Path, ref: str, *, into: Path, forbidden: Iterable[Path] = ()) -> None:
    """Create `into`, which must not exist, with one branch at `ref` and no other ref, tag, remote, hook or reflog.

    Raises InputError if `repository` is not the top of a repository, `ref` is not a commit, objects are missing, there
    are submodules or links that lead outside, or the history contains one of the `forbidden` files, which the agent
    must not see. Raises MachineError if git fails or `into` cannot be written.
    """
    source = _Source(repository)
    commit = source.resolve(ref)
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        into.mkdir(mode=0o700)
    except OSError as problem:
        raise unwritable(into, problem) from None
    try:
        _fill(source, commit, into=into)
        source.refuse_forbidden(forbidden, commit=commit, clone=into)
        for item in walk(into):
            refuse_unsafe_entry(into, item)
    except BaseException as problem:
        with suppress(OSError):
            remove(into)
        if isinstance(problem, GitRefusedError):
            raise MachineError("machine.git", f"cannot clone {source.place}: {problem}") from None
        raise


class _Source:
    """The user's repository. Only read-only git queries run in it."""

    def __init__(self, repository: Path) -> None:
        self.top = repository.resolve()
        self.place = quoted(str(repository))
        # Stops git from finding a repository in a parent folder instead of the named one.
        self._env = {"GIT_CEILING_DIRECTORIES": str(self.top.parent)}
        paths = ("--git-path", "objects", "--git-path", SHALLOW)
        query = ("rev-parse", "--show-object-format", *paths)
        try:
            self.format, objects, shallow = os.fsdecode(git(*query, cwd=self.top, env=self._env)).split("\n", 2)
        except GitRefusedError as refused:
            what = f"{self.place} is not the top of a git repository: {refused}"
            raise InputError("workspace.not-a-repository", what) from None
        self.objects = self.top / objects
        self.shallow = self.top / shallow.removesuffix("\n")

    def resolve(self, ref: str) -> str:
        """Return the id of the commit that `ref` names. Raises InputError if it names none."""
        try:
            if ref.startswith("-"):
                raise GitRefusedError("a ref does not begin with a dash")
            query = ("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
            return git(*query, cwd=self.top, env=self._env).decode().strip()
        except (GitRefusedError, ValueError):
            what = f"{quoted(ref)} is not a commit in {self.place}"
            raise InputError("workspace.ref", what, suggestion=self._suggest_refs()) from None

    def refuse_forbidden(self, forbidden: Iterable[Path], *, commit: str, clone: Path) -> None:
        for file in forbidden:
            real = file.resolve()
            if real.is_relative_to(self.top):
                query = ("rev-list", "--full-history", "--max-count=1", commit, "--", str(real.relative_to(self.top)))
                if git(*query, cwd=clone, env={"GIT_LITERAL_PATHSPECS": "1"}):
                    what = f"the history of the ref contains {file.name}, which the agent must not see"
                    suggestion = "Keep the spec and the scripts in another repository, or do not commit them."
                    raise InputError("spec.unsupported", what, suggestion=suggestion)

    def _suggest_refs(self) -> str:
        query = ("for-each-ref", "--format=%(refname:short)", "--count=8", "refs/heads", "refs/tags")
        names = git(*query, cwd=self.top, env=self._env).decode(errors="replace").split()
        if not names:
            return "The repository has no commit."
        return f"Use a commit id or a ref of the repository, such as {', '.join(names)}."


def _fill(source: _Source, commit: str, *, into: Path) -> None:
    git("init", "--quiet", f"--initial-branch={BRANCH}", f"--object-format={source.format}", ".", cwd=into)
    inside = into / ".git"
    with (inside / "config").open("a", encoding="utf-8") as config:
        config.write(_CONFIG)
    _copy_boundary(source, commit, inside=inside)
    with _requiring_objects(source):
        # Not `git clone`: that would run in the user's repository, with that repository's config.
        git(
            *("pack-objects", "--quiet", "--revs", str(inside / "objects" / "pack" / "pack")),
            cwd=into,
            env={"GIT_ALTERNATE_OBJECT_DIRECTORIES": escape_list_path(source.objects)},
            stdin=f"{commit}\n".encode(),
        )
    git("-c", "core.logAllRefUpdates=false", "update-ref", f"refs/heads/{BRANCH}", commit, cwd=into)
    git("read-tree", commit, cwd=into)
    for entry in git("ls-files", "--stage", "-z", cwd=into).split(b"\0"):
        if entry.startswith(b"160000 "):
            path = os.fsdecode(entry.partition(b"\t")[2])
            raise InputError("workspace.submodule", f"{source.place} has a submodule at {quoted(path)}")
    git("checkout-index", "--all", "--index", "--quiet", cwd=into)


def _copy_boundary(source: _Source, commit: str, *, inside: Path) -> None:
    """Let the history of the clone end where the history of a shallow source ends, and at no commit besides.

    The file of the source may name commits of other branches, which the agent must not see.
    """
    if not source.shallow.is_file():
        return
    boundary = inside / SHALLOW
    boundary.write_bytes(source.shallow.read_bytes())
    with _requiring_objects(source):
        env = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": escape_list_path(source.objects)}
        reachable = git("rev-list", commit, cwd=inside.parent, env=env).split()
    if kept := sorted({*boundary.read_bytes().split()} & {*reachable}):
        boundary.write_bytes(b"\n".join([*kept, b""]))
    else:
        boundary.unlink()


@contextmanager
def _requiring_objects(source: _Source) -> Iterator[None]:
    try:
        yield
    except GitRefusedError as refused:
        raise InputError("workspace.history", f"the history in {source.place} is incomplete: {refused}") from None
