"""Find a change of one line that makes a failing command pass, for a script that works without a model."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final

from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.model.script import Patch
from proctor.probe.model import Verdict
from proctor.surface.first_task import FailingCommand, UntouchedWorkspace
from proctor.workspace.walk import EntryKind, walk

MAX_TRIES: Final = 80
MAX_S: Final = 30.0
_MAX_FILE_BYTES: Final = 64 * 1024
_SOURCES: Final = (
    *(".py", ".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".go", ".rs", ".rb", ".php", ".java", ".kt", ".c", ".h"),
    *(".cc", ".cpp", ".hpp", ".cs", ".swift", ".sh", ".pl", ".lua", ".ex", ".exs"),
)
_FOREIGN: Final = frozenset({".git", "node_modules", "vendor", "target", "dist", "build", "site-packages"})
_SWAPS: Final = (
    *((" + ", " - "), (" - ", " + "), (" * ", " / "), (" / ", " * "), (" * ", " + "), (" + ", " * "), (" // ", " / ")),
    *(("<=", "<"), (">=", ">"), (" < ", " <= "), (" > ", " >= "), (" < ", " > "), (" > ", " < ")),
    *(("==", "!="), ("!=", "=="), (" and ", " or "), (" or ", " and "), ("&&", "||"), ("||", "&&")),
    *(("True", "False"), ("False", "True"), ("true", "false"), ("false", "true"), ("not ", ""), ("!", "")),
    *(("[1:]", ""), ("[:-1]", ""), (" + 1", ""), (" - 1", ""), ("min(", "max("), ("max(", "min(")),
)
_NUMBER: Final = re.compile(r"(?<![\w.])\d{1,6}(?![\w.])")
_QUOTED: Final = re.compile(r"""(?<!\w)(["'])([^"'\\\n]{1,80})\1""")
_SIMILAR: Final = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of one line of a file."""

    file: str
    line: int
    """The number of the line, counted from 0."""
    text: str
    """The new text of the line."""


async def find_fix(
    untouched: UntouchedWorkspace, failing: FailingCommand, *, clock: Clock = SYSTEM_CLOCK
) -> Patch | None:
    """Try changes of one line, each on a copy, until the command passes. Return the change, or None if none was found.

    At most MAX_TRIES changes are tried, for at most MAX_S seconds.
    """
    until_s = clock.steady_s() + MAX_S
    sources, tests = _read_sources(untouched.subject.folder)
    for tries, change in enumerate(candidates(sources, tests=tests, output=failing.output)):
        left_ms = round((until_s - clock.steady_s()) * 1000)
        if tries >= MAX_TRIES or left_ms <= 0:
            return None
        file, lines = untouched.subject.folder / change.file, sources[change.file].splitlines(keepends=True)
        file.write_text("".join([*lines[: change.line], f"{change.text}\n", *lines[change.line + 1 :]]))
        try:
            # A change may make the command run forever.
            row = await untouched.run(failing.command, limit=f"{left_ms}ms")
        finally:
            file.write_text(sources[change.file])
        if row.verdict is Verdict.PASS:
            return as_patch(change, sources[change.file])
    return None


def _read_sources(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of source files and of test files, by path."""
    sources, tests = dict[str, str](), dict[str, str]()
    for item in walk(folder):
        path = Path(item.path)
        is_source = item.kind is EntryKind.FILE and path.suffix in _SOURCES and item.size_bytes <= _MAX_FILE_BYTES
        if is_source and _FOREIGN.isdisjoint(path.parts):
            try:
                text = (folder / path).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            (tests if _is_test(path) else sources)[item.path] = text
    return sources, tests


def _is_test(path: Path) -> bool:
    return any(part.startswith(("test", "spec", "conftest")) for part in path.parts) or bool(
        re.search(r"[._-](test|tests|spec)$", path.stem)
    )


def candidates(sources: dict[str, str], *, tests: dict[str, str], output: str) -> Iterator[Change]:
    """Yield changes to try: in the files that the output of the tests or the tests themselves name first.

    >>> [each.text for each in candidates({"a.py": "x = a - 1"}, tests={}, output="")]
    ['x = a + 1', 'x = a', 'x = a - 2', 'x = a - 0']
    """
    expected = {match[2] for text in tests.values() for match in _QUOTED.finditer(text)}
    named = "\n".join(tests.values())

    def rank(file: str) -> tuple[bool, bool, int]:
        return file not in output, Path(file).stem not in named, len(sources[file])

    for file in sorted(sources, key=rank):
        lines = sources[file].splitlines()
        at = {int(found) - 1 for found in re.findall(rf"{re.escape(file)}\D{{1,8}}(\d+)", output)}
        for line in sorted(range(len(lines)), key=lambda number: (number not in at, number)):
            for text in dict.fromkeys(_variants(lines[line], expected)):
                yield Change(file=file, line=line, text=text)


def _variants(line: str, expected: set[str]) -> Iterator[str]:
    """Yield variants of a line: an operator swapped, a text as the tests have it, a number one more or less."""
    if line.lstrip().startswith(("#", "//", "*", "import ", "from ", "use ", "package ")):
        return
    for old, new in _SWAPS:
        yield from (line[:at] + new + line[at + len(old) :] for at in _places(line, old))
    for match in _QUOTED.finditer(line):
        near = [each for each in expected if SequenceMatcher(None, each, match[2]).ratio() >= _SIMILAR]
        yield from (line[: match.start(2)] + each + line[match.end(2) :] for each in sorted(near) if each != match[2])
    for match in _NUMBER.finditer(line):
        for number in (int(match[0]) + 1, int(match[0]) - 1):
            if number >= 0:
                yield line[: match.start()] + str(number) + line[match.end() :]


def _places(line: str, old: str) -> Iterator[int]:
    at = line.find(old)
    while at >= 0:
        yield at
        at = line.find(old, at + 1)


def as_patch(change: Change, text: str) -> Patch:
    r"""Return a change as a patch of a script, with as many lines before it as make the replaced lines unique.

    >>> patch = as_patch(Change(file="f", line=3, text="B"), "x\nb\ny\nb\n")
    >>> patch.old, patch.new
    ('y\nb', 'y\nB')
    """
    lines = text.splitlines()
    first = change.line
    while first and _count(lines, lines[first : change.line + 1]) > 1:
        first -= 1
    kept = lines[first : change.line]
    return Patch(file=change.file, old="\n".join([*kept, lines[change.line]]), new="\n".join([*kept, change.text]))


def _count(lines: Sequence[str], part: Sequence[str]) -> int:
    joined = "\n".join(part)
    return "\n".join(lines).count(joined)
