"""What users and projects decide about agents, and which file says so."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from proctor.config.retention import RetentionSettings
from proctor.ids import StrategyId
from proctor.spec.marked import Marked
from proctor.spec.struct import Spec
from proctor.spec.tree import child_path

T = TypeVar("T")


class Rollout(StrEnum):
    """How far a lane is let out. It is decided, not found: a lane may be locked and able."""

    LOCKED = "locked"  # nobody may use it
    INTERNAL = "internal"  # only who names it
    SELECTABLE = "selectable"  # offered, and only who names it
    DEFAULT = "default"  # `auto` may choose it


class LaneSettings(Spec, frozen=True, kw_only=True):
    """`[lanes.<strategy>]`: what is left out is as Proctor has it."""

    enabled: bool | None = None
    rollout: Rollout | None = None


class ConfigFile(Spec, frozen=True, kw_only=True):
    """One whole file."""

    plugins: list[StrategyId] = msgspec.field(default_factory=list)
    default_lane: StrategyId | None = None
    lanes: dict[StrategyId, LaneSettings] = msgspec.field(default_factory=dict)
    retention: RetentionSettings = RetentionSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[T]):
    """A decision and who made it: a file with its line, without the path, which would tell whose machine it was."""

    value: T
    source: str


BUILT_IN = "built in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The files that were found, the project's before the user's; of two that decide one thing the first is heard.

    `home` is where a line is best added.
    """

    home: Path
    files: tuple[Marked[ConfigFile], ...] = ()

    @property
    def plugins(self) -> list[StrategyId]:
        """All that are named, once each."""
        return list(dict.fromkeys(name for file in self.files for name in file.value.plugins))

    def names(self, strategy: StrategyId) -> bool:
        """Whether a plugin may be loaded and run: one file that names it is enough."""
        return strategy in self.plugins

    def is_enabled(self, strategy: StrategyId) -> Setting[bool]:
        for file in self.files:
            lane = file.value.lanes.get(strategy, LaneSettings())
            if lane.enabled is not None:
                return Setting(value=lane.enabled, source=_source(file, child_path("lanes", strategy) + ".enabled"))
        return Setting(value=True, source=BUILT_IN)

    def rollout(self, strategy: StrategyId, *, otherwise: Rollout) -> Setting[Rollout]:
        for file in self.files:
            lane = file.value.lanes.get(strategy, LaneSettings())
            if lane.rollout is not None:
                return Setting(value=lane.rollout, source=_source(file, child_path("lanes", strategy) + ".rollout"))
        return Setting(value=otherwise, source=BUILT_IN)

    def default_lane(self, *, otherwise: StrategyId) -> Setting[StrategyId]:
        for file in self.files:
            if file.value.default_lane is not None:
                return Setting(value=file.value.default_lane, source=_source(file, "default_lane"))
        return Setting(value=otherwise, source=BUILT_IN)

    @property
    def retention(self) -> RetentionSettings:
        """How much is kept, key by key."""
        files = [file.value.retention for file in self.files]
        return RetentionSettings(
            older_than=next((each.older_than for each in files if each.older_than is not None), None),
            larger_than=next((each.larger_than for each in files if each.larger_than is not None), None),
        )

    def invitation(self, strategy: StrategyId) -> str:
        """Which line lets a plugin run, and in which file."""
        for file in self.files:
            if file.file == str(self.home) and file.value.plugins:
                whole = ", ".join(f'"{name}"' for name in (*file.value.plugins, strategy))
                return f"Make line {file.line_of('plugins')} of {self.home} say `plugins = [{whole}]`."
        # A table swallows every key behind it, so that only the first line is always right.
        return f'Write `plugins = ["{strategy}"]` as the first line of {self.home}.'


def _source(file: Marked[ConfigFile], key: str) -> str:
    return f"{Path(file.file).name}:{file.line_of(key)}"
