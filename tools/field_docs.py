"""Read what each field of a struct means from its attribute docstring, and find the fields that have none.

An attribute docstring is a string literal right after the field. Checked are the structs that reach disk or wire: those
of the contract and those that commands print with `--json`. The check fails on any field without a docstring.
"""

import argparse
import ast
import inspect
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from proctor.campaign.probe_check import ProbeCheckResult
from proctor.context.change_session import SessionRemoval
from proctor.context.model import SessionSettings
from proctor.context.report import FoundEntry, SessionReport, SessionSummary
from proctor.context.verify import SessionVerification
from proctor.event.row import Row
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, RunnerRef, Seal
from proctor.evidence.reader import Finding
from proctor.evidence.regrade_record import RegradeRecord
from proctor.report.campaign import CampaignReport
from proctor.report.codex_native import SkippedLine
from proctor.report.compare import Comparison
from proctor.report.explanation import AttemptExplanation
from proctor.report.parity import Parity
from proctor.report.publish import Publication
from proctor.report.row import AttemptRow
from proctor.surface.campaign_status import CampaignStatus
from proctor.surface.contract import SCHEMAS, Contract
from proctor.surface.engines import EngineCheck, EngineListing
from proctor.surface.estimate import Estimate
from proctor.surface.examine import Examination
from proctor.surface.finding import DoctorFinding
from proctor.surface.gc import GcResult
from proctor.surface.logins import FoundLogin
from proctor.surface.matrix import Matrix
from proctor.surface.new_runtime import NewRuntime
from proctor.surface.programs import Program
from proctor.surface.prove import ConformanceResult
from proctor.surface.rederive import Rederivation
from proctor.surface.session_turn import AskedTurn, CompactedSession
from proctor.surface.sign import Signing
from proctor.surface.try_agents import TryResult
from proctor.surface.verify import Verification

JSON_OUTPUTS: Final[Mapping[str, tuple[type[msgspec.Struct], ...]]] = {
    "init": (),
    "try": (TryResult, Estimate),
    "run": (CampaignReport, Estimate),
    "demo": (CampaignReport, Estimate),
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
    "attempt cancel": (),
    "attempt export": (SkippedLine,),
    "session new": (SessionSettings,),
    "session say": (AskedTurn,),
    "session talk": (AskedTurn,),
    "session show": (SessionReport,),
    "session list": (SessionSummary,),
    "session search": (FoundEntry,),
    "session compact": (CompactedSession,),
    "session reset": (),
    "session fork": (),
    "session delete": (SessionRemoval,),
    "session verify": (SessionVerification,),
    "runtimes list": (Program,),
    "runtimes conformance": (ConformanceResult,),
    "engines list": (EngineListing,),
    "engines check": (EngineCheck,),
    "runtimes matrix": (Matrix,),
    "runtimes new": (NewRuntime,),
    "note": (),
    "model serve": (),
    "doctor": (DoctorFinding, FoundLogin),
    "gc": (GcResult,),
    "probe check": (ProbeCheckResult,),
    "regrade": (RegradeRecord,),
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.field_docs", description=__doc__)
    parser.add_argument("paths", nargs="*", help="check only the structs below these paths")
    wanted = parser.parse_args(arguments).paths or ["."]
    missing = [each for each in scan(Path()) if any(PurePosixPath(each.path).is_relative_to(path) for path in wanted)]
    print("\n".join(map(str, missing)) or "fields without a docstring: none")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
