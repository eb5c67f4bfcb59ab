"""Globs over the paths of a workspace. Pure."""

import re
from functools import lru_cache

_PART = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|[^*?\[]+|\[")


def fits(path: str, glob: str) -> bool:
    """Whether a path is one of a glob's. `*` stays within a folder, `**` does not, and `src/` is all that is below it.

    >>> [fits("src/a/b.py", glob) for glob in ("src/*.py", "src/**/*.py", "**/b.py", "src/", "src/a/[a-c].?y")]
    [False, True, True, True, True]
    >>> fits("b.py", "**/b.py"), fits("a.b", "a[!.]b"), fits("a[b", "a[b")
    (True, False, True)
    """
    return _compiled(glob).fullmatch(path) is not None


@lru_cache(maxsize=1024)
def _compiled(glob: str) -> re.Pattern[str]:
    whole = f"{glob}**" if glob.endswith("/") else glob
    return re.compile("".join(map(_translated, _PART.findall(whole))), re.DOTALL)


def _translated(part: str) -> str:
    match part:
        case "**/":
            return "(?:.*/)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
        case _ if part.startswith("[") and part.endswith("]"):
            inner = part[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            return f"(?!/)[^{inner[1:]}]" if inner.startswith("!") else f"(?!/)[{inner}]"
        case _:
            return re.escape(part)
