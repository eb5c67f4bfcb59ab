"""Run the conformance suite on a runtime with the real agent, offline, and store the results in proofs.db."""

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import msgspec

from proctor import __version__
from proctor.clock import SYSTEM_CLOCK
from proctor.errors import Exit, ProctorError
from proctor.evidence.proofs import ProofRow, add_proofs
from proctor.ids import RuntimeId
from proctor.runtime.base import Executable
from proctor.runtime.registry import runtime_by_id
from proctor.surface.programs import Refusal
from proctor.testing.conformance import Case, CaseVerdict, Result, cases, open_subject, run_suite


class ConformanceResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The results of one runtime over one transport in one isolation."""

    id: RuntimeId
    """Id of the runtime."""
    exit: Exit
    """Exit code of the command: 0 if no case failed, 1 if one did, 3 if the agent cannot be started."""
    transport: str
    """Transport that was tested."""
    isolation: str | None = None
    """Isolation that was tested; null if the agent could not be started and none was requested."""
    version: str | None = None
    """Version that the agent program reports; null if unknown."""
    subject: str | None = None
    """sha256 of the agent program, or of the runtime's source code if it runs no program."""
    program: Executable | None = None
    """The agent program that was tested; null if the runtime runs no program."""
    verdicts: tuple[CaseVerdict, ...] = ()
    """One verdict per case, in the order of the suite."""
    problem: Refusal | None = None
    """Why the agent could not be started; null if it was."""


def prove(
    runtime_id: str,
    *,
    folder: Path,
    transport: str | None = None,
    isolation: str | None = None,
    only: Sequence[Case] | None = None,
    ended: Callable[[CaseVerdict], None] | None = None,
) -> ConformanceResult:
    """Run the cases (`only` these, if given) and add the verdicts to proofs.db in the folder.

    `ended` is called after each case.

    Raises InputError if the runtime, transport or isolation does not exist. If the agent cannot be started, the result
    has a `problem` and nothing is stored.
    """
    chosen_cases = tuple(only or cases())
    runtime = runtime_by_id(RuntimeId(runtime_id))

    async def run_cases() -> ConformanceResult:
        async with open_subject(runtime_id, transport=transport, isolation=isolation) as subject:
            verdicts = await run_suite(subject, only=chosen_cases, ended=ended)
            has_failed = any(each.result is Result.FAILED for each in verdicts)
            return ConformanceResult(
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
        result = anyio.run(run_cases)
    except ProctorError as error:
        if error.exit is Exit.USAGE:
            raise
        problem = Refusal(code=error.code, what=error.what, todo=error.meaning.todo)
        return ConformanceResult(
            id=runtime.id,
            exit=Exit.INFRASTRUCTURE,
            transport=transport or runtime.transports[0],
            isolation=isolation,
            problem=problem,
        )
    add_proofs(folder, _proof_rows(result))
    return result


def _proof_rows(result: ConformanceResult) -> list[ProofRow]:
    at_ms = SYSTEM_CLOCK.wall_ms()
    return [
        ProofRow(
            runtime_id=result.id,
            transport=result.transport,
            isolation=result.isolation or "",
            subject=result.subject or "",
            version=result.version,
            case=each.case,
            result=each.result,
            what=each.what,
            at_ms=at_ms,
            proctor=__version__,
        )
        for each in result.verdicts
    ]
