"""Read what each field of a struct means from its attribute docstring, and find the fields that have none.

An attribute docstring is a string literal right after the field. Checked are the structs that reach disk or wire: those
of the contract and those that commands print with `--json`. The counts in `field_docs.json` may only fall: the check
fails if the count of a folder is above the recorded one. `--update` records lower counts, `--strict` fails on any.
"""

import argparse
import ast
import inspect
import json
import sys
import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from proctor.event.row import Row
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, RunnerRef, Seal
from proctor.evidence.reader import Finding
from proctor.report.campaign import CampaignReport
from proctor.report.codex_native import SkippedLine
from proctor.report.compare import Comparison
from proctor.report.explanation import AttemptExplanation
from proctor.report.parity import Parity
from proctor.report.publish import Publication
from proctor.report.row import AttemptRow
from proctor.surface.campaign_status import CampaignStatus
from proctor.surface.contract import SCHEMAS, Contract
from proctor.surface.estimate import Estimate
from proctor.surface.examine import Examination
from proctor.surface.finding import DoctorFinding
from proctor.surface.gc import GcResult
from proctor.surface.logins import FoundLogin
from proctor.surface.matrix import Matrix
from proctor.surface.programs import Program
from proctor.surface.prove import ConformanceResult
from proctor.surface.rederive import Rederivation
from proctor.surface.sign import Signing
from proctor.surface.try_agents import TryResult
from proctor.surface.verify import Verification

PACKAGE: Final = Path("src/proctor")
COUNTS: Final = Path("tools/field_docs.json")

JSON_OUTPUTS: Final[Mapping[str, tuple[type[msgspec.Struct], ...]]] = {
    "init": (),
    "try": (TryResult, Estimate),
    "run": (CampaignReport, Estimate),
    "campaign run": (CampaignReport, Estimate),
    "campaign canary": (CampaignReport, Estimate),
    "campaign resume": (CampaignReport, Estimate),
    "campaign cancel": (),
    "retry": (CampaignReport, Estimate),
    "campaign status": (CampaignStatus,),
    "campaign list": (CampaignStatus, Finding),
    "campaign lint": (),
    "suite plan": (),
    "suite run": (CampaignReport, Estimate),
    "parity": (Parity, Estimate),
    "report": (CampaignReport,),
    "validate": (Examination,),
    "campaign report": (CampaignReport,),
    "campaign publish-check": (Publication,),
    "compare": (Comparison,),
    "sign": (Signing,),
    "verify": (Verification,),
    "attempt list": (AttemptRow, Finding),
    "attempt show": (AttemptRecord, RunnerRef, Feedback, AttemptReport, Seal, Finding),
    "attempt explain": (AttemptExplanation,),
    "attempt rederive": (Rederivation,),
    "attempt export": (SkippedLine,),
    "runtimes list": (Program,),
    "runtimes conformance": (ConformanceResult,),
    "runtimes matrix": (Matrix,),
    "model serve": (),
    "doctor": (DoctorFinding, FoundLogin),
    "gc": (GcResult,),
    "pin": (),
    "contract": (Contract,),
    "schema": (),
    "completion": (),
}
"""The structs that each command prints with `--json`, alone or inside an object; `Estimate` with `--dry-run`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A field as the source declares it. `line` counts from 1; `meaning` is None without a docstring."""

    line: int
    meaning: str | None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class MissingDoc:
    """A field without a docstring, where it is declared."""

    path: str
    line: int
    field: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.field}"

    @property
    def folder(self) -> str:
        """The folder or module of the package."""
        return PurePosixPath(self.path).relative_to(PACKAGE.as_posix()).parts[0]


# ── the reader ──


def read_declarations(source: str) -> dict[str, dict[str, Declaration]]:
    '''Return the annotated fields of every class in Python source, by the class's qualified name.

    Of a docstring only the first paragraph is kept, on one line.

    >>> read_declarations('class A:\\n    x: int = 0\\n    """Width, in pixels."""\\n')
    {'A': {'x': Declaration(line=2, meaning='Width, in pixels.')}}
    '''
    return dict(_classes(ast.parse(source).body, ""))


def _classes(body: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[str, dict[str, Declaration]]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield f"{prefix}{node.name}", dict(_fields(node.body))
            yield from _classes(node.body, f"{prefix}{node.name}.")


def _fields(body: Sequence[ast.stmt]) -> Iterator[tuple[str, Declaration]]:
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, Declaration(line=node.lineno, meaning=_docstring(following))


def _docstring(node: ast.stmt | None) -> str | None:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))) if text.strip():
            return " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
        case _:
            return None


@cache
def _declarations(module: str) -> Mapping[str, Mapping[str, Declaration]]:
    file = _source_file(module)
    return {} if file is None else read_declarations(file.read_text(encoding="utf-8"))


def _source_file(module: str) -> Path | None:
    file = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    return file if file.suffix == ".py" else None


def declared_in(struct: type) -> Mapping[str, Declaration]:
    """Return the fields that a class itself declares. Empty if its source does not have it (`msgspec.defstruct`)."""
    return _declarations(struct.__module__).get(struct.__qualname__, {})


