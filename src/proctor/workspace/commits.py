"""What an agent did to its repository, in lines that `git apply` passes over."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from proctor.errors import MachineError
from proctor.workspace.git import GitRefusedError, git, listed
from proctor.workspace.name import quoted
from proctor.workspace.repository import GIT, Repository

MAX_COMMITS: Final = 200
_TIMEOUT_S: Final = 30.0


def tell_repository(
    base: Repository | None, now: Repository | None, *, base_root: Path | None, now_root: Path
) -> Iterator[str]:
    """Without ends of line."""
    if base == now:
        return
    if now is None:
        yield "# git: the repository is gone"
        return
    if base is None:
        yield f"# git: new repository, HEAD is {quoted(now.at)}"
    elif base.at != now.at:
        yield f"# git: HEAD was {quoted(base.at)}, is {quoted(now.at)}"
    was, became = dict(base.refs) if base else {}, dict(now.refs)
    for name in sorted({*was, *became}):
        if name not in was:
            yield f"# git: new {quoted(name)} at {quoted(became[name])}"
        elif name not in became:
            yield f"# git: removed {quoted(name)}, was at {quoted(was[name])}"
        elif was[name] != became[name]:
            yield f"# git: {quoted(name)} was at {quoted(was[name])}, is at {quoted(became[name])}"
    known = base.commits if base else frozenset()
    if now.commits - known:
        stores = [root / GIT / "objects" for root in (now_root, base_root) if root is not None]
        try:
            yield from _tell_commits(now.commits - known, known=known, stores=stores)
        except (GitRefusedError, MachineError) as error:
            yield f"# git: new commits cannot be told: {quoted(str(error))}"


def _tell_commits(new: frozenset[str], *, known: frozenset[str], stores: Sequence[Path]) -> Iterator[str]:
    form = "sha256" if any(len(each) == 64 for each in new) else "sha1"
    with tempfile.TemporaryDirectory() as folder:
        # A repository of our own that borrows the agent's objects: its config would run what it names.
        env = {"GIT_DIR": folder, "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(map(listed, stores))}
        ask = partial(git, cwd=Path(folder), env=env, timeout_s=_TIMEOUT_S)
        ask("init", "--quiet", "--bare", f"--object-format={form}")
        found = ask("cat-file", "--batch-check", stdin=_lines(new | known)).decode().splitlines()
        there = {line.split()[0] for line in found if not line.endswith(" missing")}
        if not new & there:
            yield "# git: their commits are not there"
            return
        revisions = [*(new & there), *(f"^{each}" for each in known & there)]
        words = ("log", "--stdin", "--topo-order", f"--max-count={MAX_COMMITS + 1}", "--format=%H %s")
        lines = ask(*words, stdin=_lines(revisions)).decode(errors="replace").splitlines()
    for line in lines[:MAX_COMMITS]:
        commit, _, subject = line.partition(" ")
        yield f"# git: new commit {commit} {quoted(subject)}"
    if len(lines) > MAX_COMMITS:
        yield "# git: and more new commits"


def _lines(words: Iterable[str]) -> bytes:
    return "".join(f"{word}\n" for word in sorted(words)).encode()
