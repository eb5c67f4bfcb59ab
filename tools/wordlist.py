"""Check comments, docstrings, string literals and Markdown for words that Proctor avoids.

The counts in `wordlist.json` may only fall: the check fails if the total of a group (a top-level folder or file) is
above the recorded one. `--update` records lower counts, `--strict` fails on any occurrence.
"""

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias

import msgspec

from tools.prose import markdown_prose, python_prose

COUNTS: Final = Path("tools/wordlist.json")
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
_NO_NOUN: Final = "(?:and|as|at|by|for|from|gives?|has|have|in|is|leaves?|makes?|of|on|or|than|that|to|was|with)"


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
    # Both explain what the old terms were renamed to.
    "docs/decisions/*.md": OLD_TERMS,
    "docs/reference/glossary.md": OLD_TERMS,
}
"""Entries that a file may contain: quoted native text, and the old terms where they are explained."""

_SPACE = r"(?:[^\S\n]+|[^\S\n]*\n[^\S\n]*)"
_ALTERNATIVES = "|".join(f"(?P<_{number}>{entry.pattern})" for number, entry in enumerate(ENTRIES))
_ANY_ENTRY = re.compile(rf"\b(?=\w)(?:{_ALTERNATIVES})\b".replace(" ", _SPACE), re.IGNORECASE)

Counts: TypeAlias = Mapping[str, Mapping[str, int]]
"""How often each file contains each entry, by path and by the entry's name."""


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


def count(found: Iterable[Occurrence]) -> Counts:
    """Count occurrences by file and entry."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in found:
        counts[each.path][each.entry.name] += 1
    return counts


def totals(counts: Counts) -> Counter[str]:
    """Return the total of each group.

    >>> totals({"docs/a.md": {"told": 2, "cell": 1}, "docs/b/c.md": {"told": 1}, "README.md": {"mend": 1}})
    Counter({'docs': 4, 'README.md': 1})
    """
    groups: Counter[str] = Counter()
    for path, entries in counts.items():
        groups[PurePosixPath(path).parts[0]] += sum(entries.values())
    return groups


def find_rises(found: Sequence[Occurrence], recorded: Counts) -> Iterator[str]:
    """Yield a message for each group above its recorded total, and for each occurrence that may be the new one."""
    now = count(found)
    limits = totals(recorded)
    for group, total in sorted(totals(now).items()):
        if total > limits[group]:
            yield f"{group}: {total} words to avoid, {limits[group]} recorded"
            for each in found:
                before = recorded.get(each.path, {}).get(each.entry.name, 0)
                if PurePosixPath(each.path).parts[0] == group and now[each.path][each.entry.name] > before:
                    yield str(each)


def read_counts(path: Path) -> Counts:
    """Read recorded counts. Raises `msgspec.DecodeError` if the file is not a table of counts."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, int]])


def write_counts(path: Path, counts: Counts) -> None:
    """Write counts with one file per line, so that they merge."""
    rows = (f"  {json.dumps(name)}: {json.dumps(entries, sort_keys=True)}" for name, entries in sorted(counts.items()))
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.wordlist", description=__doc__)
    parser.add_argument("paths", nargs="*", help="list every occurrence below these paths, and fail if there is any")
    parser.add_argument("--strict", action="store_true", help="list every occurrence, and fail if there is any")
    parser.add_argument("--update", action="store_true", help="record the counts if no total has risen")
    given = parser.parse_args(arguments)
    found = scan(Path())
    if given.strict or given.paths:
        wanted = [PurePosixPath(path) for path in given.paths] or [PurePosixPath()]
        found = [each for each in found if any(PurePosixPath(each.path).is_relative_to(path) for path in wanted)]
        problems = [str(each) for each in found]
    else:
        now = count(found)
        recorded = read_counts(COUNTS) if COUNTS.exists() else now
        problems = list(find_rises(found, recorded))
        if given.update and not problems:
            write_counts(COUNTS, now)
        elif now != recorded and not problems:
            print("fewer words to avoid than recorded: run `python -m tools.wordlist --update`")
    print("\n".join(problems) or f"words to avoid: {_summary(found)}")
    return 1 if problems else 0


def _summary(found: Sequence[Occurrence]) -> str:
    return ", ".join(f"{total} in {group}" for group, total in totals(count(found)).most_common()) or "none"


if __name__ == "__main__":
    sys.exit(main())
