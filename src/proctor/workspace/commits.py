"""Describe what an agent changed in its git repository, as comment lines that `git apply` ignores."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from proctor.errors import MachineError
from proctor.workspace.git import GitRefusedError, escape_list_path, git
from proctor.workspace.name import quoted
from proctor.workspace.repository import GIT, SHALLOW, Repository

MAX_COMMITS: Final = 200
_TIMEOUT_S: Final = 30.0


def describe_repository(
    base: Repository | None, now: Repository | None, *, base_root: Path | None, now_root: Path
) -> Iterator[str]:
    """Yield one line, without a line end, for each change of HEAD, of a ref, and for each new commit."""
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
            boundary = None if base_root is None else base_root / GIT / SHALLOW
            yield from _describe_commits(now.commits - known, known=known, stores=stores, boundary=boundary)
        except (GitRefusedError, MachineError) as error:
            yield f"# git: cannot list the new commits: {quoted(str(error))}"


def _describe_commits(
    new: frozenset[str], *, known: frozenset[str], stores: Sequence[Path], boundary: Path | None
) -> Iterator[str]:
    object_format = "sha256" if any(len(each) == 64 for each in new) else "sha1"
    with tempfile.TemporaryDirectory() as folder:
        # A separate repository that borrows the agent's objects: the agent's config could name commands to run.
        env = {"GIT_DIR": folder, "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(map(escape_list_path, stores))}
        run_git = partial(git, cwd=Path(folder), env=env, timeout_s=_TIMEOUT_S)
        run_git("init", "--quiet", "--bare", f"--object-format={object_format}")
        if boundary is not None and boundary.is_file():
            (Path(folder) / SHALLOW).write_bytes(boundary.read_bytes())
        checked = run_git("cat-file", "--batch-check", stdin=_lines(new | known)).decode().splitlines()
        present = {line.split()[0] for line in checked if not line.endswith(" missing")}
        if not new & present:
            yield "# git: the new commits are missing"
            return
        revisions = [*(new & present), *(f"^{each}" for each in known & present)]
        query = ("log", "--stdin", "--topo-order", f"--max-count={MAX_COMMITS + 1}", "--format=%H %s")
        lines = run_git(*query, stdin=_lines(revisions)).decode(errors="replace").splitlines()
    for line in lines[:MAX_COMMITS]:
        commit, _, subject = line.partition(" ")
        yield f"# git: new commit {commit} {quoted(subject)}"
    if len(lines) > MAX_COMMITS:
        yield "# git: and more new commits"


def _lines(items: Iterable[str]) -> bytes:
    return "".join(f"{item}\n" for item in sorted(items)).encode()
