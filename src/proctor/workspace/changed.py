"""Read the changed paths back from the text of a workspace.diff."""

import re
from dataclasses import dataclass

from proctor.workspace.name import unquoted
from proctor.workspace.repository import GIT

FILE_HEADER = "diff --git "
"""Begins the line that names a changed file."""
_COMMENT = re.compile(r"# (?:removed|new) [a-z]+ (.+?)(?: \([^()]*\))?")
_REPOSITORY = "# git: "
_REF = re.compile(r"(?:new |removed )?(refs/\S+?|\"refs/.+?\"),?(?: was)? at ")


_EDITS = ("@@ ", "new file mode ", "deleted file mode ", "old mode ")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedPaths:
    """The paths that a diff reports as changed, in its order."""

    paths: tuple[str, ...]
    """Paths relative to the workspace, including `.git/HEAD` and `.git/refs/…` for changes of the repository."""
    is_cut: bool = False
    """Whether the diff was cut at its size limit, so that paths are missing."""


def changed_in(diff: str) -> ChangedPaths:
    r"""Return the paths that the text of a workspace.diff reports as changed.

    >>> changed_in("# new folder made (empty)\ndiff --git a/a b.py b/a b.py\nnew file mode 100644\n")
    ChangedPaths(paths=('made', 'a b.py'), is_cut=False)
    >>> changed_in("# git: HEAD was refs/heads/a at 1, is refs/heads/b at 2\n# git: new refs/heads/b at 2\n").paths
    ('.git/HEAD', '.git/refs/heads/b')
    >>> changed_in("# cut: 3 changed paths left out, from x on\n")
    ChangedPaths(paths=(), is_cut=True)
    """
    paths: dict[str, None] = {}
    is_cut = False
    # Lines of file content begin with a space, a plus or a minus, so they never match the prefixes below.
    for line in diff.split("\n"):
        if line.startswith(FILE_HEADER):
            paths[path_of_header(line)] = None
        elif line.startswith("# cut: "):
            is_cut = True
        elif line.startswith(_REPOSITORY):
            if ref := _REF.match(line, len(_REPOSITORY)):
                paths[f"{GIT}/{unquoted(ref[1])}"] = None
            elif not paths:  # the line about HEAD is first; lines about commits follow those about refs
                paths[f"{GIT}/HEAD"] = None
        elif comment := _COMMENT.fullmatch(line):
            paths[unquoted(comment[1])] = None
    return ChangedPaths(paths=tuple(paths), is_cut=is_cut)


def has_edits(diff: str) -> bool:
    r"""Return whether a diff proves that a file changed. A file that could not be read is listed but proves nothing.

    >>> has_edits("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n")
    True
    >>> has_edits("diff --git a/f b/f\nBinary files a/f and b/f differ\n# b/f: 9 bytes, no digest, too large\n")
    False
    """
    return any(line.startswith(_EDITS) for line in diff.split("\n"))


def path_of_header(line: str) -> str:
    """Return the path from `diff --git a/PATH b/PATH`: both names have the same length, with a space between them."""
    names = line.removeprefix(FILE_HEADER)
    return unquoted(names[: len(names) // 2]).removeprefix("a/")
