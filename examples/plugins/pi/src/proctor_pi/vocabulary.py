"""The words of pi's protocol. They are never masked as secrets, because a masked frame would change its meaning."""

from collections.abc import Iterator
from typing import Final

from proctor_pi import course, kept, normalize, places, tools, wire

_NAMES = """
agent_end agent_start auto_retry_end auto_retry_start compaction_end compaction_start extension_error
extension_ui_request extension_ui_response message_end message_start message_update response
tool_execution_end tool_execution_start tool_execution_update
abort confirm get_state prompt steer
assistant toolResult user custom
text thinking toolCall aborted error length stop toolUse
confirmed cancelled partial bash edit write read
""".split()


def _fields() -> Iterator[str]:
    """Yield the names of all fields that the plugin reads: a masked name could not be found again."""
    kinds: list[type[wire.Native]] = [wire.Native]
    for kind in kinds:
        kinds += kind.__subclasses__()
        yield from kind.__struct_encode_fields__


WORDS: Final = frozenset(
    (
        *_NAMES,
        *_fields(),
        *normalize.IGNORED,
        *tools.DIALOGS,
        *(tools.ASKING, course.CHECK, kept.SOURCE, normalize.RETRY_CANCELLED),
        *(places.TEXT, places.THINKING, places.CALL),
    )
)
