"""The runtimes of all installed packages, found by entry point. A plugin is imported only if the config names it."""

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
from proctor.ids import RuntimeId
from proctor.runtime.base import Runtime
from proctor.runtime.capability import Capabilities
from proctor.spec.suggest import nearest

GROUP = "proctor.runtimes"
OURS = "proctor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The entry points for one runtime id. Nothing is imported yet."""

    id: RuntimeId
    points: tuple[EntryPoint, ...]
    """More than one if several packages offer the same id."""

    @property
    def distributions(self) -> tuple[str, ...]:
        return tuple(sorted(_distribution(point) for point in self.points))

    @property
    def is_built_in(self) -> bool:
        return OURS in self.distributions


def offers() -> Mapping[RuntimeId, Offer]:
    """Return every runtime that an installed package offers, by id."""
    return _offers(tuple(sys.path))


@cache
def _offers(_path: tuple[str, ...]) -> Mapping[RuntimeId, Offer]:
    """Read the entry points once for each value of `sys.path`."""
    points: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        points.setdefault(point.name, []).append(point)
    return {RuntimeId(name): Offer(id=RuntimeId(name), points=tuple(points[name])) for name in sorted(points)}


def built_in_ids() -> list[RuntimeId]:
    return [offer.id for offer in offers().values() if offer.is_built_in]


def runtime_ids(config: Config | None = None) -> list[RuntimeId]:
    """Return the ids that may be loaded: the built-in runtimes, and the plugins that the config names.

    Without `config`, the config of the current folder is used.
    """
    config = load_config(Path.cwd()) if config is None else config
    return [offer.id for offer in offers().values() if offer.is_built_in or config.allows_plugin(offer.id)]


def runtime_by_id(runtime_id: RuntimeId, config: Config | None = None) -> Runtime:
    """Import and return a runtime. Without `config`, the config of the current folder is used.

    Raises InputError if no package offers the id, or if it is a plugin that the config does not name. Raises
    MachineError if two packages offer it, or if the entry point is not a runtime.
    """
    offer = offers().get(runtime_id)
    if offer is None:
        near = nearest(runtime_id, offers())
        raise InputError(
            "spec.unknown-runtime",
            f"unknown runtime {runtime_id!r}; the installed runtimes are: {', '.join(offers())}",
            suggestion=f"Did you mean `{near}`?" if near else None,
        )
    if len(offer.points) > 1:
        both = " and ".join(offer.distributions)
        raise MachineError("runtime.ambiguous", f"{runtime_id} is offered by {both}; uninstall one of them")
    if not offer.is_built_in:
        config = load_config(Path.cwd()) if config is None else config
        if not config.allows_plugin(runtime_id):
            what = f"{runtime_id} is a plugin from {offer.distributions[0]} that no config names"
            raise InputError("runtime.not-allowed", what, suggestion=config.plugin_hint(runtime_id))
    return _load(offer)


def _load(offer: Offer) -> Runtime:
    [point] = offer.points
    loaded: Any = None
    try:
        loaded = point.load()
        problem = _find_problem(loaded, offer.id)
    except (Exception, SystemExit) as error:  # a plugin may do anything
        problem = f"{type(error).__name__}: {error}"
    if problem is not None:
        raise MachineError("runtime.broken", f"{offer.id} ({point.value}, from {offer.distributions[0]}): {problem}")
    runtime: Runtime = loaded
    return runtime


def _find_problem(loaded: Any, runtime_id: RuntimeId) -> str | None:
    """Return why an object does not satisfy `Runtime`, without calling any of its methods."""
    for name, member in vars(Runtime).items():
        if name.startswith("_"):
            continue
        if not hasattr(loaded, name):
            return f"it has no `{name}`"
        if callable(member) and not callable(getattr(loaded, name)):
            return f"its `{name}` is not callable"
    if loaded.id != runtime_id:
        return f"its `id` is {loaded.id!r}"
    return None if isinstance(loaded.capabilities, Capabilities) else "its `capabilities` is not a Capabilities struct"


def _distribution(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else point.dist.name
