"""List the runtimes: where each comes from, who may use it, and which agent program it would run."""

import msgspec

from proctor.config.model import Config, RolloutRequirement, RolloutState
from proctor.config.plugins import Offer
from proctor.errors import ProctorError
from proctor.ids import RuntimeId
from proctor.runtime.base import Executable
from proctor.runtime.capability import Capabilities, CapabilityProfile
from proctor.runtime.registry import offers, runtime_by_id
from proctor.runtime.resolve import ExamineProgram, as_located
from proctor.runtime.rollout import rollout_of


class Refusal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a runtime cannot run its agent, and what to do about it."""

    code: str
    """Error code, as listed in docs/reference/errors.md."""
    what: str
    """What is wrong."""
    todo: str
    """What the user can do about it."""


class RolloutSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who may use a runtime, and which setting decides that."""

    is_enabled: bool
    """Whether the runtime is switched on."""
    enabled_by: str
    """The setting that decides `isEnabled`: the built-in default, or a config file and its line."""
    state: RolloutState
    """Rollout state of the runtime."""
    state_by: str
    """The setting that decides `state`: the built-in default, or a config file and its line."""
    requires: RolloutRequirement
    """What must be known of the runtime's capabilities before a flow may use it."""


class Program(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One runtime and the agent program that it would run."""

    id: RuntimeId
    """Id of the runtime, as a spec names it."""
    distributions: tuple[str, ...]
    """Installed Python packages that offer the runtime; more than one is a conflict."""
    is_built_in: bool
    """Whether Proctor itself provides the runtime."""
    is_named: bool
    """Whether a config file names the runtime. A plugin that is not named is not loaded."""
    rollout: RolloutSummary
    """Who may use the runtime."""
    transports: tuple[str, ...] = ()
    """Transports that the runtime supports, its default first."""
    profile: CapabilityProfile | None = None
    """Capability profile of the runtime; null if it could not be loaded."""
    capabilities: Capabilities | None = None
    """Capabilities that the runtime declares; null if it could not be loaded."""
    program: Executable | None = None
    """The agent program; null if the runtime runs none, or if it was not found or cannot be used."""
    is_locked: bool | None = None
    """Whether the program has the digest that its package records; null if no package records one."""
    problem: Refusal | None = None
    """Why the runtime or its program cannot be used; null if it can."""


def find_programs(config: Config, *, examine: ExamineProgram = as_located) -> tuple[Program, ...]:
    """Return every runtime. One that fails to load, or whose program cannot be used, is listed with its problem."""
    return tuple(_find(offer, config, examine) for offer in offers().values())


def _find(offer: Offer, config: Config, examine: ExamineProgram) -> Program:
    rollout = rollout_of(offer.id, config)
    listed = Program(
        id=offer.id,
        distributions=offer.distributions,
        is_built_in=offer.is_built_in,
        is_named=config.allows_plugin(offer.id),
        rollout=RolloutSummary(
            is_enabled=rollout.is_enabled.value,
            enabled_by=rollout.is_enabled.source,
            state=rollout.state.value,
            state_by=rollout.state.source,
            requires=rollout.requires.value,
        ),
    )
    try:
        runtime = runtime_by_id(offer.id, config)
        listed = msgspec.structs.replace(
            listed, transports=runtime.transports, profile=runtime.profile, capabilities=runtime.capabilities
        )
        program = examine(runtime, runtime.locate({}))
    except ProctorError as error:
        todo = error.suggestion or error.meaning.todo
        return msgspec.structs.replace(listed, problem=Refusal(code=error.code, what=error.what, todo=todo))
    except Exception as error:  # a plugin may raise anything
        what = f"{type(error).__name__}: {error}"
        todo = "Report it to the author of this runtime."
        return msgspec.structs.replace(listed, problem=Refusal(code="run.harness", what=what, todo=todo))
    return msgspec.structs.replace(listed, program=program, is_locked=None if program is None else program.is_locked)
