"""The runtimes of all installed packages, found by entry point. A plugin is imported only if the config names it."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from proctor.config.model import Config
from proctor.config.plugins import Offer, allowed_ids, find_missing_member, offers_of
from proctor.errors import InputError
from proctor.ids import AGENT_RUNTIMES, RuntimeId, runtime_id_of
from proctor.runtime.base import Runtime
from proctor.runtime.capability import Capabilities
from proctor.spec.suggest import nearest

GROUP = "proctor.runtimes"


def offers() -> Mapping[RuntimeId, Offer]:
    """Return every runtime that an installed package offers, by id."""
    return offers_of(GROUP)


def built_in_ids() -> list[RuntimeId]:
    return [offer.id for offer in offers().values() if offer.is_built_in]


def runtime_ids(config: Config | None = None) -> list[RuntimeId]:
    """Return the ids that may be loaded: the built-in runtimes, and the plugins that the config names.

    Without `config`, the config of the current folder is used.
    """
    return allowed_ids(offers(), config)


def runtime_by_id(runtime_id: RuntimeId, config: Config | None = None) -> Runtime:
    """Import and return a runtime. Without `config`, the config of the current folder is used.

    Raises InputError if no package offers the id, or if it is a plugin that the config does not name. Raises
    MachineError if two packages offer it, or if the entry point is not a runtime.
    """
    offer = offers().get(runtime_id)
    if offer is None:
        near = nearest(runtime_id, (*offers(), *AGENT_RUNTIMES))
        raise InputError(
            "spec.unknown-runtime",
            f"unknown runtime {runtime_id!r}; the installed runtimes are: {', '.join(offers())}",
            suggestion=f"Did you mean `{runtime_id_of(near)}`?" if near else None,
        )
    runtime: Runtime = offer.load(config, find_problem=partial(_find_problem, runtime_id=runtime_id))
    return runtime


def _find_problem(loaded: Any, runtime_id: RuntimeId) -> str | None:
    """Return why an object does not satisfy `Runtime`, without calling any of its methods."""
    if (problem := find_missing_member(loaded, Runtime)) is not None:
        return problem
    if loaded.id != runtime_id:
        return f"its `id` is {loaded.id!r}"
    return None if isinstance(loaded.capabilities, Capabilities) else "its `capabilities` is not a Capabilities struct"
