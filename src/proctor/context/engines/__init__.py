"""The context engines that ship with Proctor, and the check of options that they share."""

from collections.abc import Collection
from typing import Final

from proctor.context.engine import EngineSetup
from proctor.errors import InputError
from proctor.spec.suggest import suggest

CITATIONS: Final = "citations"
"""The option that every engine accepts: `EngineContext.citations`."""


def check_options(setup: EngineSetup, *, known: Collection[str] = ()) -> None:
    """Raise InputError if an option of the session's engine has another name than `citations` or one in `known`."""
    names = (CITATIONS, *known)
    for name in setup.options:
        if name not in names:
            raise InputError(
                "engine.options",
                f"unknown option `{name}`",
                key=f"context.options.{name}",
                suggestion=suggest(str(name), names, noun="Known options"),
            )
    citations = setup.options.get(CITATIONS)
    if not isinstance(citations, str | None):
        what = f"`citations` is a {type(citations).__name__}, not a text"
        raise InputError("engine.options", what, key=f"context.options.{CITATIONS}")
