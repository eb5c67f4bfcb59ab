"""How intents become calls of the tools that a request offers, whoever sends it."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from proctor.model.dialects import claude, codex, pi
from proctor.model.script import Call, Patch, Run, ToolIntent
from proctor.model.wire import Text, Tool, ToolCall


class Dialect(Protocol):
    """One family of tools. A function answers with nothing where no tool offered can do what is wanted."""

    def run(self, intent: Run, tools: Sequence[Tool]) -> tuple[ToolCall, ...]: ...

    def patch(self, intent: Patch, tools: Sequence[Tool]) -> tuple[ToolCall, ...]: ...


# A module is a dialect; the first that knows a tool offered speaks.
DIALECTS: Final[tuple[Dialect, ...]] = (codex, claude, pi)


def express(intent: ToolIntent, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    """The calls that carry out an intent, in order; none where nothing offered can."""
    if isinstance(intent, Call):
        return _call(intent, tools)
    for dialect in DIALECTS:
        calls = dialect.run(intent, tools) if isinstance(intent, Run) else dialect.patch(intent, tools)
        if calls:
            return calls
    return ()


def answer(text: Text, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    """The calls by which this text is an answer of the form that was asked for; none where saying it is enough."""
    return claude.answer(text, tools)


def _call(intent: Call, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    named = [tool for tool in tools if intent.tool in _names(tool) and not tool.freeform]
    # A name that two tools answer to is no name; a full one is.
    if len(named) != 1:
        return ()
    return (ToolCall(tool=named[0], payload=msgspec.json.encode(intent.arguments).decode()),)


def _names(tool: Tool) -> tuple[str, ...]:
    """What a mission may call a tool: `add`, or with the server or namespace it comes from, `kit.add`."""
    return tool.name, tool.full_name, tool.full_name.removeprefix("mcp__")
