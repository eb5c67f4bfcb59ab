"""Finds the tool calls that a flow's policy does not allow. Pure."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from proctor.event.command import command_line
from proctor.event.trace import ToolCall
from proctor.spec.campaign_options import ToolsSpec


def violations(tools: ToolsSpec, calls: Iterable[ToolCall], *, are_seen: bool = True) -> tuple[str, ...] | None:
    """Return a sentence for each call that is denied or not allowed, in order.

    None if there is a policy, and the runtime cannot see tool calls.
    """
    if tools == ToolsSpec():
        return ()
    if not are_seen:
        return None
    return tuple(violation for call in calls if (violation := _violation(tools, call)) is not None)


def _violation(tools: ToolsSpec, call: ToolCall) -> str | None:
    names = tuple(_names(call))
    for glob in tools.deny:
        if any(fnmatchcase(name, glob) for name in names):
            return f"{call.call}: {names[-1]} is denied by {glob}"
    if tools.allow is not None and not any(fnmatchcase(name, glob) for glob in tools.allow for name in names):
        return f"{call.call}: {names[-1]} is not allowed"
    return None


def _names(call: ToolCall) -> Iterator[str]:
    yield f"{call.kind}:{call.name}"
    if (line := command_line(call)) is not None:
        yield f"command:{line}"
