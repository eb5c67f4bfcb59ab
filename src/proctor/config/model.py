"""The config: which runtimes may be used, which is the default, and how long evidence is kept."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from proctor.config.retention import RetentionSettings
from proctor.ids import RuntimeId
from proctor.spec.context_settings import ContextSettings
from proctor.spec.source_file import SourceFile
from proctor.spec.struct import Spec
from proctor.spec.task_classes import TaskClass
from proctor.spec.tree import child_path

T = TypeVar("T")


class RolloutState(StrEnum):
    """How a runtime may be chosen. It does not depend on whether the runtime is installed."""

    LOCKED = "locked"
    """It cannot be used."""

    INTERNAL = "internal"
    """It can be used by name, and is not listed as a choice."""

    SELECTABLE = "selectable"
    """It can be used by name."""

    DEFAULT = "default"
    """It can be used by name, and `auto` may choose it."""


class RolloutRequirement(StrEnum):
    """What must be known of a runtime's capabilities before a flow may use it."""

    DECLARED = "declared"
    """The runtime declares them."""

    PROVEN = "proven"
    """The conformance suite has proven every one that it declares, with the program that is installed now."""


class RolloutSettings(Spec, frozen=True, kw_only=True):
    """`[rollout.<runtime>]`: the rollout of one runtime."""

    enabled: bool | None = None
    """Whether the runtime is enabled. Default: enabled."""

    state: RolloutState | None = None
    """The rollout state. Default: the built-in state of the runtime."""

    requires: RolloutRequirement | None = None
    """What must be known of the runtime's capabilities. Default: `declared`."""


class ConfigFile(Spec, frozen=True, kw_only=True):
    """A whole config file."""

    plugins: list[RuntimeId] = msgspec.field(default_factory=list)
    """Ids of the plugins whose runtime, model dialect, kind of probe or context engine may be loaded. Default: none."""

    default_runtime: RuntimeId | None = None
    """The runtime that `auto` tries first. Default: the built-in one."""

    rollout: dict[RuntimeId, RolloutSettings] = msgspec.field(default_factory=dict)
    """The rollout of runtimes, by id. Default: the built-in rollout."""

    task_classes: dict[str, TaskClass] = msgspec.field(default_factory=dict)
    """Task classes by name: new ones, and keys and criteria for built-in ones. Default: the built-in classes."""

    retention: RetentionSettings = RetentionSettings()
    """How long evidence is kept. Default: no limit."""

    context: ContextSettings | None = None
    """The context engine of sessions with an id that name none. Default: `lossless`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[T]):
    """A value and its source: `built in`, or `FILE:LINE` without the folder, which may reveal the user's name."""

    value: T
    source: str


BUILT_IN = "built in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The config files, the project's before the user's. If both have a setting, the first one wins.

    `home` is the file to which new settings should be added; it may not exist.
    """

    home: Path
    files: tuple[SourceFile[ConfigFile], ...] = ()

    @property
    def plugins(self) -> list[RuntimeId]:
        """The ids of all allowed plugins, without duplicates."""
        return list(dict.fromkeys(name for file in self.files for name in file.value.plugins))

    def allows_plugin(self, runtime_id: RuntimeId) -> bool:
        """Return whether a plugin may be loaded: at least one file lists it."""
        return runtime_id in self.plugins

    def is_enabled(self, runtime_id: RuntimeId) -> Setting[bool]:
        """Return whether a runtime is enabled."""
        for file in self.files:
            settings = file.value.rollout.get(runtime_id, RolloutSettings())
            if settings.enabled is not None:
                return Setting(
                    value=settings.enabled, source=_source(file, child_path("rollout", runtime_id) + ".enabled")
                )
        return Setting(value=True, source=BUILT_IN)

    def rollout_state(self, runtime_id: RuntimeId, *, default: RolloutState) -> Setting[RolloutState]:
        """Return the rollout state of a runtime."""
        for file in self.files:
            settings = file.value.rollout.get(runtime_id, RolloutSettings())
            if settings.state is not None:
                return Setting(value=settings.state, source=_source(file, child_path("rollout", runtime_id) + ".state"))
        return Setting(value=default, source=BUILT_IN)

    def rollout_requirement(self, runtime_id: RuntimeId) -> Setting[RolloutRequirement]:
        """Return what must be known of a runtime's capabilities."""
        for file in self.files:
            settings = file.value.rollout.get(runtime_id, RolloutSettings())
            if settings.requires is not None:
                key = child_path("rollout", runtime_id) + ".requires"
                return Setting(value=settings.requires, source=_source(file, key))
        return Setting(value=RolloutRequirement.DECLARED, source=BUILT_IN)

    def default_runtime(self, *, default: RuntimeId) -> Setting[RuntimeId]:
        """Return the runtime that `auto` tries first."""
        for file in self.files:
            if file.value.default_runtime is not None:
                return Setting(value=file.value.default_runtime, source=_source(file, "default_runtime"))
        return Setting(value=default, source=BUILT_IN)

    @property
    def context(self) -> ContextSettings | None:
        """The context engine of sessions that name none; None for the built-in default."""
        return None if (file := self.context_file) is None else file.value.context

    @property
    def context_file(self) -> SourceFile[ConfigFile] | None:
        """The file that sets `context`; None if none does."""
        return next((file for file in self.files if file.value.context is not None), None)

    @property
    def retention(self) -> RetentionSettings:
        """The retention settings; each key is taken from the first file that has it."""
        files = [file.value.retention for file in self.files]
        return RetentionSettings(
            older_than=next((each.older_than for each in files if each.older_than is not None), None),
            larger_than=next((each.larger_than for each in files if each.larger_than is not None), None),
        )

    def plugin_hint(self, runtime_id: RuntimeId) -> str:
        """Return the instruction that allows a plugin: the line to write, and the file."""
        for file in self.files:
            if file.file == str(self.home) and file.value.plugins:
                plugins = ", ".join(f'"{name}"' for name in (*file.value.plugins, runtime_id))
                return f"Change line {file.line_of('plugins')} of {self.home} to `plugins = [{plugins}]`."
        # In TOML a key after a table header belongs to the table, so only the first line is always correct.
        return f'Add `plugins = ["{runtime_id}"]` as the first line of {self.home}.'


def _source(file: SourceFile[ConfigFile], key: str) -> str:
    return f"{Path(file.file).name}:{file.line_of(key)}"
