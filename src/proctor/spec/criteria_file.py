"""A criteria file: the keys of a mission that decide whether its goal is reached, without the goal."""

from pathlib import Path

from proctor.spec.probes import ProbeSpec
from proctor.spec.source_file import FindKind, SourceFile, decode_bytes, find_no_kind, read_source
from proctor.spec.struct import Spec, Text, Texts


class CriteriaSpec(Spec, frozen=True, kw_only=True):
    """The keys of a criteria file. Each has the meaning that it has in a mission."""

    task_class: Text | None = None
    """The sort of task."""

    probes: list[ProbeSpec] = []
    """Checks that verify the result."""

    overlay: Text | None = None
    """Path of a folder with hidden files, relative to the folder of the criteria file."""

    protect: Texts = []
    """Globs of files that the agent must leave as they are."""


def read_criteria(path: Path, *, find_kind: FindKind = find_no_kind) -> SourceFile[CriteriaSpec]:
    """Read a criteria file. Raises InputError with all errors of syntax and type."""
    return decode_bytes(read_source(path), CriteriaSpec, file=str(path), find_kind=find_kind)
