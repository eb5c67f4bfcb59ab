"""Translate the intents of a script into calls of the tools that a request offers.

A dialect knows the tools of one agent. Packages offer dialects by entry point, like runtimes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn, Protocol, cast

import msgspec

from proctor.config.model import Config
from proctor.config.plugins import allowed_ids, find_missing_member, offers_of
from proctor.errors import ProctorError
from proctor.ids import RuntimeId
from proctor.model.dialects import claude
from proctor.model.script import Call, Patch, Run, ToolIntent
from proctor.model.wire import Text, Tool, ToolCall

GROUP: Final = "proctor.dialects"
"""The group of entry points that name dialects. An entry point has the id of the runtime that it is for."""


class Dialect(Protocol):
    """The tools of one agent. Both functions return no calls if no offered tool can carry out the intent."""

    def run(self, intent: Run, tools: Sequence[Tool]) -> tuple[ToolCall, ...]: ...

    def patch(self, intent: Patch, tools: Sequence[Tool]) -> tuple[ToolCall, ...]: ...


Dialects = Mapping[RuntimeId, Dialect]
"""Dialects by id, in the order in which they are tried. The first one that returns calls is used."""


class DialectError(Exception):
    """A dialect cannot be loaded, raised an error, or returned something that is not a tuple of tool calls."""


@dataclass(frozen=True, slots=True)
class _BrokenDialect:
    """Replaces a dialect that cannot be loaded, so that only the scripts that need it fail."""

    error: ProctorError

    def run(self, intent: Run, tools: Sequence[Tool]) -> NoReturn:
        raise self.error

    def patch(self, intent: Patch, tools: Sequence[Tool]) -> NoReturn:
        raise self.error


def load_dialects(config: Config | None = None) -> Dialects:
    """Return the built-in dialects, then those of the plugins that the config names.

    Without `config`, the config of the current folder is used. A dialect that cannot be loaded fails when it is used.
    """
    offers = offers_of(GROUP)
    allowed = sorted(allowed_ids(offers, config), key=lambda id_: not offers[id_].is_built_in)
    return {id_: _load(id_, config) for id_ in allowed}


def built_in_dialects() -> Dialects:
    return {id_: _load(id_, None) for id_, offer in offers_of(GROUP).items() if offer.is_built_in}


def _load(id_: RuntimeId, config: Config | None) -> Dialect:
    try:
        dialect: Dialect = offers_of(GROUP)[id_].load(
            config, find_problem=partial(find_missing_member, contract=Dialect)
        )
    except ProctorError as error:
        return _BrokenDialect(error)
    return dialect


def order_for(runtime_id: RuntimeId | None, dialects: Dialects) -> Dialects:
    """Return the dialects with the one of the runtime first: another agent may have tools with the same names."""
    own = {id_: dialect for id_, dialect in dialects.items() if id_ == runtime_id}
    return {**own, **dialects}


def express(intent: ToolIntent, tools: Sequence[Tool], *, dialects: Dialects) -> tuple[ToolCall, ...]:
    """Return the calls that carry out an intent, in order; empty if no offered tool can. Raises DialectError."""
    if isinstance(intent, Call):
        return _call(intent, tools)
    calls: Any
    for id_, dialect in dialects.items():
        try:
            calls = dialect.run(intent, tools) if isinstance(intent, Run) else dialect.patch(intent, tools)
        except Exception as error:  # a plugin may do anything
            raise DialectError(f"the dialect `{id_}` failed: {type(error).__name__}: {error}") from error
        if not isinstance(calls, tuple) or not all(isinstance(each, ToolCall) for each in calls):
            raise DialectError(f"the dialect `{id_}` returned {calls!r}, which is not a tuple of ToolCall")
        if calls:
            return cast("tuple[ToolCall, ...]", calls)
    return ()


def answer(text: Text, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    """Return the calls that deliver a text as a structured answer; empty if the text can be sent as it is."""
    return claude.answer(text, tools)


def _call(intent: Call, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    matches = [tool for tool in tools if intent.tool in _names(tool) and not tool.freeform]
    # If two tools share a name, the script must use the full one.
    if len(matches) != 1:
        return ()
    return (ToolCall(tool=matches[0], payload=msgspec.json.encode(intent.arguments).decode()),)


def _names(tool: Tool) -> tuple[str, ...]:
    """Return the names by which a script may call a tool: `add`, or with its server or namespace `kit.add`."""
    return tool.name, tool.full_name, tool.full_name.removeprefix("mcp__")
