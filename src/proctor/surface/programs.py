"""The runtimes there are, where each comes from, who may use it, and the agent program that it would run."""

import msgspec

from proctor.config.model import Config, Rollout
from proctor.errors import ProctorError
from proctor.ids import StrategyId
from proctor.runtime.base import Executable
from proctor.runtime.capability import Capability, Claims
from proctor.runtime.lane import lane_of
from proctor.runtime.registry import Offer, offers, runtime_by_id


class Refusal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why there is no program, and what to install."""

    code: str
    what: str
    todo: str


class LaneTold(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was decided about a runtime, and by which line of which file."""

    is_enabled: bool
    enabled_by: str
    rollout: Rollout
    rollout_by: str


class Program(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One runtime. The program's version is not known until it runs and says it.

    `is_named` says whether a config names it, without which a plugin is not loaded.
    """

    id: StrategyId
    distributions: tuple[str, ...]
    is_built_in: bool
    is_named: bool
    lane: LaneTold
    transports: tuple[str, ...] = ()
    capability: Capability | None = None
    claims: Claims | None = None
    program: Executable | None = None
    is_locked: bool | None = None
    problem: Refusal | None = None


def find_programs(config: Config) -> tuple[Program, ...]:
    """Every runtime by its id; one that fails is told, and hides no other."""
    return tuple(_find(offer, config) for offer in offers().values())


def _find(offer: Offer, config: Config) -> Program:
    lane = lane_of(offer.id, config)
    found = Program(
        id=offer.id,
        distributions=offer.distributions,
        is_built_in=offer.is_built_in,
        is_named=config.names(offer.id),
        lane=LaneTold(
            is_enabled=lane.is_enabled.value,
            enabled_by=lane.is_enabled.source,
            rollout=lane.rollout.value,
            rollout_by=lane.rollout.source,
        ),
    )
    try:
        runtime = runtime_by_id(offer.id, config)
        found = msgspec.structs.replace(
            found, transports=runtime.transports, capability=runtime.capability, claims=runtime.claims
        )
        program = runtime.locate({})
    except ProctorError as error:
        todo = error.suggestion or error.meaning.todo
        return msgspec.structs.replace(found, problem=Refusal(code=error.code, what=error.what, todo=todo))
    except Exception as error:  # a plugin may do anything
        what = f"{type(error).__name__}: {error}"
        todo = "Report it to whoever made this runtime."
        return msgspec.structs.replace(found, problem=Refusal(code="run.harness", what=what, todo=todo))
    return msgspec.structs.replace(found, program=program, is_locked=None if program is None else program.is_locked)
