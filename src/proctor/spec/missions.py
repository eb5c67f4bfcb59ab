"""Missions as they are written: in the spec itself, or in a folder with a Markdown file for each."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.errors import InputError
from proctor.ids import MissionId
from proctor.spec.collected import raise_collected
from proctor.spec.marked import Marked, decode_tree, read_source
from proctor.spec.model import CampaignSpec, MissionSpec, MissionTerms
from proctor.spec.running import MissionsFolder
from proctor.spec.tree import UNPRINTABLE, Node, read_tree

SUFFIX = ".md"

_FENCE = re.compile(r"---[ \t]*\r?\n?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A mission and where it stands: under a key of the spec, or in a file of its own."""

    mission: MissionSpec
    marked: Marked[Any]
    key: str = ""

    @property
    def is_in_own_file(self) -> bool:
        return not self.key

    def problem(self, code: str, what: str, *, key: str, suggestion: str | None = None) -> InputError:
        """A fault of this mission, told with its file and line."""
        where = ".".join(part for part in (self.key, key) if part)
        return self.marked.problem(code, what, key=where, suggestion=suggestion)

    def line_of(self, key: str) -> int:
        return self.marked.line_of(".".join(part for part in (self.key, key) if part))


def inline_missions(spec: CampaignSpec) -> tuple[MissionSpec, ...]:
    """Those that the spec itself holds."""
    return () if isinstance(spec.missions, MissionsFolder) else tuple(spec.missions)


def written_inline(marked: Marked[CampaignSpec]) -> tuple[Written, ...]:
    """The same, each with its key."""
    missions = enumerate(inline_missions(marked.value))
    return tuple(Written(mission=mission, marked=marked, key=f"missions[{at}]") for at, mission in missions)


def find_files(folder: Path) -> list[str]:
    """The names of a folder's mission files, in order; hidden ones are none. OSError where it cannot be read."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    return sorted(name for name in names if name.endswith(SUFFIX) and not name.startswith("."))


def read_mission(path: Path, *, file: str) -> tuple[Written, bytes]:
    """The mission of one file, and the file's bytes. InputError with all that is wrong, told of `file`."""
    try:
        source = read_source(path)
    except InputError as error:
        raise InputError(error.code, error.what, file=file) from error
    return Written(mission=(marked := parse_mission(source, id_=path.stem, file=file)).value, marked=marked), source


def parse_mission(source: bytes, *, id_: str, file: str) -> Marked[MissionSpec]:
    """Front matter between two lines of `---`, where there is one; what follows is the prompt."""
    text = decode_text(source, file=file)
    matter, body, body_line = _split(text, file=file)
    problems: list[InputError] = []
    terms: Marked[MissionTerms] | None = None
    try:
        terms = _decode_matter(matter, file=file)
    except InputError as error:
        problems += error.each
    prompt = body.lstrip("\r\n").rstrip()
    if not prompt:
        suggestion = "Write what the agent is to do below the second `---`." if matter else "Write it."
        what = "there is no prompt"
        problems.append(InputError("spec.missing-key", what, file=file, line=body_line, suggestion=suggestion))
    if terms is None or problems:
        raise_collected(problems)
    entries = terms.root.value if isinstance(terms.root.value, dict) else {}
    prompt_line = body_line + body[: len(body) - len(body.lstrip("\r\n"))].count("\n")
    root = Node(
        line=1,
        value={**entries, "id": Node(line=1, value=id_), "prompt": Node(line=prompt_line, value=prompt)},
    )
    values = {name: getattr(terms.value, name) for name in MissionTerms.__struct_fields__}
    return Marked(value=MissionSpec(id=MissionId(id_), prompt=prompt, **values), file=file, root=root)


def decode_text(source: bytes, *, file: str) -> str:
    """Text that may go into a prompt, or an InputError with the line."""
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise InputError("spec.syntax", f"not UTF-8: {error.reason}", file=file, line=line) from error
    if bad := UNPRINTABLE.search(text):
        line = text.count("\n", 0, bad.start()) + 1
        what = f"a character that no prompt may hold (U+{ord(bad[0]):04X})"
        raise InputError("spec.syntax", what, file=file, line=line)
    return text


def _split(text: str, *, file: str) -> tuple[str, str, int]:
    """The front matter with its first fence, so that its lines count right; the body; the body's first line."""
    # Not splitlines(): a line ends where an editor and YAML say it does.
    lines = re.findall(r"[^\n]*\n|[^\n]+$", text)
    if not lines or not _FENCE.fullmatch(lines[0]):
        return "", text, 1
    for at, line in enumerate(lines[1:], start=1):
        if _FENCE.fullmatch(line):
            return "".join(lines[:at]), "".join(lines[at + 1 :]), at + 2
    what = "the front matter that begins here never ends"
    raise InputError("spec.syntax", what, file=file, line=1, suggestion="Close it by a line of `---`.")


def _decode_matter(matter: str, *, file: str) -> Marked[MissionTerms]:
    root, problems = read_tree(matter, file=file)
    if root is None:
        raise problems[0]
    # Front matter of comments alone says nothing.
    root = Node(line=1, value={}) if root.value is None else root
    return decode_tree(root, MissionTerms, file=file, problems=problems)
