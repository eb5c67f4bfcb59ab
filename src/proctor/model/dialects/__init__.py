"""How intents become calls of the tools that a request offers, whoever sends it."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from proctor.model.dialects import codex, pi
from proctor.model.script import Call, Patch, Run, ToolIntent
from proctor.model.wire import Tool, ToolCall


class Dialect(Protocol):
    """One family of tools. A function answers None where no tool offered can do what is wanted."""

    def run(self, intent: Run, tools: Sequence[Tool]) -> ToolCall | None: ...

    def patch(self, intent: Patch, tools: Sequence[Tool]) -> ToolCall | None: ...


# A module is a dialect; the first that knows a tool offered speaks.
DIALECTS: Final[tuple[Dialect, ...]] = (codex, pi)


def express(intent: ToolIntent, tools: Sequence[Tool]) -> ToolCall | None:
    """The call that carries out an intent, or None where nothing offered can."""
    if isinstance(intent, Call):
        return _call(intent, tools)
    for dialect in DIALECTS:
        call = dialect.run(intent, tools) if isinstance(intent, Run) else dialect.patch(intent, tools)
        if call is not None:
            return call
    return None


def _call(intent: Call, tools: Sequence[Tool]) -> ToolCall | None:
    named = [tool for tool in tools if intent.tool in _names(tool) and not tool.freeform]
    # A name that two tools answer to is no name; a full one is.
    if len(named) != 1:
        return None
    return ToolCall(tool=named[0], payload=msgspec.json.encode(intent.arguments).decode())


def _names(tool: Tool) -> tuple[str, ...]:
    """What a mission may call a tool: `add`, or with the server or namespace it comes from, `kit.add`."""
    return tool.name, tool.full_name, tool.full_name.removeprefix("mcp__")
