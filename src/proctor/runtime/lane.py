"""Lanes: who may use a strategy, which is decided apart from whether it could run; and what `auto` comes to."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from proctor.config.model import Config, ConfigFile, Rollout, Setting
from proctor.errors import InputError
from proctor.fact import Authority, Fact
from proctor.ids import StrategyId
from proctor.runtime.registry import OURS, offers
from proctor.spec.marked import Marked
from proctor.spec.model import AUTO
from proctor.spec.near import nearest
from proctor.spec.tree import child_path

DEFAULT_LANE: Final = StrategyId("codex_app_server")

ROLLOUTS: Final[Mapping[str, Rollout]] = {
    "codex_app_server": Rollout.DEFAULT,
    "codex_exec": Rollout.SELECTABLE,
    "claude_code": Rollout.SELECTABLE,
    "process": Rollout.SELECTABLE,
    "replay": Rollout.INTERNAL,
}
"""Where no config says otherwise. What is not here, as every plugin, is selectable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What was decided about a strategy, and by whom."""

    strategy: StrategyId
    is_enabled: Setting[bool]
    rollout: Setting[Rollout]

    @property
    def is_open_to_auto(self) -> bool:
        return self.is_enabled.value and self.rollout.value is Rollout.DEFAULT

    @property
    def standing(self) -> str:
        """What was decided, in words."""
        if not self.is_enabled.value:
            return f"switched off by {self.is_enabled.source}"
        return f"{self.rollout.value.value} ({self.rollout.source})"

    def admit(self) -> None:
        """InputError where not even who names it may use it."""
        if not self.is_enabled.value:
            raise InputError("runtime.disabled", f"{self.strategy} is switched off by {self.is_enabled.source}")
        if self.rollout.value is Rollout.LOCKED:
            raise InputError("runtime.locked", f"{self.strategy} is locked by {self.rollout.source}")

    def rollout_fact(self) -> Fact:
        return Fact(
            value={"state": self.rollout.value.value, "autoResolves": self.is_open_to_auto},
            authority=Authority.DECLARED,
            source=self.rollout.source,
        )


def lane_of(strategy: StrategyId, config: Config) -> Lane:
    return Lane(
        strategy=strategy,
        is_enabled=config.is_enabled(strategy),
        rollout=config.rollout(strategy, otherwise=ROLLOUTS.get(strategy, Rollout.SELECTABLE)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One of a chain that is spelled out. `is_unclaimed`: it was chosen because nobody claims the model."""

    strategy: StrategyId
    is_unclaimed: bool = False


def spell_out(
    chain: Iterable[StrategyId],
    *,
    lanes: Collection[Lane],
    claims: Callable[[StrategyId], bool],
    default_lane: StrategyId,
) -> tuple[Member, ...]:
    """The chain with `auto` replaced by the default lanes: those that claim the model, the named one first, then by id;
    then the others. Where none claims it, by the named one alone, if it is a default lane. Each strategy comes once;
    an `auto` that comes to nothing stays.
    """
    spelled: dict[StrategyId, Member] = {}
    for strategy in chain:
        for member in _auto(lanes, claims, default_lane) if strategy == AUTO else (Member(strategy=strategy),):
            spelled.setdefault(member.strategy, member)
    return tuple(spelled.values())


def _auto(lanes: Collection[Lane], claims: Callable[[StrategyId], bool], default_lane: StrategyId) -> Sequence[Member]:
    open_ = sorted(
        (lane.strategy for lane in lanes if lane.is_open_to_auto), key=lambda each: (each != default_lane, each)
    )
    claiming = [strategy for strategy in open_ if claims(strategy)]
    if claiming:
        others = [strategy for strategy in open_ if strategy not in claiming]
        return [Member(strategy=strategy) for strategy in (*claiming, *others)]
    if default_lane in open_:
        return [Member(strategy=default_lane, is_unclaimed=True)]
    return [Member(strategy=AUTO)]


def check_config(config: Config) -> None:
    """InputError where a file decides about a strategy that nobody offers: a lock on a misspelled id locks nothing."""
    for file in config.files:
        for strategy in file.value.lanes:
            _refuse_unknown(file, strategy, key=child_path("lanes", strategy), config=config)
        if (named := file.value.default_lane) is not None:
            _refuse_unknown(file, named, key="default_lane", config=config)


def _refuse_unknown(file: Marked[ConfigFile], strategy: StrategyId, *, key: str, config: Config) -> None:
    # A plugin that is named may be missing on this machine only.
    if strategy in offers() or strategy in ROLLOUTS or config.names(strategy):
        return
    close = nearest(strategy, offers())
    suggestion = f"Did you mean `{close}`?" if close else f"Name it under `plugins`, or one of {OURS}'s own."
    raise file.problem("spec.unknown-runtime", f"no runtime is called {strategy!r}", key=key, suggestion=suggestion)
