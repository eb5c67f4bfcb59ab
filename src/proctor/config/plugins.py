"""What installed packages offer by entry point. A plugin is imported only if the config names it."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from proctor.config.load import load_config
from proctor.config.model import Config
from proctor.errors import DISTRIBUTION, InputError, MachineError
from proctor.ids import RuntimeId

OURS: Final = DISTRIBUTION


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The entry points of one group for one id. Nothing is imported yet."""

    id: RuntimeId
    points: tuple[EntryPoint, ...]
    """More than one if several packages offer the same id."""

    @property
    def distributions(self) -> tuple[str, ...]:
        return tuple(sorted(_distribution(point) for point in self.points))

    @property
    def is_built_in(self) -> bool:
        return OURS in self.distributions

    def load(self, config: Config | None, *, find_problem: Callable[[Any], str | None]) -> Any:
        """Import and return what the entry point names. `find_problem` returns why it cannot be used, or None.

        Without `config`, a plugin needs the config of the current folder; what is built in needs none. Raises
        InputError if it is a plugin that the config does not name. Raises MachineError if two packages offer it, if it
        cannot be imported, or if it has a problem.
        """
        if len(self.points) > 1:
            both = " and ".join(self.distributions)
            raise MachineError("runtime.ambiguous", f"{self.id} is offered by {both}; uninstall one of them")
        if not self.is_built_in:
            config = config or load_config(Path.cwd())
            if not config.allows_plugin(self.id):
                what = f"{self.id} is a plugin from {self.distributions[0]} that no config names"
                raise InputError("runtime.not-allowed", what, suggestion=config.plugin_hint(self.id))
        [point] = self.points
        loaded: Any = None
        try:
            loaded = point.load()
            problem = find_problem(loaded)
        except (Exception, SystemExit) as error:  # a plugin may do anything
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            raise MachineError("runtime.broken", f"{self.id} ({point.value}, from {self.distributions[0]}): {problem}")
        return loaded


def offers_of(group: str) -> Mapping[RuntimeId, Offer]:
    """Return everything that installed packages offer in a group of entry points, by id."""
    return _offers(group, tuple(sys.path))


def allowed_ids(offers: Mapping[RuntimeId, Offer], config: Config | None) -> list[RuntimeId]:
    """Return the ids that may be loaded: what is built in, and the plugins that the config names.

    Without `config`, the config of the current folder is used.
    """
    config = config or load_config(Path.cwd())
    return [offer.id for offer in offers.values() if offer.is_built_in or config.allows_plugin(offer.id)]


@cache
def _offers(group: str, _path: tuple[str, ...]) -> Mapping[RuntimeId, Offer]:
    """Read the entry points once for each value of `sys.path`."""
    points: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        points.setdefault(point.name, []).append(point)
    return {RuntimeId(name): Offer(id=RuntimeId(name), points=tuple(points[name])) for name in sorted(points)}


def find_missing_member(loaded: Any, contract: type) -> str | None:
    """Return which member of a Protocol an object lacks, without calling any of its methods; None if it has all."""
    for name, member in vars(contract).items():
        if name.startswith("_"):
            continue
        if not hasattr(loaded, name):
            return f"it has no `{name}`"
        if callable(member) and not callable(getattr(loaded, name)):
            return f"its `{name}` is not callable"
    return None


def _distribution(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else point.dist.name
