"""The context engines of all installed packages, by entry point. A plugin is imported only if the config names it."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from proctor.config.model import Config
from proctor.config.plugins import Offer, find_missing_member, offers_of
from proctor.context.adapters import METHODS, adapt_engine
from proctor.context.check_assembled import type_problem
from proctor.context.engine import ContextEngine, CreateEngine, EngineInfo, EngineSetup
from proctor.errors import EngineError, InputError, MachineError, ProctorError
from proctor.ids import RuntimeId
from proctor.spec.suggest import suggest_nearest

GROUP: Final = "proctor.engines"
"""The group of entry points that name functions that create engines: `CreateEngine`."""


def offers() -> Mapping[RuntimeId, Offer]:
    """Return every context engine that an installed package offers, by id."""
    return offers_of(GROUP)


def engine_by_id(engine_id: str, config: Config | None = None) -> CreateEngine:
    """Import an engine and return the function that creates it. Without `config`, that of the current folder is used.

    Raises InputError if no package offers the id, or if it is a plugin that the config does not name. Raises
    MachineError if two packages offer it, or if it cannot be imported. What the function returns has all members of
    `ContextEngine`, if necessary by an adapter. The function raises InputError for options that the engine does not
    accept, EngineError if the engine fails, and MachineError if what it creates is no engine.
    """
    offer = offers().get(RuntimeId(engine_id))
    if offer is None:
        raise InputError(
            "engine.unknown",
            f"unknown context engine {engine_id!r}; the installed engines are: {', '.join(offers())}",
            suggestion=suggest_nearest(engine_id, offers()),
        )
    create: CreateEngine = offer.load(config, find_problem=_find_problem)
    return partial(create_checked, engine_id, create)


def create_checked(engine_id: str | None, create: CreateEngine, setup: EngineSetup) -> ContextEngine:
    """Create an engine and check that it has every member of the contract. Raises as `engine_by_id` describes.

    Without `engine_id`, the engine may have any id.
    """
    name = "engine" if engine_id is None else f"engine {engine_id}"
    try:
        engine = adapt_engine(create(setup), folder=setup.folder)
        problem = _find_engine_problem(engine, engine_id)
    except ProctorError:
        raise
    except (Exception, SystemExit) as error:  # a plugin may do anything
        what = f"{name}: its creation raised {type(error).__name__}: {error}"
        raise EngineError("engine.failed", what) from error
    if problem is not None:
        raise MachineError("runtime.broken", f"{name}: {problem}")
    return engine


def _find_problem(loaded: Any) -> str | None:
    return None if callable(loaded) else "it is not a function that takes an EngineSetup and returns an engine"


def _find_engine_problem(engine: Any, engine_id: str | None) -> str | None:
    """Return why an object does not satisfy `ContextEngine`, without calling any of its methods."""
    if not hasattr(engine, "commit_turn"):
        return f"it has no `commit_turn`, and none of {', '.join(f'`{name}`' for name in METHODS)}"
    if (problem := find_missing_member(engine, ContextEngine)) is not None:
        return problem
    info = engine.info
    if type(info) is not EngineInfo:
        return "its `info` is not an EngineInfo"
    if (problem := type_problem(info, EngineInfo)) is not None:
        return f"its `info` is wrong: {problem}"
    return None if engine_id in (None, info.id) else f"its `info.id` is {info.id!r}"
