"""Which paths a workspace.diff says were changed, read back from its text."""

import re
from dataclasses import dataclass

from proctor.workspace.name import unquoted
from proctor.workspace.repository import GIT

_HEADER = "diff --git "
_TOLD = re.compile(r"# (?:removed|new) [a-z]+ (.+?)(?: \([^()]*\))?")
_REPOSITORY = "# git: "
_REF = re.compile(r"(?:new |removed )?(refs/\S+?|\"refs/.+?\"),?(?: was)? at ")


_EDITS = ("@@ ", "new file mode ", "deleted file mode ", "old mode ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """In order, those of the repository's HEAD and refs too. Where the diff was cut, there are more."""

    paths: tuple[str, ...]
    is_cut: bool = False


def changed_in(diff: str) -> Changed:
    r"""
    >>> changed_in("# new folder made (empty)\ndiff --git a/a b.py b/a b.py\nnew file mode 100644\n")
    Changed(paths=('made', 'a b.py'), is_cut=False)
    >>> changed_in("# git: HEAD was refs/heads/a at 1, is refs/heads/b at 2\n# git: new refs/heads/b at 2\n").paths
    ('.git/HEAD', '.git/refs/heads/b')
    >>> changed_in("# cut: 3 changed paths left out, from x on\n")
    Changed(paths=(), is_cut=True)
    """
    paths: dict[str, None] = {}
    is_cut = False
    # Lines of a file's text begin with a space, plus or minus, so none of them can pass for one of these.
    for line in diff.split("\n"):
        if line.startswith(_HEADER):
            paths[_path_of(line.removeprefix(_HEADER))] = None
        elif line.startswith("# cut: "):
            is_cut = True
        elif line.startswith(_REPOSITORY):
            if ref := _REF.match(line, len(_REPOSITORY)):
                paths[f"{GIT}/{unquoted(ref[1])}"] = None
            elif not paths:  # where HEAD is comes first, and commits after the refs that lead to them
                paths[f"{GIT}/HEAD"] = None
        elif told := _TOLD.fullmatch(line):
            paths[unquoted(told[1])] = None
    return Changed(paths=tuple(paths), is_cut=is_cut)


def has_edits(diff: str) -> bool:
    r"""Whether it shows that a file is not what it was. One that could not be read may be told though it is the same.

    >>> has_edits("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n")
    True
    >>> has_edits("diff --git a/f b/f\nBinary files a/f and b/f differ\n# b/f: 9 bytes, no digest, too large\n")
    False
    """
    return any(line.startswith(_EDITS) for line in diff.split("\n"))


def _path_of(names: str) -> str:
    """Both names are of one path, and so of one length, with a space between them."""
    return unquoted(names[: len(names) // 2]).removeprefix("a/")
