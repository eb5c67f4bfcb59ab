"""Check comments, docstrings, string literals and Markdown for words that Proctor avoids.

The check fails on any occurrence. Texts of the CLI and of errors are string literals, so they are checked, too.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Final

from tools.prose import markdown_prose, python_prose

SCANNED: Final = (
    "src/**/*.py",
    "tools/**/*.py",
    "docs/**/*.md",
    "examples/**/*.md",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "AGENTS.md",
    "CHANGELOG.md",
    "SCHEMAS.md",
)

_THING: Final = (
    "(?:attempt|campaign|case|cell|command|field|file|flow|folder|group|key|line|mission|page|process|row|run|runtime"
    "|session|test|trial|turn)"
)
_NO_NOUN: Final = (
    "(?:after|and|as|at|before|but|by|for|from|gives?|has|have|if|in|into|is|leaves?|like|makes?|not|of|on|or|per|than"
    "|that|to|under|was|with|within|without)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A word to avoid. A space in the pattern is any white space with at most one line break."""

    name: str
    pattern: str
    instead: str


ENTRIES: Final = (
    Entry(name="told", pattern="told", instead="reported, returned, printed"),
    Entry(name="tells of", pattern="tell(?:s|ing)? of", instead="reports, lists, returns"),
    Entry(name="whoever", pattern="whoever", instead="the caller, the user"),
    Entry(name="somebody", pattern="(?:some|no|any|every)body(?:'s)?", instead="the caller, the user, none, no one"),
    Entry(name="comes to", pattern="(?:comes|came) to|come to (?:nothing|the same)", instead="is, equals, becomes"),
    Entry(name="stands", pattern="stands|stand for|stood", instead="is, represents"),
    Entry(name="nought", pattern="nought", instead="0, zero"),
    Entry(name="mend", pattern="mend(?:s|ed|ing)?", instead="fix, repair"),
    Entry(name="be had", pattern="be had", instead="available"),
    Entry(name="gone on with", pattern="(?:go|goes|going|gone|went) on with", instead="resume, continue"),
    Entry(name="let go of", pattern="(?:let|lets|letting) go(?: of)?", instead="delete, release"),
    Entry(name="of its own", pattern="of (?:its|their) own", instead="its own, their own, separate"),
    Entry(name="of theirs", pattern="of (?:theirs|yours)", instead="their, your"),
    Entry(name="whose matter", pattern="(?:whose|its|their) matter|by whose word", instead="owner, cause, source"),
    Entry(name="is none", pattern="is (?-i:none)", instead="there is no …, is not a …"),
    Entry(name="is to be", pattern="(?:is|are) to be", instead="must be, is"),
    Entry(name="all is well", pattern="all is well", instead="what passed, as in `4 of 4 passed`"),
    Entry(name="has its say", pattern="(?:has|have|had|having) (?:its|their) say", instead="decides, is checked"),
    Entry(
        name="hold against each other",
        pattern=r"(?:hold|holds|holding|held)(?: [\w-]+){0,4} against each other",
        instead="compare",
    ),
    Entry(
        name="a row a line",
        pattern=rf"one an? {_THING}|(?:an?|one) (?!{_NO_NOUN}\b)[\w-]+ an? {_THING}",
        instead="`per`, as in `one row per line`",
    ),
    Entry(name="strategy", pattern="strateg(?:y|ies)", instead="runtime"),
    Entry(name="lane", pattern="lanes?", instead="rollout, runtime"),
    Entry(name="cell", pattern="cells?", instead="trial"),
)

OLD_TERMS: Final = frozenset({"strategy", "lane", "cell"})
ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    # The list itself.
    "tools/wordlist.py": frozenset(entry.name for entry in ENTRIES),
    # They explain what the old terms were renamed to.
    "docs/decisions/*.md": OLD_TERMS,
}
"""Entries that a file may contain: quoted native text, and the old terms where they are explained."""

_SPACE = r"(?:[^\S\n]+|[^\S\n]*\n[^\S\n]*)"
_ALTERNATIVES = "|".join(f"(?P<_{number}>{entry.pattern})" for number, entry in enumerate(ENTRIES))
_ANY_ENTRY = re.compile(rf"\b(?=\w)(?:{_ALTERNATIVES})\b".replace(" ", _SPACE), re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """A word to avoid, where it was found. `line` counts from 1."""

    path: str
    line: int
    word: str
    entry: Entry

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word}: write {self.entry.instead}"


def find_words(path: str, text: str) -> Iterator[Occurrence]:
    """Yield the words to avoid in the text of one file, in order."""
    allowed = {name for pattern, names in ALLOWED.items() if fnmatch(path, pattern) for name in names}
    prose = python_prose(text) if path.endswith(".py") else markdown_prose(text)
    for match in _ANY_ENTRY.finditer(prose):
        entry = ENTRIES[int((match.lastgroup or "_0")[1:])]
        if entry.name not in allowed:
            line = prose.count("\n", 0, match.start()) + 1
            yield Occurrence(path=path, line=line, word=" ".join(match[0].split()), entry=entry)


def scan(root: Path) -> list[Occurrence]:
    """Return every word to avoid in a checkout."""
    paths = {path.relative_to(root).as_posix() for pattern in SCANNED for path in root.glob(pattern)}
    return [each for path in sorted(paths) for each in find_words(path, (root / path).read_text(encoding="utf-8"))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.wordlist", description=__doc__)
    parser.add_argument("paths", nargs="*", help="check only the files below these paths")
    paths = parser.parse_args(arguments).paths or ["."]
    found = [each for each in scan(Path()) if any(PurePosixPath(each.path).is_relative_to(folder) for folder in paths)]
    print("\n".join(map(str, found)) or "words to avoid: none")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
