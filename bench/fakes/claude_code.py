"""A fake `claude -p` with stream-json both ways: an initialization, then one turn, until its stdin ends."""

import json
import sys

PIECES = 19
"""Pieces of the answer, so that an attempt receives 30 frames in total."""

_PIECE = "So it is done, and this is the answer to it. "
_SAID = _PIECE * (PIECES - 1) + 'PROCTOR-RESULT: {"done": true, "answer": ""}'
_SESSION = "01a1e1a9-ddf0-41c3-af1a-000000000001"
_MESSAGE = "msg_01a1e1a9ddf041c3af1a0001"
_USED = {"input_tokens": 12, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 7}


def greeted(request: str) -> str:
    response = {"subtype": "success", "request_id": request, "response": {"commands": [], "models": []}}
    return _frame("control_response", response=response)


def answered(uuid: str) -> list[str]:
    """Return all frames of a turn."""
    message = {"id": _MESSAGE, "type": "message", "role": "assistant", "model": "claude-bench", "usage": _USED}
    said = [{"type": "text", "text": _SAID}]
    # Encoded once per turn, not once per piece, so that the fake costs little.
    piece = _event("content_block_delta", index=0, delta={"type": "text_delta", "text": _PIECE})
    last = _event("content_block_delta", index=0, delta={"type": "text_delta", "text": _SAID[-44:]})
    return [
        _lifecycle(uuid, "started"),
        _frame("system", subtype="init", model="claude-bench", claude_code_version="2.1.325", tools=[]),
        _event("message_start", message={**message, "content": []}),
        _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *[piece] * (PIECES - 1),
        last,
        _frame("assistant", message={**message, "content": said}, parent_tool_use_id=None, uuid="a1"),
        _event("content_block_stop", index=0),
        _event("message_delta", delta={"stop_reason": "end_turn"}, usage=_USED),
        _event("message_stop"),
        _frame("result", subtype="success", is_error=False, result=_SAID, usage=_USED, uuid="r1"),
        _lifecycle(uuid, "completed"),
    ]


def _frame(type_: str, **fields: object) -> str:
    return json.dumps({"type": type_, **fields, "session_id": _SESSION}, separators=(",", ":"))


def _event(type_: str, **fields: object) -> str:
    return _frame("stream_event", event={"type": type_, **fields}, api_message_id=_MESSAGE, parent_tool_use_id=None)


def _lifecycle(uuid: str, state: str) -> str:
    return _frame("command_lifecycle", command_uuid=uuid, state=state)


def main() -> None:
    if "--version" in sys.argv:
        sys.stdout.write("2.1.325 (Claude Code)\n")
        return
    for line in sys.stdin:
        ask = json.loads(line)
        said = [greeted(ask["request_id"])] if ask["type"] == "control_request" else answered(ask["uuid"])
        sys.stdout.write("\n".join(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
