"""The tools of Claude Code: Bash, Write, Read and Edit."""

import shlex
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from proctor.model.script import Patch, Run
from proctor.model.wire import Text, Tool, ToolCall
from proctor.spec.duration import parse_duration_s

ANSWER_TOOL: Final = "StructuredOutput"
SUMMARY_PROMPT: Final = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."
"""How its request for a summary of the history begins. The request offers tools, but is not of the main loop."""


def run(intent: Run, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    # Claude Code refuses a command that begins with a long sleep (seen with 2.1.325), but a script may intend it.
    is_sleep = intent.command.lstrip().startswith("sleep ")
    arguments: dict[str, Any] = {"command": f": ; {intent.command}" if is_sleep else intent.command}
    if intent.escalate:
        arguments["dangerouslyDisableSandbox"] = True
    if intent.wait is not None:
        arguments["timeout"] = round(parse_duration_s(intent.wait) * 1000)
    return _calls(tools, ("Bash", arguments))


def patch(intent: Patch, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    if intent.delete:
        return _calls(tools, ("Bash", {"command": f"rm -- {shlex.quote(intent.file)}"}))
    if intent.content is not None:
        return _calls(tools, ("Write", {"file_path": intent.file, "content": _lines(intent.content)}))
    change = {"old_string": _lines(intent.old or ""), "new_string": _lines(intent.new or "")}
    # Claude Code edits only files that it has read (seen with 2.1.325).
    return _calls(tools, ("Read", {"file_path": intent.file}), ("Edit", {"file_path": intent.file, **change}))


def answer(text: Text, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    """Return the tool call for a structured answer. Claude Code does not accept a structured answer as plain text."""
    if text.repeat > 1 or not text.text.startswith("{"):
        return ()
    return _calls(tools, (ANSWER_TOOL, msgspec.Raw(text.text.encode())))


def _lines(text: str) -> str:
    """Return the text with a final newline; an empty text stays empty.

    >>> _lines("one"), _lines("two\\n"), _lines("")
    ('one\\n', 'two\\n', '')
    """
    return text if not text or text.endswith("\n") else text + "\n"


def _calls(tools: Sequence[Tool], *calls: tuple[str, dict[str, Any] | msgspec.Raw]) -> tuple[ToolCall, ...]:
    offered = {tool.name: tool for tool in tools if tool.namespace is None}
    if any(name not in offered for name, _ in calls):
        return ()
    encode = msgspec.json.encode
    return tuple(ToolCall(tool=offered[name], payload=encode(arguments).decode()) for name, arguments in calls)
