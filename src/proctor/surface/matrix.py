"""What runtimes claim against what they have shown; run as a module it tries them all and writes the page."""

import contextlib
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from proctor import __version__
from proctor.errors import ProctorError
from proctor.evidence.layout import render_artifact
from proctor.evidence.proofs import ProofRow, read_proofs
from proctor.ids import StrategyId
from proctor.runtime.base import Runtime
from proctor.runtime.capability import Claims
from proctor.runtime.registry import runtime_by_id, strategy_ids
from proctor.surface.prove import prove
from proctor.testing.conformance import Case, Result, cases
from proctor.testing.conformance.subject import digest_of, isolations_of

PAGE = Path("docs/reference/matrix.md")
FIGURES = PAGE.with_suffix(".json")


class ProofState(StrEnum):
    """Of a claim or a case, on one transport. Claimed is never proven."""

    PROVEN = "proven"  # every case for it passed, on this program and with this Proctor
    FAILED = "FAILED"  # a case for it failed
    STALE = "stale"  # it was proven on another program or with another Proctor
    CLAIMED = "claimed"  # nothing has shown it, or not all of it
    UNTRIED = "untried"
    NOT_CLAIMED = "not claimed"
    NOT_APPLICABLE = "not applicable"  # could not be tried


class Lane(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One runtime over one transport. `subject` is the sha256 of the program there is now, `isolations` those tried."""

    id: StrategyId
    transport: str
    subject: str | None = None
    version: str | None = None
    is_locked: bool | None = None
    isolations: tuple[str, ...] = ()
    claims: dict[str, ProofState] = {}
    cases: dict[str, ProofState] = {}
    problem: str | None = None


class Matrix(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    proctor: str
    lanes: tuple[Lane, ...]


def matrix(root: Path) -> Matrix:
    """Every runtime there is, with what proofs.db below this evidence root holds of it."""
    rows = read_proofs(root)
    lanes = [lane for strategy in strategy_ids() for lane in _lanes(strategy, rows)]
    return Matrix(proctor=__version__, lanes=tuple(lanes))


def _lanes(strategy: StrategyId, rows: Sequence[ProofRow]) -> Iterator[Lane]:
    try:
        runtime = runtime_by_id(strategy)
    except Exception as error:  # a plugin may do anything
        yield Lane(id=strategy, transport="", problem=f"{type(error).__name__}: {error}")
        return
    subject, is_locked, problem = None, None, None
    try:
        program = runtime.locate({})
        subject, is_locked = digest_of(runtime, program), None if program is None else program.is_locked
    except ProctorError as error:
        # Not what it says of this machine: the page is for all.
        problem = f"{error.code}: {error.meaning.means}"
    except Exception as error:  # a plugin may do anything
        problem = f"{type(error).__name__}: {error}"
    for transport in runtime.transports:
        own = [row for row in rows if (row.strategy, row.transport) == (strategy, transport)]
        now = [row for row in own if (row.subject, row.proctor) == (subject, __version__)]
        by_case = {case.id: _standing(case, runtime, own, now) for case in cases()}
        yield Lane(
            id=strategy,
            transport=transport,
            subject=subject,
            version=next((row.version for row in reversed(now) if row.version), None),
            is_locked=is_locked,
            isolations=tuple(sorted({row.isolation for row in now})),
            claims={
                field.encode_name: _claim(field.name, runtime, by_case) for field in msgspec.structs.fields(Claims)
            },
            cases={case.id: by_case[case.id] for case in cases() if case.proves is None},
            problem=problem,
        )


def _standing(case: Case, runtime: Runtime, own: Sequence[ProofRow], now: Sequence[ProofRow]) -> ProofState:
    if not all(getattr(runtime.claims, claim) for claim in case.claims):
        return ProofState.NOT_CLAIMED
    # The newest of each isolation counts; one that fails is not made good by another.
    newest = {row.isolation: row.result for row in now if row.case == case.id}
    if Result.FAILED in newest.values():
        return ProofState.FAILED
    if Result.PASSED in newest.values():
        return ProofState.PROVEN
    if Result.NOT_APPLICABLE in newest.values():
        return ProofState.NOT_APPLICABLE
    has_passed = any(row.case == case.id and row.result == Result.PASSED for row in own)
    return ProofState.STALE if has_passed else ProofState.UNTRIED


def _claim(claim: str, runtime: Runtime, by_case: dict[str, ProofState]) -> ProofState:
    """As good as the worst of the cases that prove it."""
    if not getattr(runtime.claims, claim):
        return ProofState.NOT_CLAIMED
    states = {by_case[case.id] for case in cases() if case.proves == claim}
    if ProofState.FAILED in states:
        return ProofState.FAILED
    if states == {ProofState.PROVEN}:
        return ProofState.PROVEN
    is_stale = ProofState.STALE in states <= {ProofState.STALE, ProofState.PROVEN}
    return ProofState.STALE if is_stale else ProofState.CLAIMED


# ── for people ──


def render_markdown(told: Matrix) -> str:
    """The compatibility page."""
    return "\n\n".join(_parts(told)) + "\n"


def _parts(told: Matrix) -> Iterator[str]:
    yield "# What runtimes claim, and what they have shown"
    yield "<!-- Written by `make matrix` from a run of the conformance suite; changes made here are lost. -->"
    yield (
        "A claim is not a proof. It is *proven* when every case of the suite for it has passed on the very program "
        "named here; else it is only *claimed*, or *stale* where another program had shown it. "
        "`proctor runtimes conformance ID` has the program on your machine show it, `proctor runtimes matrix` tells "
        "this of your machine, and [the checklist](../howto/onboard-a-runtime.md) says what each case is."
    )
    heads = ("", *(f"`{lane.id}` {lane.transport}" for lane in told.lanes))
    yield "## Programs"
    facts = [
        ("version", [lane.version or "unknown" for lane in told.lanes]),
        ("sha256", [f"`{lane.subject}`" if lane.subject else "none" for lane in told.lanes]),
        ("isolation tried", [", ".join(lane.isolations) or "none" for lane in told.lanes]),
        ("problem", [lane.problem or "" for lane in told.lanes]),
    ]
    yield _table(heads, [(name, *values) for name, values in facts if any(values)])
    yield "## Claims"
    yield _table(heads, _rows([lane.claims for lane in told.lanes]))
    yield "## What no claim stands for, and every runtime has to show"
    yield _table(heads, _rows([lane.cases for lane in told.lanes]))
    yield f"Tried with Proctor {told.proctor}."


def _rows(columns: Sequence[dict[str, ProofState]]) -> Iterator[tuple[str, ...]]:
    for name in dict.fromkeys(name for column in columns for name in column):
        yield name, *(column.get(name, "") for column in columns)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [[cell.replace("|", "\\|") for cell in row] for row in (heads, *rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ── the page of the checkout ──


def write(checkout: Path, plugins: Sequence[str]) -> None:
    """Have our runtimes and these plugins show all they can, and write down what that came to."""
    checkout = checkout.resolve()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        # Plugins are those that the config of the current folder names.
        Path("proctor.toml").write_text(f"plugins = {msgspec.json.encode(plugins).decode()}\n", encoding="utf-8")
        for strategy in strategy_ids():
            runtime = runtime_by_id(strategy)
            for transport in runtime.transports:
                for isolation in isolations_of(runtime):
                    told = prove(strategy, root=Path(folder), transport=transport, isolation=isolation.value)
                    print(strategy, transport, isolation.value, told.exit.name, file=sys.stderr)  # noqa: T201
        found = matrix(Path(folder))
    (checkout / FIGURES).write_bytes(render_artifact(found))
    (checkout / PAGE).write_text(render_markdown(found), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2:])
