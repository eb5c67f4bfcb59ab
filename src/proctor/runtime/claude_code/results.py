"""Convert Claude Code's tool calls, tool results and token usage to Proctor's terms. Pure."""

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from proctor.event.model import Tokens, ToolKind
from proctor.runtime.claude_code import wire

PATCHES: Final = {"Write": "file_path", "Edit": "file_path", "MultiEdit": "file_path", "NotebookEdit": "notebook_path"}
"""Tools that change a file, and the argument that names it."""

SERVER: Final = "proctor"
"""The name of the MCP server that offers Proctor's tools."""

READS: Final = frozenset({"Read", "Glob", "Grep", "LS"})
"""Tools that only read. The agent asks even for these outside the workspace."""

_COMMANDS: Final = frozenset({"Bash", "PowerShell"})
_WEB: Final = frozenset({"WebFetch", "WebSearch", "web_search", "web_fetch"})
_EXIT: Final = re.compile(r"Exit code (\d+)\b")
_STATUSES: Final = {"permission-rule": "declined", "user-rejected": "interrupted"}


class ToolUse(NamedTuple):
    """A tool call."""

    kind: ToolKind
    name: str
    input: Any


def tool_use(name: str, input_: Any) -> ToolUse:
    """Return a tool call in Proctor's terms.

    >>> tool_use("mcp__kit__add", {"a": 1})
    ToolUse(kind='mcp', name='kit/add', input={'a': 1})
    >>> tool_use("Write", {"file_path": "a"}).input
    {'changes': [{'path': 'a'}], 'file_path': 'a'}
    """
    if name in _COMMANDS:
        return ToolUse("command", name, input_)
    if name in PATCHES and isinstance(input_, dict):
        return ToolUse("patch", name, {"changes": [{"path": input_.get(PATCHES[name])}], **input_})
    if name.startswith("mcp__"):
        server, _, tool = name.removeprefix("mcp__").partition("__")
        return ToolUse("dynamic", tool, input_) if server == SERVER else ToolUse("mcp", f"{server}/{tool}", input_)
    return ToolUse("web" if name in _WEB else "other", name, input_)


class ToolResult(NamedTuple):
    """The result of a tool call."""

    ok: bool
    status: str
    exit_code: int | None
    output: str


def tool_result(
    kind: ToolKind, result: wire.Block, *, unrun: Iterable[wire.Unrun] = (), details: Any = None
) -> ToolResult:
    """Return the result of a tool call. `details` is the tool's own report.

    A command that continues in the background has no exit code.

    >>> block = wire.Block(type="tool_result", tool_use_id="t", content="Exit code 3\\nno", is_error=True)
    >>> tool_result("command", block)
    ToolResult(ok=False, status='failed', exit_code=3, output='Exit code 3\\nno')
    """
    output, ok = text_of(result.content), not result.is_error
    why = next((each.non_execution_kind for each in unrun if each.id == result.tool_use_id), None)
    status = "completed" if ok else _STATUSES.get(why or "", "failed")
    exit_code = None
    if isinstance(details, dict) and details.get("backgroundTaskId") is not None:
        status = "backgrounded"
    elif kind == "command" and why is None:
        match = _EXIT.match(output)
        exit_code = 0 if ok else int(match[1]) if match else None
    return ToolResult(ok, status, exit_code, output)


def text_of(content: Any) -> str:
    """Return the text in a block's content, whatever its shape."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def tokens(usage: wire.Usage) -> Tokens:
    """Return the usage in Proctor's terms. Claude Code does not include cached tokens in the input; Proctor does."""
    read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    whole = usage.input_tokens + (read or 0) + (written or 0)
    details = usage.output_tokens_details
    return Tokens(
        input=whole,
        output=usage.output_tokens,
        total=whole + usage.output_tokens,
        cached_input=read,
        cache_write=written,
        reasoning_output=None if details is None else details.thinking_tokens,
    )


def plus(one: Tokens, other: Tokens) -> Tokens:
    def part(a: int | None, b: int | None) -> int | None:
        return None if a is None or b is None else a + b

    return Tokens(
        input=one.input + other.input,
        output=one.output + other.output,
        total=one.total + other.total,
        cached_input=part(one.cached_input, other.cached_input),
        cache_write=part(one.cache_write, other.cache_write),
        reasoning_output=part(one.reasoning_output, other.reasoning_output),
    )
