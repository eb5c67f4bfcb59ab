"""Translate the intents of a script into calls of the tools that a request offers."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from proctor.model.dialects import claude, codex, pi
from proctor.model.script import Call, Patch, Run, ToolIntent
from proctor.model.wire import Text, Tool, ToolCall


class Dialect(Protocol):
    """The tools of one agent. Both functions return no calls if no offered tool can carry out the intent."""

    def run(self, intent: Run, tools: Sequence[Tool]) -> tuple[ToolCall, ...]: ...

    def patch(self, intent: Patch, tools: Sequence[Tool]) -> tuple[ToolCall, ...]: ...


# Each module is a dialect. The first one that returns calls is used.
DIALECTS: Final[tuple[Dialect, ...]] = (codex, claude, pi)


def express(intent: ToolIntent, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    """Return the calls that carry out an intent, in order; empty if no offered tool can."""
    if isinstance(intent, Call):
        return _call(intent, tools)
    for dialect in DIALECTS:
        calls = dialect.run(intent, tools) if isinstance(intent, Run) else dialect.patch(intent, tools)
        if calls:
            return calls
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
