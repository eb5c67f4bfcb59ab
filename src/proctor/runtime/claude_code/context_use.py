"""Read the use of the context window from Claude Code's reply. Pure."""

from typing import Final

import msgspec

from proctor import decoding
from proctor.errors import PeerError
from proctor.runtime.base import ContextUse
from proctor.runtime.claude_code import wire

_MESSAGES: Final = "messages"
_USED: Final = "used"


def context_use(line: bytes) -> ContextUse:
    """Return the use of the window. Raises PeerError if the shape of the reply is unknown.

    The program lists what is in the window by category. All that is in use but the messages is its own prompt: system
    prompt, tools, skills and memory files. These sizes are the program's estimates, also where the provider has counted
    the whole.
    """
    try:
        usage = decoding.decode(line, wire.ContextReply).response.response
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError("peer.wire", f"{wire.READ_CONTEXT}: {error}") from error
    fixed = [each.tokens for each in usage.categories if each.kind == _USED and each.id != _MESSAGES]
    return ContextUse(
        window_tokens=usage.max_tokens or None,
        used_tokens=usage.total_tokens,
        fixed_prompt_tokens=sum(fixed) if fixed else None,
        compacts_at_tokens=usage.compacts_at if usage.is_compacting_enabled else None,
    )
