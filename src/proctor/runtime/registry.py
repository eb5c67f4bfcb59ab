"""Runtimes by strategy id, found by entry point and imported when used; a plugin only where the config names it."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from proctor.config.load import load_config
from proctor.config.model import Config
from proctor.errors import InputError, MachineError
from proctor.ids import StrategyId
from proctor.runtime.base import Runtime
from proctor.runtime.capability import Claims
from proctor.spec.near import nearest

GROUP = "proctor.runtimes"
OURS = "proctor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A strategy as packages tell of it, before anything of theirs is imported. Two may offer the same id."""

    id: StrategyId
    points: tuple[EntryPoint, ...]

    @property
    def distributions(self) -> tuple[str, ...]:
        return tuple(sorted(_distribution(point) for point in self.points))

    @property
    def is_built_in(self) -> bool:
        return OURS in self.distributions


def offers() -> Mapping[StrategyId, Offer]:
    """Every strategy that an installed package offers, by id."""
    return _offers(tuple(sys.path))


@cache
def _offers(_path: tuple[str, ...]) -> Mapping[StrategyId, Offer]:
    """Looked for once, unless there are other places to look at."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return {StrategyId(name): Offer(id=StrategyId(name), points=tuple(found[name])) for name in sorted(found)}


def built_in_ids() -> list[StrategyId]:
    return [offer.id for offer in offers().values() if offer.is_built_in]


def strategy_ids(config: Config | None = None) -> list[StrategyId]:
    """Those that may be loaded: our own, and the plugins that the config names, else that of the current folder."""
    config = load_config(Path.cwd()) if config is None else config
    return [offer.id for offer in offers().values() if offer.is_built_in or config.names(offer.id)]


def runtime_by_id(strategy: StrategyId, config: Config | None = None) -> Runtime:
    """The runtime of that id. Without a config that of the current folder decides about plugins.

    InputError where there is none, with the nearest id, or where nobody invited it; MachineError where two packages
    offer it, or what one offers is no runtime.
    """
    offer = offers().get(strategy)
    if offer is None:
        near = nearest(strategy, offers())
        raise InputError(
            "spec.unknown-runtime",
            f"no runtime is called {strategy!r}; there are: {', '.join(offers())}",
            suggestion=f"Did you mean `{near}`?" if near else None,
        )
    if len(offer.points) > 1:
        both = " and ".join(offer.distributions)
        raise MachineError("runtime.ambiguous", f"{strategy} is offered by {both}; uninstall one of them")
    if not offer.is_built_in:
        config = load_config(Path.cwd()) if config is None else config
        if not config.names(strategy):
            what = f"{strategy} is a plugin from {offer.distributions[0]}, and no config names it"
            raise InputError("runtime.uninvited", what, suggestion=config.invitation(strategy))
    return _loaded(offer)


def _loaded(offer: Offer) -> Runtime:
    [point] = offer.points
    found: Any = None
    try:
        found = point.load()
        fault = _fault(found, offer.id)
    except (Exception, SystemExit) as error:  # a plugin may do anything
        fault = f"{type(error).__name__}: {error}"
    if fault is not None:
        raise MachineError("runtime.broken", f"{offer.id} ({point.value}, from {offer.distributions[0]}): {fault}")
    runtime: Runtime = found
    return runtime


def _fault(found: Any, strategy: StrategyId) -> str | None:
    """Why an object is no runtime, as far as can be told without running it."""
    for name, member in vars(Runtime).items():
        if name.startswith("_"):
            continue
        if not hasattr(found, name):
            return f"it has no `{name}`"
        if callable(member) and not callable(getattr(found, name)):
            return f"its `{name}` cannot be called"
    if found.id != strategy:
        return f"it calls itself {found.id!r}"
    return None if isinstance(found.claims, Claims) else "its `claims` are no Claims"


def _distribution(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else point.dist.name
