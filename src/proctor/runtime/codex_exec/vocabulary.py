"""The words in the lines of `codex exec --json`."""

from collections.abc import Iterator
from typing import Final

from proctor.runtime.codex_exec import wire

_NAMES = """
thread.started turn.started turn.completed turn.failed item.started item.updated item.completed error
agent_message reasoning command_execution file_change mcp_tool_call web_search collab_tool_call todo_list
completed declined failed in_progress Reconnecting
danger-full-access never read-only workspace-write
""".split()


def _fields() -> Iterator[str]:
    """Yield the names of all fields that are read. If a name were masked, its field would not be found."""
    for kind in wire.Native.__subclasses__():
        yield from kind.__struct_encode_fields__


WORDS: Final = frozenset((*_NAMES, *_fields()))
