"""The runtimes there are, and the agent program that each would run."""

import msgspec

from proctor.errors import ProctorError
from proctor.ids import StrategyId
from proctor.runtime.base import Executable
from proctor.runtime.capability import Capability, Claims
from proctor.runtime.registry import runtime_by_id, strategy_ids


class Refusal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why there is no program, and what to install."""

    code: str
    what: str
    todo: str


class Program(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One runtime. The program's version is not known until it runs and says it."""

    id: StrategyId
    transports: tuple[str, ...] = ()
    capability: Capability | None = None
    claims: Claims | None = None
    program: Executable | None = None
    is_locked: bool | None = None
    problem: Refusal | None = None


def find_programs() -> tuple[Program, ...]:
    """Every runtime by its id; one that fails is told, and hides no other."""
    return tuple(map(_find, strategy_ids()))


def _find(strategy: StrategyId) -> Program:
    found = Program(id=strategy)
    try:
        runtime = runtime_by_id(strategy)
        found = Program(
            id=strategy, transports=runtime.transports, capability=runtime.capability, claims=runtime.claims
        )
        program = runtime.locate({})
    except ProctorError as error:
        return msgspec.structs.replace(
            found, problem=Refusal(code=error.code, what=error.what, todo=error.meaning.todo)
        )
    except Exception as error:  # a plugin may do anything
        what = f"{type(error).__name__}: {error}"
        todo = "Report it to whoever made this runtime."
        return msgspec.structs.replace(found, problem=Refusal(code="run.harness", what=what, todo=todo))
    return msgspec.structs.replace(found, program=program, is_locked=None if program is None else program.is_locked)
