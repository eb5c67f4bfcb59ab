"""A private clone of a repository: the ancestors of one ref, and no way back to where they came from."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from proctor.errors import InputError, MachineError
from proctor.workspace.copy import unwritable
from proctor.workspace.git import GitRefusedError, git, listed
from proctor.workspace.name import quoted
from proctor.workspace.prepare import refuse_what_reaches_out
from proctor.workspace.remove import remove
from proctor.workspace.walk import walk

BRANCH: Final = "main"

# An agent may commit, as nobody in particular; nothing is packed behind its back, by a process that outlives it.
_CONFIG: Final = """\
[user]
\tname = Agent
\temail = agent@example.invalid
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""


def clone(repository: Path, ref: str, *, into: Path, unseen: Iterable[Path] = ()) -> None:
    """Makes `into`, which must not exist, with one branch at `ref`: no other ref, tag, remote, hook or reflog.

    Refused are a ref that is no commit, a history that is not whole, submodules, links that lead out, and a history
    that holds one of the files that are to stay `unseen`.
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
        source.refuse_seen(unseen, commit=commit, clone=into)
        for item in walk(into):
            refuse_what_reaches_out(into, item)
    except BaseException as problem:
        with suppress(OSError):
            remove(into)
        if isinstance(problem, GitRefusedError):
            raise MachineError("machine.git", f"{source.place} cannot be cloned: {problem}") from None
        raise


class _Source:
    """The user's repository. git is asked in it where things are, and does nothing else there."""

    def __init__(self, repository: Path) -> None:
        self.top = repository.resolve()
        self.place = quoted(str(repository))
        # Only this folder: a repository that it lies in is not the one that was named.
        self._env = {"GIT_CEILING_DIRECTORIES": str(self.top.parent)}
        words = ("rev-parse", "--is-shallow-repository", "--show-object-format", "--git-path", "objects")
        try:
            shallow, self.format, objects = os.fsdecode(git(*words, cwd=self.top, env=self._env)).split("\n", 2)
        except GitRefusedError as refused:
            what = f"{self.place} is not the top of a git repository: {refused}"
            raise InputError("workspace.not-a-repository", what) from None
        self.objects = self.top / objects.removesuffix("\n")
        if shallow == "true":
            raise InputError("workspace.history", f"{self.place} is a shallow clone: its history is cut off")

    def resolve(self, ref: str) -> str:
        """The commit's id."""
        try:
            if ref.startswith("-"):
                raise GitRefusedError("a ref does not begin with a dash")
            words = ("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
            return git(*words, cwd=self.top, env=self._env).decode().strip()
        except (GitRefusedError, ValueError):
            what = f"{quoted(ref)} names no commit in {self.place}"
            raise InputError("workspace.ref", what, suggestion=self._nearby()) from None

    def refuse_seen(self, unseen: Iterable[Path], *, commit: str, clone: Path) -> None:
        for file in unseen:
            real = file.resolve()
            if real.is_relative_to(self.top):
                words = ("rev-list", "--full-history", "--max-count=1", commit, "--", str(real.relative_to(self.top)))
                if git(*words, cwd=clone, env={"GIT_LITERAL_PATHSPECS": "1"}):
                    what = f"the history of the ref holds {file.name}, which the agent must never see"
                    suggestion = "Keep the spec and the scripts in another repository, or uncommitted."
                    raise InputError("spec.unsupported", what, suggestion=suggestion)

    def _nearby(self) -> str:
        words = ("for-each-ref", "--format=%(refname:short)", "--count=8", "refs/heads", "refs/tags")
        names = git(*words, cwd=self.top, env=self._env).decode(errors="replace").split()
        return f"It has {', '.join(names)}, and ids of commits." if names else "It has no commit."


def _fill(source: _Source, commit: str, *, into: Path) -> None:
    git("init", "--quiet", f"--initial-branch={BRANCH}", f"--object-format={source.format}", ".", cwd=into)
    inside = into / ".git"
    with (inside / "config").open("a", encoding="utf-8") as config:
        config.write(_CONFIG)
    with _history_is_whole(source):
        # Not `git clone`: that would run in the user's repository, under its config.
        git(
            *("pack-objects", "--quiet", "--revs", str(inside / "objects" / "pack" / "pack")),
            cwd=into,
            env={"GIT_ALTERNATE_OBJECT_DIRECTORIES": listed(source.objects)},
            stdin=f"{commit}\n".encode(),
        )
    git("-c", "core.logAllRefUpdates=false", "update-ref", f"refs/heads/{BRANCH}", commit, cwd=into)
    git("read-tree", commit, cwd=into)
    for entry in git("ls-files", "--stage", "-z", cwd=into).split(b"\0"):
        if entry.startswith(b"160000 "):
            path = os.fsdecode(entry.partition(b"\t")[2])
            raise InputError("workspace.submodule", f"{source.place} has a submodule at {quoted(path)}")
    git("checkout-index", "--all", "--index", "--quiet", cwd=into)


@contextmanager
def _history_is_whole(source: _Source) -> Iterator[None]:
    try:
        yield
    except GitRefusedError as refused:
        raise InputError("workspace.history", f"{source.place} does not hold all of it: {refused}") from None
