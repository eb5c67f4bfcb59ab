"""The tools of mynah, for the scripted model: a script's `run` and `patch` become calls of its shell."""

import json
import shlex
from collections.abc import Sequence

from proctor.model.script import Patch, Run
from proctor.model.wire import Tool, ToolCall


def run(intent: Run, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    return _shell(intent.command, tools)


def patch(intent: Patch, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    file = shlex.quote(intent.file)
    if intent.delete:
        return _shell(f"rm -- {file}", tools)
    if intent.content is not None:
        return _shell(f"printf %s {shlex.quote(intent.content)} > {file}", tools)
    return ()  # mynah has no tool that replaces lines


def _shell(line: str, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    # Check the arguments as well: other agents have tools with the same name.
    offered = [tool for tool in tools if tool.name == "shell" and "line" in tool.properties]
    return tuple(ToolCall(tool=tool, payload=json.dumps({"line": line})) for tool in offered[:1])
