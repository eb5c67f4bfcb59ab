"""The tools of Codex: a shell whose arguments differ between versions, and apply_patch, freeform or as a function."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from proctor.model.script import Patch, Run
from proctor.model.wire import Tool, ToolCall
from proctor.spec.duration import parse_duration_s

_SHELLS: Final = ("exec_command", "shell_command", "shell")
_WAITS: Final = ("yield_time_ms", "timeout_ms")


def run(intent: Run, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    tool = _find(tools, _SHELLS)
    if tool is None:
        return ()
    accepts = tool.properties
    arguments: dict[str, Any]
    if "cmd" in accepts:
        arguments = {"cmd": intent.command}
    elif accepts.get("command", {}).get("type") == "array":
        arguments = {"command": ["bash", "-c", intent.command]}
    else:
        arguments = {"command": intent.command}
    if intent.escalate:
        arguments |= {"sandbox_permissions": "require_escalated", "justification": "The script asks for it."}
    if intent.wait is not None:
        arguments |= {name: round(parse_duration_s(intent.wait) * 1000) for name in _WAITS if name in accepts}
    return (_call(tool, arguments),)


def patch(intent: Patch, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    tool = _find(tools, ("apply_patch",))
    if tool is None:
        return ()
    text = "\n".join(("*** Begin Patch", *_hunk(intent), "*** End Patch", ""))
    return (ToolCall(tool=tool, payload=text) if tool.freeform else _call(tool, {"input": text}),)


def _find(tools: Sequence[Tool], names: Sequence[str]) -> Tool | None:
    offered = {tool.name: tool for tool in tools if tool.namespace is None}
    return next((offered[name] for name in names if name in offered), None)


def _call(tool: Tool, arguments: dict[str, Any]) -> ToolCall:
    return ToolCall(tool=tool, payload=msgspec.json.encode(arguments).decode())


def _hunk(intent: Patch) -> Iterator[str]:
    if intent.delete:
        yield f"*** Delete File: {intent.file}"
    elif intent.content is not None:
        yield f"*** Add File: {intent.file}"
        yield from _lines("+", intent.content)
    else:
        yield f"*** Update File: {intent.file}"
        yield "@@"
        yield from _lines("-", intent.old or "")
        yield from _lines("+", intent.new or "")


def _lines(mark: str, text: str) -> list[str]:
    """Return the lines of a text, each after a mark.

    >>> _lines("+", "one\\n\\ntwo\\n")
    ['+one', '+', '+two']
    """
    return [mark + line for line in text.removesuffix("\n").split("\n")] if text else []
