"""A runtime put to the conformance suite, on the real agent, offline; what it showed is kept in proofs.db."""

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import msgspec

from proctor import __version__
from proctor.clock import SYSTEM_CLOCK
from proctor.errors import Exit, ProctorError
from proctor.evidence.proofs import ProofRow, add_proofs
from proctor.ids import StrategyId
from proctor.runtime.base import Executable
from proctor.runtime.registry import runtime_by_id
from proctor.surface.programs import Refusal
from proctor.testing.conformance import Case, Result, Verdict, cases, open_subject, run_suite


class Proven(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One runtime, over one transport and in one isolation, with the very program that was tried.

    `subject` is that program's sha256, or the digest of what stands for it.
    """

    id: StrategyId
    exit: Exit
    transport: str
    isolation: str | None = None
    version: str | None = None
    subject: str | None = None
    program: Executable | None = None
    verdicts: tuple[Verdict, ...] = ()
    problem: Refusal | None = None


def prove(
    strategy: str,
    *,
    root: Path,
    transport: str | None = None,
    isolation: str | None = None,
    only: Sequence[Case] | None = None,
    ended: Callable[[Verdict], None] | None = None,
) -> Proven:
    """Whatever the agent does, this ends and says what was seen. InputError where there is no such runtime."""
    chosen = tuple(only or cases())
    runtime = runtime_by_id(StrategyId(strategy))

    async def tried() -> Proven:
        async with open_subject(strategy, transport=transport, isolation=isolation) as subject:
            verdicts = await run_suite(subject, only=chosen, ended=ended)
            has_failed = any(each.result is Result.FAILED for each in verdicts)
            return Proven(
                id=runtime.id,
                exit=Exit.JUDGED_NO if has_failed else Exit.OK,
                transport=subject.transport,
                isolation=subject.isolation.value,
                version=subject.version,
                subject=subject.digest,
                program=subject.program,
                verdicts=verdicts,
            )

    try:
        proven = anyio.run(tried)
    except ProctorError as error:
        if error.exit is Exit.USAGE:
            raise
        problem = Refusal(code=error.code, what=error.what, todo=error.meaning.todo)
        over = transport or runtime.transports[0]
        return Proven(id=runtime.id, exit=Exit.INFRASTRUCTURE, transport=over, isolation=isolation, problem=problem)
    add_proofs(root, rows_of(proven))
    return proven


def rows_of(proven: Proven) -> list[ProofRow]:
    at_ms = SYSTEM_CLOCK.wall_ms()
    return [
        ProofRow(
            strategy=proven.id,
            transport=proven.transport,
            isolation=proven.isolation or "",
            subject=proven.subject or "",
            version=proven.version,
            case=each.case,
            result=each.result,
            what=each.what,
            at_ms=at_ms,
            proctor=__version__,
        )
        for each in proven.verdicts
    ]