def meanings_of(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return what each field of a struct means, by the field's encoded name. Fields without a docstring are left out.

    The nearest class with a docstring counts, so that a subclass may narrow a type without repeating the meaning.
    """
    meanings = {}
    for field in msgspec.structs.fields(struct):
        declarations = [declaration for _, declaration in _find_declarations(struct, field.name)]
        meaning = next((each.meaning for each in declarations if each.meaning is not None), None)
        if meaning is not None:
            meanings[field.encode_name] = meaning
    return meanings


def find_missing(struct: type[msgspec.Struct], *, root: Path) -> Iterator[MissingDoc]:
    """Yield the fields of a struct without a docstring. Paths are relative to `root`."""
    meanings = meanings_of(struct)
    for field in msgspec.structs.fields(struct):
        if field.encode_name not in meanings:
            owner, declaration = next(_find_declarations(struct, field.name))
            file = _source_file(owner.__module__)
            assert file is not None, "a declaration comes from a file"
            path = file.resolve().relative_to(root.resolve()).as_posix()
            yield MissingDoc(path=path, line=declaration.line, field=f"{owner.__qualname__}.{field.name}")


def _find_declarations(struct: type, name: str) -> Iterator[tuple[type, Declaration]]:
    """Yield a field's declarations, the nearest class first.

    A field that no class of the struct declares in source is one that the chain of rows adds on disk: `Row` has it too.
    """
    owners = [owner for owner in struct.__mro__ if name in declared_in(owner)] or [Row]
    for owner in owners:
        yield owner, declared_in(owner)[name]


# ── the structs ──


def structs_below(*types: Any) -> list[type[msgspec.Struct]]:
    """Return the structs that these types consist of, each once: themselves, their fields, unions and containers."""
    structs: dict[type[msgspec.Struct], None] = {}
    pending = list(types)
    while pending:
        each = pending.pop(0)
        pending += typing.get_args(each)
        struct = typing.get_origin(each) or each
        if isinstance(struct, type) and issubclass(struct, msgspec.Struct) and struct not in structs:
            structs[struct] = None
            pending += (field.type for field in msgspec.structs.fields(struct))
    return list(structs)


def printed_types() -> list[type[msgspec.Struct]]:
    """Return the structs that commands print with `--json`, each once."""
    return list(dict.fromkeys(each for structs in JSON_OUTPUTS.values() for each in structs))


def documented_structs() -> list[type[msgspec.Struct]]:
    """Return every struct that reaches disk or wire."""
    return structs_below(*SCHEMAS.values(), *printed_types())


def scan(root: Path) -> list[MissingDoc]:
    """Return every field without a docstring, in the order of the source."""
    return sorted({each for struct in documented_structs() for each in find_missing(struct, root=root)})


# ── counts ──


def count(missing: Iterable[MissingDoc]) -> Counter[str]:
    """Count by folder of the package."""
    return Counter(each.folder for each in missing)


def find_rises(missing: Sequence[MissingDoc], recorded: Mapping[str, int]) -> Iterator[str]:
    """Yield a message for each folder above its recorded count, and each of its fields."""
    for folder, total in sorted(count(missing).items()):
        if total > recorded.get(folder, 0):
            yield f"{folder}: {total} fields without a docstring, {recorded.get(folder, 0)} recorded"
            yield from (str(each) for each in missing if each.folder == folder)


def read_counts(path: Path) -> dict[str, int]:
    """Read recorded counts. Raises `msgspec.DecodeError` if the file is not a table of counts."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, int])


def write_counts(path: Path, counts: Mapping[str, int]) -> None:
    """Write counts with one folder per line, so that they merge."""
    path.write_text(json.dumps(counts, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def check(missing: Sequence[MissingDoc], *, counts: Path, is_updated: bool) -> list[str]:
    """Return what is wrong beside the recorded counts. `is_updated` records the counts if none has risen."""
    now = count(missing)
    recorded = read_counts(counts) if counts.exists() else dict(now)
    problems = list(find_rises(missing, recorded))
    if is_updated and not problems:
        write_counts(counts, now)
    elif now != recorded and not problems:
        print("fewer fields without a docstring than recorded: run `python -m tools.field_docs --update`")
    return problems


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.field_docs", description=__doc__)
    parser.add_argument("paths", nargs="*", help="list every missing docstring below these paths, and fail on any")
    parser.add_argument("--strict", action="store_true", help="list every missing docstring, and fail on any")
    parser.add_argument("--update", action="store_true", help="record the counts if none has risen")
    options = parser.parse_args(arguments)
    missing = scan(Path())
    if options.strict or options.paths:
        wanted = [PurePosixPath(path) for path in options.paths] or [PurePosixPath()]
        missing = [each for each in missing if any(PurePosixPath(each.path).is_relative_to(path) for path in wanted)]
        problems = [str(each) for each in missing]
    else:
        problems = check(missing, counts=COUNTS, is_updated=options.update)
    print("\n".join(problems) or f"fields without a docstring: {_summary(missing)}")
    return 1 if problems else 0


def _summary(missing: Sequence[MissingDoc]) -> str:
    return ", ".join(f"{total} in {folder}" for folder, total in count(missing).most_common()) or "none"


if __name__ == "__main__":
    sys.exit(main())
