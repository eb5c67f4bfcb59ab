"""List the context engines, and check one with the engine suite."""

import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from proctor.config.model import Config
from proctor.config.plugins import Offer
from proctor.context.engine import EngineInfo, EngineSetup
from proctor.context.registry import engine_by_id, offers
from proctor.errors import Exit, ProctorError
from proctor.ids import RuntimeId, SessionKey
from proctor.surface.programs import Refusal
from proctor.testing.engines import EngineVerdict, Result, check_engine


class EngineListing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One context engine."""

    id: str
    """Id of the engine, as a session's `context` names it."""
    distributions: tuple[str, ...]
    """Installed Python packages that offer the engine; more than one is a conflict."""
    is_built_in: bool
    """Whether Proctor itself provides the engine."""
    is_named: bool
    """Whether a config file names the engine. A plugin that is not named is not loaded."""
    info: EngineInfo | None = None
    """What the engine says about itself; null if it could not be created."""
    problem: Refusal | None = None
    """Why the engine cannot be used; null if it can."""


class EngineCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The verdicts of the engine suite on one engine."""

    id: str
    """Id of the engine."""
    exit: Exit
    """Exit code of the command: 0 if no case failed, 1 if one did."""
    info: EngineInfo | None
    """What the engine says about itself; null if it could not be created."""
    verdicts: tuple[EngineVerdict, ...]
    """One verdict per case, in the order of the suite."""


def find_engines(config: Config) -> tuple[EngineListing, ...]:
    """Return every engine. One that cannot be created is listed with its problem."""
    return tuple(_find(offer, config) for offer in offers().values())


def check_engine_by_id(
    engine_id: str,
    config: Config,
    *,
    only: Collection[str] = (),
    ended: Callable[[EngineVerdict], None] | None = None,
) -> EngineCheck:
    """Run the engine suite, or only the named cases. `ended` is called after each case.

    Raises InputError if there is no such engine or case. Raises MachineError if the engine cannot be loaded.
    """
    create = engine_by_id(engine_id, config)
    [point] = offers()[RuntimeId(engine_id)].points
    report = check_engine(create, engine_id=engine_id, entry_point=point.value, only=only, ended=ended)
    has_failed = any(each.result is Result.FAILED for each in report.verdicts)
    return EngineCheck(
        id=engine_id,
        exit=Exit.JUDGED_NO if has_failed else Exit.OK,
        info=report.engine,
        verdicts=report.verdicts,
    )


def _find(offer: Offer, config: Config) -> EngineListing:
    info, problem = None, None
    try:
        with tempfile.TemporaryDirectory(prefix="proctor-engine-") as folder:
            setup = EngineSetup(session=SessionKey("list"), folder=Path(folder), options={})
            info = engine_by_id(offer.id, config)(setup).info
    except ProctorError as error:
        problem = Refusal(code=error.code, what=error.what, todo=error.suggestion or error.meaning.todo)
    return EngineListing(
        id=offer.id,
        distributions=offer.distributions,
        is_built_in=offer.is_built_in,
        is_named=config.allows_plugin(offer.id),
        info=info,
        problem=problem,
    )
