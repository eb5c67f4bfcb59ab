"""The tools Claude Code offers: Bash, Write and Edit."""

import shlex
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from proctor.model.script import Patch, Run
from proctor.model.wire import Text, Tool, ToolCall
from proctor.spec.duration import parse_duration_s

ANSWER_TOOL: Final = "StructuredOutput"
SUMMARY_PROMPT: Final = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."
"""How it asks for a summary to shorten its history by, while it offers its tools all the same."""


def run(intent: Run, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    # A command that begins with a long sleep it refuses to run (seen with 2.1.325); a script may well mean it.
    waits = intent.command.lstrip().startswith("sleep ")
    arguments: dict[str, Any] = {"command": f": ; {intent.command}" if waits else intent.command}
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
    # It changes no file that it has not read (seen with 2.1.325).
    return _calls(tools, ("Read", {"file_path": intent.file}), ("Edit", {"file_path": intent.file, **change}))


def answer(text: Text, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    """An answer of a form that was asked for is given by a tool, and words alone are not taken for one."""
    if text.repeat > 1 or not text.text.startswith("{"):
        return ()
    return _calls(tools, (ANSWER_TOOL, msgspec.Raw(text.text.encode())))


def _lines(text: str) -> str:
    """
    >>> _lines("one"), _lines("two\\n"), _lines("")
    ('one\\n', 'two\\n', '')
    """
    return text if not text or text.endswith("\n") else text + "\n"


def _calls(tools: Sequence[Tool], *wanted: tuple[str, dict[str, Any] | msgspec.Raw]) -> tuple[ToolCall, ...]:
    offered = {tool.name: tool for tool in tools if tool.namespace is None}
    if any(name not in offered for name, _ in wanted):
        return ()
    encode = msgspec.json.encode
    return tuple(ToolCall(tool=offered[name], payload=encode(arguments).decode()) for name, arguments in wanted)
