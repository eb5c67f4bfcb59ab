"""The rollout state of each runtime (who may use it, whether or not it can run), and what `auto` resolves to."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from proctor.config.model import Config, ConfigFile, RolloutRequirement, RolloutState, Setting
from proctor.errors import InputError, MachineError
from proctor.fact import Authority, Fact
from proctor.ids import RuntimeId
from proctor.runtime.base import Runtime
from proctor.runtime.proof import ProofSet, ProofState
from proctor.runtime.registry import offers
from proctor.spec.model import AUTO
from proctor.spec.source_file import SourceFile
from proctor.spec.suggest import nearest
from proctor.spec.tree import child_path

DEFAULT_RUNTIME: Final = RuntimeId("codex_app_server")

ROLLOUT_STATES: Final[Mapping[str, RolloutState]] = {
    "codex_app_server": RolloutState.DEFAULT,
    "codex_exec": RolloutState.SELECTABLE,
    "claude_code": RolloutState.SELECTABLE,
    "process": RolloutState.SELECTABLE,
    "replay": RolloutState.INTERNAL,
}
"""The states without a config. Any other runtime, such as a plugin, is selectable."""

_PROOF_IS_ENOUGH: Final = (ProofState.PROVEN, ProofState.NOT_DECLARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Whether a runtime is enabled, and its rollout state, each with the file that set it."""

    runtime_id: RuntimeId
    is_enabled: Setting[bool]
    state: Setting[RolloutState]
    requires: Setting[RolloutRequirement]

    @property
    def is_open_to_auto(self) -> bool:
        """Whether `auto` may resolve to it."""
        return self.is_enabled.value and self.state.value is RolloutState.DEFAULT

    @property
    def description(self) -> str:
        """The state and its source, to follow "is" in a message."""
        if not self.is_enabled.value:
            return f"switched off by {self.is_enabled.source}"
        return f"{self.state.value.value} ({self.state.source})"

    def admit(self) -> None:
        """Raise InputError if a flow may not use the runtime even by name."""
        if not self.is_enabled.value:
            raise InputError("runtime.disabled", f"{self.runtime_id} is switched off by {self.is_enabled.source}")
        if self.state.value is RolloutState.LOCKED:
            raise InputError("runtime.locked", f"{self.runtime_id} is locked by {self.state.source}")

    def require_proof(self, proofs: ProofSet, runtime: Runtime, *, transport: str) -> None:
        """Raise MachineError if the rollout requires that the runtime is proven, and it is not."""
        if self.requires.value is not RolloutRequirement.PROVEN:
            return
        states = proofs.capability_states(runtime.capabilities)
        wanting = [f"{name} is {state}" for name, state in states.items() if state not in _PROOF_IS_ENOUGH]
        wanting += [f"the case {case} failed" for case in proofs.failed_cases]
        if wanting:
            what = f"{self.runtime_id} over {transport} must be proven ({self.requires.source}), but with its program"
            todo = f"Run `proctor runtimes conformance {self.runtime_id} --transport {transport}`."
            raise MachineError("runtime.unproven", f"{what} {', '.join(wanting)}", suggestion=todo)

    def fact(self) -> Fact:
        return Fact(
            value={
                "state": self.state.value.value,
                "autoResolves": self.is_open_to_auto,
                "requires": self.requires.value.value,
            },
            authority=Authority.DECLARED,
            source=self.state.source,
        )


def rollout_of(runtime_id: RuntimeId, config: Config) -> Rollout:
    return Rollout(
        runtime_id=runtime_id,
        is_enabled=config.is_enabled(runtime_id),
        state=config.rollout_state(runtime_id, default=ROLLOUT_STATES.get(runtime_id, RolloutState.SELECTABLE)),
        requires=config.rollout_requirement(runtime_id),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainMember:
    """One runtime of a chain in which `auto` has been resolved."""

    runtime_id: RuntimeId
    is_fallback: bool = False
    """Whether `auto` chose it although no default runtime declares the model."""


def spell_out(
    chain: Iterable[RuntimeId],
    *,
    rollouts: Collection[Rollout],
    declares_model: Callable[[RuntimeId], bool],
    default_runtime: RuntimeId,
) -> tuple[ChainMember, ...]:
    """Replace `auto` in a chain by the runtimes whose rollout state is `default`.

    Those that declare the model come first: `default_runtime`, then the others by id. Those that do not declare it
    follow. If none declares the model, `auto` becomes `default_runtime` alone, if its state is `default`; otherwise
    `auto` stays in the chain. Each runtime occurs once.
    """
    members: dict[RuntimeId, ChainMember] = {}
    for runtime_id in chain:
        for member in (
            _resolve_auto(rollouts, declares_model, default_runtime)
            if runtime_id == AUTO
            else (ChainMember(runtime_id=runtime_id),)
        ):
            members.setdefault(member.runtime_id, member)
    return tuple(members.values())


def _resolve_auto(
    rollouts: Collection[Rollout], declares_model: Callable[[RuntimeId], bool], default_runtime: RuntimeId
) -> Sequence[ChainMember]:
    defaults = sorted(
        (rollout.runtime_id for rollout in rollouts if rollout.is_open_to_auto),
        key=lambda each: (each != default_runtime, each),
    )
    declaring = [runtime_id for runtime_id in defaults if declares_model(runtime_id)]
    if declaring:
        others = [runtime_id for runtime_id in defaults if runtime_id not in declaring]
        return [ChainMember(runtime_id=runtime_id) for runtime_id in (*declaring, *others)]
    if default_runtime in defaults:
        return [ChainMember(runtime_id=default_runtime, is_fallback=True)]
    return [ChainMember(runtime_id=AUTO)]


def check_config(config: Config) -> None:
    """Raise InputError if a config file names an unknown runtime: a lock on a misspelled id has no effect."""
    for file in config.files:
        for runtime_id in file.value.rollout:
            _refuse_unknown(file, runtime_id, key=child_path("rollout", runtime_id), config=config)
        if (default_runtime := file.value.default_runtime) is not None:
            _refuse_unknown(file, default_runtime, key="default_runtime", config=config)


def _refuse_unknown(file: SourceFile[ConfigFile], runtime_id: RuntimeId, *, key: str, config: Config) -> None:
    # A plugin that the config names may be installed on other machines.
    if runtime_id in offers() or runtime_id in ROLLOUT_STATES or config.allows_plugin(runtime_id):
        return
    close = nearest(runtime_id, offers())
    suggestion = f"Did you mean `{close}`?" if close else "Add it to `plugins`, or use a built-in runtime."
    raise file.error("spec.unknown-runtime", f"unknown runtime {runtime_id!r}", key=key, suggestion=suggestion)
