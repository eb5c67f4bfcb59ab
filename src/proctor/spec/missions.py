"""Read missions from the spec itself, or from a folder with one Markdown file per mission."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.errors import InputError
from proctor.ids import MissionId
from proctor.spec.campaign_options import MissionsFolder
from proctor.spec.collect_errors import raise_collected
from proctor.spec.model import CampaignSpec, MissionSpec, MissionTerms
from proctor.spec.source_file import FindKind, SourceFile, decode_tree, find_no_kind, read_source
from proctor.spec.tree import UNPRINTABLE, Node, read_tree

SUFFIX = ".md"

_PROBE = re.compile(r"probes\[([0-9]+)\]\.(.+)")
_FENCE = re.compile(r"---[ \t]*\r?\n?")


@dataclass(frozen=True, slots=True, kw_only=True)
class MissionSource:
    """A mission and its location: a key of the spec, or a separate file, where `key` is empty."""

    mission: MissionSpec
    source_file: SourceFile[Any]
    key: str = ""
    own_probes: int | None = None
    """How many of the probes are written in the mission, if its task class has added others."""

    @property
    def is_in_own_file(self) -> bool:
        return not self.key

    def error(self, code: str, what: str, *, key: str, suggestion: str | None = None) -> InputError:
        """Return an error in this mission, with its file and line. `key` is relative to the mission."""
        added = _PROBE.fullmatch(key)
        if added is not None and self.own_probes is not None and int(added[1]) >= self.own_probes:
            kind = self.mission.probes[int(added[1])].__struct_config__.tag
            key, what = "task_class", f"{kind}.{added[2]}: {what}"
        where = ".".join(part for part in (self.key, key) if part)
        return self.source_file.error(code, what, key=where, suggestion=suggestion)

    def line_of(self, key: str) -> int:
        """Return the line of a key of this mission."""
        return self.source_file.line_of(".".join(part for part in (self.key, key) if part))


def inline_missions(spec: CampaignSpec) -> tuple[MissionSpec, ...]:
    """Return the missions that the spec itself contains."""
    return () if isinstance(spec.missions, MissionsFolder) else tuple(spec.missions)


def inline_mission_sources(source_file: SourceFile[CampaignSpec]) -> tuple[MissionSource, ...]:
    """Return the missions that the spec itself contains, each with its key."""
    missions = enumerate(inline_missions(source_file.value))
    return tuple(
        MissionSource(mission=mission, source_file=source_file, key=f"missions[{at}]") for at, mission in missions
    )


def find_mission_files(folder: Path) -> list[str]:
    """Return the sorted names of a folder's mission files, without hidden ones. Raises OSError if it cannot be read."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    return sorted(name for name in names if name.endswith(SUFFIX) and not name.startswith("."))


def read_mission(path: Path, *, file: str, find_kind: FindKind = find_no_kind) -> tuple[MissionSource, bytes]:
    """Read a mission file. Returns the mission and the file's bytes. Raises InputError with all errors, at `file`."""
    try:
        source = read_source(path)
    except InputError as error:
        raise InputError(error.code, error.what, file=file) from error
    return MissionSource(
        mission=(source_file := parse_mission(source, id_=path.stem, file=file, find_kind=find_kind)).value,
        source_file=source_file,
    ), source


def parse_mission(source: bytes, *, id_: str, file: str, find_kind: FindKind = find_no_kind) -> SourceFile[MissionSpec]:
    """Parse a mission file: optional front matter between two lines of `---`, then the prompt. Raises InputError."""
    text = decode_text(source, file=file)
    matter, body, body_line = _split(text, file=file)
    errors: list[InputError] = []
    terms: SourceFile[MissionTerms] | None = None
    try:
        terms = _decode_matter(matter, file=file, find_kind=find_kind)
    except InputError as error:
        errors += error.all_errors
    prompt = body.lstrip("\r\n").rstrip()
    if not prompt:
        suggestion = "Write the task below the second `---`." if matter else "Write the task into the file."
        what = "the mission has no prompt"
        errors.append(InputError("spec.missing-key", what, file=file, line=body_line, suggestion=suggestion))
    if terms is None or errors:
        raise_collected(errors)
    entries = terms.root.value if isinstance(terms.root.value, dict) else {}
    prompt_line = body_line + body[: len(body) - len(body.lstrip("\r\n"))].count("\n")
    root = Node(
        line=1,
        value={**entries, "id": Node(line=1, value=id_), "prompt": Node(line=prompt_line, value=prompt)},
    )
    values = {name: getattr(terms.value, name) for name in MissionTerms.__struct_fields__}
    return SourceFile(value=MissionSpec(id=MissionId(id_), prompt=prompt, **values), file=file, root=root)


def decode_text(source: bytes, *, file: str) -> str:
    """Decode text for a prompt. Raises InputError with the line if it is not UTF-8 or not printable."""
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise InputError("spec.syntax", f"not UTF-8: {error.reason}", file=file, line=line) from error
    if bad := UNPRINTABLE.search(text):
        line = text.count("\n", 0, bad.start()) + 1
        what = f"a prompt must not contain the character U+{ord(bad[0]):04X}"
        raise InputError("spec.syntax", what, file=file, line=line)
    return text


def _split(text: str, *, file: str) -> tuple[str, str, int]:
    """Return the front matter with its first fence, to keep its line numbers; the body; the body's first line."""
    # Not splitlines(), which also splits at characters that are not line ends in an editor or in YAML.
    lines = re.findall(r"[^\n]*\n|[^\n]+$", text)
    if not lines or not _FENCE.fullmatch(lines[0]):
        return "", text, 1
    for at, line in enumerate(lines[1:], start=1):
        if _FENCE.fullmatch(line):
            return "".join(lines[:at]), "".join(lines[at + 1 :]), at + 2
    what = "the front matter that begins here is not closed"
    raise InputError("spec.syntax", what, file=file, line=1, suggestion="Close it with a line `---`.")


def _decode_matter(matter: str, *, file: str, find_kind: FindKind) -> SourceFile[MissionTerms]:
    root, errors = read_tree(matter, file=file)
    if root is None:
        raise errors[0]
    # Front matter may consist of comments only.
    root = Node(line=1, value={}) if root.value is None else root
    return decode_tree(root, MissionTerms, file=file, errors=errors, find_kind=find_kind)
