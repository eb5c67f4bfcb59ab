"""The part of a workspace.diff that a reader needs first: source files, without generated ones. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from proctor.evidence.artifacts import DiffExcerpt, FileExcerpt
from proctor.workspace.changed import FILE_HEADER, changed_in, path_of_header
from proctor.workspace.name import quoted

_GENERATED_FOLDERS: Final = frozenset(
    "__pycache__ node_modules .venv venv .git .tox .nox .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache "
    ".npm .gradle .next .turbo .parcel-cache .idea dist coverage htmlcov site-packages".split()
)
_GENERATED_NAMES: Final = frozenset(
    "package-lock.json npm-shrinkwrap.json pnpm-lock.yaml go.sum packages.lock.json .DS_Store .coverage "
    "gradle.lockfile bun.lockb".split()
)
_GENERATED_ENDINGS: Final = (
    *(".lock", ".pyc", ".pyo", ".class", ".o", ".a", ".so", ".map", ".snap", ".tsbuildinfo"),
    *(".min.js", ".min.css", ".min.mjs", ".egg-info", ".log"),
)
_MINIFIED_CHARS: Final = 1000
"""A file with a changed line longer than this is not written by hand."""
_LEAST_LINES: Final = 4
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """What a diff says about one file."""

    file: str
    """Path in the workspace, which may contain any byte."""
    added: int
    removed: int
    lines: tuple[str, ...]
    """The lines of its hunks, or what is said in their place."""
    is_generated: bool
    """Whether it is a cache, an installed package, a lock file or minified."""
    is_binary: bool = False
    """Whether its content is not in the diff."""


def is_generated_path(path: str) -> bool:
    """Return whether programs write such a file, and people do not.

    >>> [is_generated_path(path) for path in ("src/a.py", "a/__pycache__/a.pyc", "uv.lock", "web/app.min.js")]
    [False, True, True, True]
    """
    *folders, name = PurePosixPath(path).parts or ("",)
    return (
        not _GENERATED_FOLDERS.isdisjoint(folders)
        or any(folder.endswith(".egg-info") for folder in folders)
        or name in _GENERATED_NAMES
        or name.endswith(_GENERATED_ENDINGS)
    )


def file_diffs(diff: str) -> tuple[FileDiff, ...]:
    r"""Split the text of a workspace.diff into its files, in its order.

    >>> [one] = file_diffs("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\n+b\n+c\n")
    >>> one.file, one.added, one.removed, one.lines
    ('x', 2, 1, ('@@ -1 +1,2 @@', '-a', '+b', '+c'))
    """
    return tuple(_file_diff(file, lines) for file, lines in _split(diff))


def _split(diff: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each file with the lines after its header. Content never begins a line with `diff` or `#`."""
    file, lines = "", list[str]()
    # Not splitlines(): content may have any character that ends a line elsewhere.
    for line in diff.removesuffix("\n").split("\n"):
        if line.startswith(FILE_HEADER):
            if file:
                yield file, lines
            file, lines = path_of_header(line), []
        elif file and not line.startswith(("# new ", "# removed ", "# cut: ")):
            lines.append(line)
    if file:
        yield file, lines


def _file_diff(file: str, lines: Sequence[str]) -> FileDiff:
    start = next((at for at, line in enumerate(lines) if line.startswith("@@ ")), None)
    body = [line for line in lines if not line.startswith(("--- ", "+++ "))] if start is None else lines[start:]
    edits = [] if start is None else body
    return FileDiff(
        file=file,
        added=sum(line.startswith("+") for line in edits),
        removed=sum(line.startswith("-") for line in edits),
        lines=tuple(body),
        is_generated=is_generated_path(file) or any(len(line) > _MINIFIED_CHARS for line in edits),
        is_binary=any(line.startswith("Binary files ") for line in lines) and start is None,
    )


def excerpt(diff: str, *, max_lines: int, max_files: int, max_chars: int = 160) -> DiffExcerpt | None:
    r"""Return the first lines of the files that people write, and how much is left out. None if nothing changed.

    One large file leaves half of the lines to the next ones. Lines are cut after `max_chars` characters.

    >>> new = "diff --git a/{0} b/{0}\nnew file mode 100644\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+1\n"
    >>> found = excerpt(new.format("a.lock") + new.format("a.py"), max_lines=9, max_files=9)
    >>> [each.file for each in found.files], found.generated_files, found.generated_lines
    (['a.py'], 1, 1)
    """
    found = file_diffs(diff)
    others = len(changed_in(diff).paths) - len({each.file for each in found})
    if not found and not others:
        return None
    written = [each for each in found if not each.is_generated]
    generated = [each for each in found if each.is_generated]
    shown: list[FileExcerpt] = []
    left = max_lines
    for at, each in enumerate(written[:max_files]):
        share = left if at + 1 == min(len(written), max_files) else max(_LEAST_LINES, left // 2)
        take = max(0, min(share, left))
        shown.append(
            FileExcerpt(
                file=quoted(each.file),
                added=each.added,
                removed=each.removed,
                lines=tuple(shorten(line, max_chars) for line in each.lines[:take]),
                lines_left_out=max(0, len(each.lines) - take),
            )
        )
        left -= min(take, len(each.lines))
    return DiffExcerpt(
        files=tuple(shown),
        files_left_out=len(written) - len(shown),
        generated_files=len(generated),
        generated_lines=sum(each.added + each.removed for each in generated),
        other_paths=max(0, others),
    )


def last_lines(text: str, *, max_lines: int, max_chars: int) -> tuple[str, ...]:
    r"""Return the last lines of a program's output, as a terminal would show them, without escape sequences.

    >>> last_lines("one\n10%\r100%\n\x1b[31mE  no\x1b[0m\n\n", max_lines=2, max_chars=9)
    ('100%', 'E  no')
    """
    lines = [_last_segment(_ESCAPES.sub("", line)) for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    return tuple(shorten(line, max_chars) for line in lines[-max_lines:]) if max_lines > 0 else ()


def _last_segment(line: str) -> str:
    """Return what a carriage return did not overwrite."""
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


def shorten(text: str, max_chars: int) -> str:
    """
    >>> shorten("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"
