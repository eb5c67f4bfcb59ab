"""The words of Claude Code's protocol, and the paths of account data in its frames."""

from collections.abc import Iterator
from typing import Final

from proctor.runtime.claude_code import wire

# The words that `normalize` and `session` match on or send. `wire` lists the rest.
_NAMES = """
assistant command_lifecycle control_request control_response control_cancel_request result stream_event system user
init api_retry status permission_denied success error error_during_execution error_max_turns
can_use_tool hook_callback initialize interrupt stop_task PreToolUse hookCallbackIds hookSpecificOutput
message_start message_delta message_stop content_block_start content_block_delta content_block_stop
text thinking tool_use tool_result server_tool_use text_delta thinking_delta input_json_delta signature_delta
UserPromptSubmit additionalContext appendSystemPrompt tool_use_id is_error
get_context_usage messages used compacting compact_boundary failed manual auto
aborted_streaming aborted_tools completed api_error prompt_too_long permission-rule user-rejected
queued started cancelled requesting behavior allow deny updatedInput message
Bash Read Write Edit MultiEdit NotebookEdit WebFetch WebSearch StructuredOutput
""".split()


def _fields() -> Iterator[str]:
    """Yield the names of all fields that Proctor reads: a masked name could not be found again."""
    kinds: list[type[wire.Native]] = [wire.Native]
    for kind in kinds:
        kinds += kind.__subclasses__()
        yield from kind.__struct_encode_fields__


WORDS: Final = frozenset((*_NAMES, *wire.STREAMED, *wire.SILENT, *_fields()))

_ACCOUNT = {
    "": "rate_limit_info",
    "response response account": "email organization organizationUuid accountUuid subscriptionType",
}

PRIVATE: Final = frozenset((*above.split(), name) for above, names in _ACCOUNT.items() for name in names.split())
"""Paths to account data, in any frame. Everything below such a path is account data."""
