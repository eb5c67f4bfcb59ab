"""The tools of pi: bash, write, and edit with a list of replacements."""

import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from proctor.model.script import Patch, Run
from proctor.model.wire import Tool, ToolCall
from proctor.spec.duration import parse_duration_s


def run(intent: Run, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    arguments: dict[str, Any] = {"command": intent.command}
    if intent.wait is not None:
        arguments["timeout"] = parse_duration_s(intent.wait)
    return _call("bash", arguments, tools)


def patch(intent: Patch, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    if intent.delete:
        return _call("bash", {"command": f"rm -- {shlex.quote(intent.file)}"}, tools)
    if intent.content is not None:
        return _call("write", {"path": intent.file, "content": _lines(intent.content)}, tools)
    change = {"oldText": _lines(intent.old or ""), "newText": _lines(intent.new or "")}
    return _call("edit", {"path": intent.file, "edits": [change]}, tools)


def _call(name: str, arguments: dict[str, Any], tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    """Return a call of the named tool if it takes these arguments: other agents have tools with the same name."""
    offered = (tool for tool in tools if tool.name == name and arguments.keys() <= tool.properties.keys())
    payload = msgspec.json.encode(arguments).decode()
    return tuple(ToolCall(tool=tool, payload=payload) for tool in offered)[:1]


def _lines(text: str) -> str:
    r"""Return the text with a final newline; an empty text stays empty.

    >>> _lines("one"), _lines("one\n"), _lines("")
    ('one\n', 'one\n', '')
    """
    return text if text.endswith("\n") or not text else text + "\n"
