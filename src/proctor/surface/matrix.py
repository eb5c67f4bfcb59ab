"""Compare the capabilities that runtimes declare with what the conformance suite has proven."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from proctor import __version__
from proctor.errors import ProctorError
from proctor.evidence.proofs import ProofRow, read_proofs
from proctor.ids import RuntimeId
from proctor.runtime.base import Runtime
from proctor.runtime.proof import ProofSet, ProofState, proofs_of, subject_of
from proctor.runtime.registry import runtime_by_id, runtime_ids
from proctor.runtime.resolve import ExamineProgram, as_located
from proctor.testing.conformance import Case, cases


class MatrixColumn(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One runtime over one transport."""

    id: RuntimeId
    """Id of the runtime."""
    transport: str
    """Transport; empty if the runtime could not be loaded."""
    subject: str | None = None
    """sha256 of the program installed now, or of the runtime's source code if it runs no program; null if unknown."""
    version: str | None = None
    """Version that this program reported in a conformance run; null if unknown."""
    is_locked: bool | None = None
    """Whether the program has the digest that its package records; null if no package records one."""
    isolations: tuple[str, ...] = ()
    """Isolations that this program was tested in."""
    capabilities: dict[str, ProofState] = {}
    """State of every capability, by its name."""
    cases: dict[str, ProofState] = {}
    """State of every case that proves no single capability, by its id. Every runtime must pass these."""
    problem: str | None = None
    """Why the runtime or its program cannot be used; null if it can."""


class Matrix(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Declared and proven capabilities of all runtimes."""

    proctor: str
    """Version of Proctor that the proofs are compared with."""
    columns: tuple[MatrixColumn, ...]
    """One column per runtime and transport."""


def matrix(folder: Path, *, examine: ExamineProgram = as_located) -> Matrix:
    """Return the state of every runtime, according to proofs.db in this folder."""
    rows = read_proofs(folder)
    columns = [column for runtime_id in runtime_ids() for column in _columns(runtime_id, rows, examine)]
    return Matrix(proctor=__version__, columns=tuple(columns))


def _columns(runtime_id: RuntimeId, rows: Sequence[ProofRow], examine: ExamineProgram) -> Iterator[MatrixColumn]:
    try:
        runtime = runtime_by_id(runtime_id)
    except Exception as error:  # a plugin may raise anything
        yield MatrixColumn(id=runtime_id, transport="", problem=f"{type(error).__name__}: {error}")
        return
    subject, is_locked, problem = None, None, None
    try:
        program = examine(runtime, runtime.locate({}))
        subject, is_locked = subject_of(runtime, program), None if program is None else program.is_locked
    except ProctorError as error:
        # Without the error's own text, which names paths of this machine: the page is published.
        problem = f"{error.code}: {error.meaning.means}"
    except Exception as error:  # a plugin may raise anything
        problem = f"{type(error).__name__}: {error}"
    for transport in runtime.transports:
        proofs = proofs_of(runtime, transport, subject, rows)
        yield MatrixColumn(
            id=runtime_id,
            transport=transport,
            subject=subject,
            version=next((row.version for row in reversed(proofs.current) if row.version), None),
            is_locked=is_locked,
            isolations=tuple(sorted({row.isolation for row in proofs.current})),
            capabilities=proofs.capability_states(runtime.capabilities),
            cases={case.id: _case_state(case, runtime, proofs) for case in cases() if case.proves is None},
            problem=problem,
        )


def _case_state(case: Case, runtime: Runtime, proofs: ProofSet) -> ProofState:
    if not all(getattr(runtime.capabilities, capability) for capability in case.capabilities):
        return ProofState.NOT_DECLARED
    return proofs.case_state(case.id)


# ── Markdown ──


def render_markdown(result: Matrix) -> str:
    """Render the compatibility page, docs/reference/matrix.md."""
    return "\n\n".join(_parts(result)) + "\n"


def _parts(result: Matrix) -> Iterator[str]:
    yield "# Runtime compatibility: declared and proven capabilities"
    yield "<!-- Written by `make matrix` from a run of the conformance suite; changes made here are lost. -->"
    yield (
        "A declared capability is *proven* when every case of the conformance suite for it has passed with the program "
        "named here. Otherwise it is only *declared*, or *stale* if it was proven with another program. "
        "`proctor runtimes conformance ID` runs the suite with the program on your machine, `proctor runtimes matrix` "
        "prints this table for your machine, and [the checklist](../howto/onboard-a-runtime.md) explains each case."
    )
    heads = ("", *(f"`{column.id}` {column.transport}" for column in result.columns))
    yield "## Programs"
    facts = [
        ("version", [column.version or "unknown" for column in result.columns]),
        ("sha256", [f"`{column.subject}`" if column.subject else "none" for column in result.columns]),
        ("isolations tested", [", ".join(column.isolations) or "none" for column in result.columns]),
        ("problem", [column.problem or "" for column in result.columns]),
    ]
    yield _table(heads, [(name, *values) for name, values in facts if any(values)])
    yield "## Capabilities"
    yield _table(heads, _rows([column.capabilities for column in result.columns]))
    yield "## Cases that every runtime must pass"
    yield _table(heads, _rows([column.cases for column in result.columns]))
    yield f"Tested with Proctor {result.proctor}."


def _rows(columns: Sequence[dict[str, ProofState]]) -> Iterator[tuple[str, ...]]:
    for name in dict.fromkeys(name for column in columns for name in column):
        yield name, *(column.get(name, "") for column in columns)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [[text.replace("|", "\\|") for text in row] for row in (heads, *rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
