"""Repositories for tests, made by git itself with nothing of the user's."""

import io
import os
import subprocess
import tarfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

_IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.invalid", "-c", "init.defaultBranch=main")


def git(*words: str, cwd: Path) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    command = ["git", *_IDENTITY, "-c", "protocol.file.allow=always", *words]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout.strip()


def init(place: Path, *words: str) -> Path:
    place.mkdir(parents=True)
    git("init", "--quiet", *words, cwd=place)
    return place


def commit(repository: Path, files: dict[str, str], message: str) -> str:
    """The new commit's id."""
    for path, text in files.items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text)
    git("add", "--all", cwd=repository)
    git("commit", "--quiet", "--allow-empty", "--message", message, cwd=repository)
    return git("rev-parse", "HEAD", cwd=repository)


def with_a_later_fix(place: Path) -> tuple[Path, str]:
    """A repository whose tag `base` is broken, with the fix in every place git keeps things; and the base's id.

    Thirty processes of git make one, so each is a copy of the first.
    """
    packed, base = _packed_with_a_later_fix()
    place.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(place, filter="fully_trusted")
    return place, base


@cache
def _packed_with_a_later_fix() -> tuple[bytes, str]:
    packed = io.BytesIO()
    with TemporaryDirectory() as folder, tarfile.open(fileobj=packed, mode="w") as archive:
        base = _make_with_a_later_fix(Path(folder) / "mine")
        archive.add(Path(folder) / "mine", arcname=".")
    return packed.getvalue(), base


def _make_with_a_later_fix(place: Path) -> str:
    repository = init(place)
    commit(repository, {"greet.py": "print('Hi')\n"}, "first")
    base = commit(repository, {"greet.py": "print('Hello, Bob')\n", "docs/a file.txt": "text\n"}, "base")
    git("tag", "base", cwd=repository)
    git("tag", "--annotate", "--message", "the fix is to print Ada", "told", cwd=repository)
    git("notes", "add", "--message", "fix: print Ada", cwd=repository)
    git("switch", "--quiet", "--create", "lost", cwd=repository)
    commit(repository, {"greet.py": "print('lost')\n"}, "a dangling fix")
    git("switch", "--quiet", "main", cwd=repository)
    git("branch", "--quiet", "-D", "lost", cwd=repository)
    (repository / "greet.py").write_text("print('stashed')\n")
    git("stash", cwd=repository)
    commit(repository, {"greet.py": "print('Hello, Ada')\n"}, "the fix")
    git("tag", "fixed", cwd=repository)
    git("branch", "release", cwd=repository)
    git("gc", "--quiet", cwd=repository)
    (repository / "greet.py").write_text("print('uncommitted')\n")
    (repository / "untracked").write_text("x")
    return base
