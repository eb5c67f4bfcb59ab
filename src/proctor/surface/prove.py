"""Claims put to the proof: the real agent is started offline, and each thing it is said to do is asked of it."""

import anyio
import msgspec

from proctor.errors import Exit, InputError, ProctorError, lone
from proctor.ids import StrategyId
from proctor.runtime.base import Executable
from proctor.runtime.registry import runtime_by_id
from proctor.surface.programs import Refusal
from proctor.testing.proofs import CASES, UnprovenError
from proctor.testing.trial import Trial, open_trial

CASE_S = 30.0


class Proof(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One claim, by its name among a runtime's claims.

    `is_proven` is none where it was not tried; `what` says why it is not proven.
    """

    name: str
    is_claimed: bool
    is_proven: bool | None = None
    what: str | None = None


class Proven(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One runtime with the very program that was tried."""

    id: StrategyId
    exit: Exit
    version: str | None = None
    program: Executable | None = None
    proofs: tuple[Proof, ...] = ()
    problem: Refusal | None = None


def prove(strategy: StrategyId) -> Proven:
    """Whatever the agent does, this ends and says what was seen. InputError where there is no such runtime."""
    runtime = runtime_by_id(strategy)
    program: Executable | None = None
    try:
        program = runtime.locate({})
        version, proofs = anyio.run(_tried, strategy, program)
    except ProctorError as error:
        problem = Refusal(code=error.code, what=error.what, todo=error.meaning.todo)
        return Proven(id=strategy, exit=Exit.INFRASTRUCTURE, program=program, problem=problem)
    return Proven(id=strategy, exit=_exit(proofs), version=version, program=program, proofs=proofs)


def _exit(proofs: tuple[Proof, ...]) -> Exit:
    """Disproved is a no; a claim that nothing tried to prove is unverified."""
    claimed = [proof.is_proven for proof in proofs if proof.is_claimed]
    if False in claimed:
        return Exit.JUDGED_NO
    return Exit.UNVERIFIED if None in claimed else Exit.OK


async def _tried(strategy: StrategyId, program: Executable | None) -> tuple[str | None, tuple[Proof, ...]]:
    runtime = runtime_by_id(strategy)
    async with open_trial(runtime, program) as trial:
        version = trial.host.facts.get("version")
        proofs = [Proof(name="handshake", is_claimed=True, is_proven=True)]
        for field in msgspec.structs.fields(runtime.claims):
            if getattr(runtime.claims, field.name):
                proofs.append(await _proof(field, trial))
            else:
                proofs.append(Proof(name=field.encode_name, is_claimed=False))
        return None if version is None else str(version.value), tuple(proofs)


async def _proof(claim: msgspec.structs.FieldInfo, trial: Trial) -> Proof:
    name, case = claim.encode_name, CASES.get(claim.name)
    if case is None:
        return Proof(name=name, is_claimed=True, what="nothing tries to prove it")
    what: str | None = None
    try:
        with anyio.fail_after(CASE_S):
            await case(trial)
    except TimeoutError:
        what = f"no end within {CASE_S:g} s"
    except InputError as error:
        # Not tried: it wants to be told by a flow what to run.
        return Proof(name=name, is_claimed=True, what=str(error))
    except (ProctorError, UnprovenError) as error:
        what = str(error)
    except Exception as error:  # a plugin may do anything
        only = lone(error) if isinstance(error, BaseExceptionGroup) else error
        what = str(only) if isinstance(only, ProctorError | UnprovenError) else f"{type(only).__name__}: {only}"
    return Proof(name=name, is_claimed=True, is_proven=what is None, what=what)
