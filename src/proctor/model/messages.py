"""The Messages wire: requests read, replies as server-sent events."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from proctor.errors import WireError
from proctor.model.dialects.claude import ANSWER_TOOL, SUMMARY_PROMPT
from proctor.model.wire import Ask, Item, Pause, Reply, Text, Thought, Tokens, Tool, ToolCall

_encode = msgspec.json.Encoder().encode
_TAIL: Final = b"}}\n\n"
_EMPTY_TAIL: Final = b'""' + _TAIL

# What the provider calls an error, by its status; any other of 4xx is the first, of 5xx the last.
_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
    500: "api_error",
}


# ── what an agent asks ──


class _Schema(msgspec.Struct):
    properties: dict[str, Any] = {}


class _Tool(msgspec.Struct):
    name: str
    input_schema: _Schema | None = None  # tools the provider runs itself have none


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]]


class _Format(msgspec.Struct):
    type: str = ""


class _OutputWish(msgspec.Struct):
    format: _Format | None = None


class _Request(msgspec.Struct):
    messages: list[_Message]
    model: str = ""
    stream: bool = False
    tools: list[_Tool] | None = None
    output_config: _OutputWish | None = None


_read_request = msgspec.json.Decoder(_Request).decode


def read_ask(body: bytes) -> Ask:
    """Reads a POST to `/messages`; raises WireError where it is none."""
    request = _read(body)
    wish = request.output_config.format if request.output_config is not None else None
    tools = tuple(_offer(tool) for tool in request.tools or ())
    items = _items(request)
    has_answer_tool = any(tool.full_name == ANSWER_TOOL for tool in tools)
    return Ask(
        model=request.model,
        tools=tools,
        items=items,
        has_output_schema=has_answer_tool or (wish is not None and wish.type == "json_schema"),
        is_streamed=request.stream,
        is_side=next((item.text for item in reversed(items) if item.is_users), "").startswith(SUMMARY_PROMPT),
    )


def count_tokens(body: bytes) -> bytes:
    """The answer to a POST to `/messages/count_tokens`: a guess by size; raises WireError where it is none."""
    size_bytes = sum(len(item.raw) for item in _items(_read(body)))
    return _encode({"input_tokens": -(-size_bytes // 4)})


def _read(body: bytes) -> _Request:
    try:
        return _read_request(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError("peer.wire", f"not a Messages request: {error}") from error


def _offer(tool: _Tool) -> Tool:
    properties = tool.input_schema.properties if tool.input_schema else {}
    server, _, name = tool.name.rpartition("__")
    if server.startswith("mcp__"):
        return Tool(name=name, namespace=server, properties=properties)
    return Tool(name=tool.name, properties=properties)


def _items(request: _Request) -> tuple[Item, ...]:
    """An item a block, not a message: what is said next may be put into the last message."""
    return tuple(
        _item(message.role, block)
        for message in request.messages
        for block in (
            [{"type": "text", "text": message.content}] if isinstance(message.content, str) else message.content
        )
    )


def _item(role: str, block: dict[str, Any]) -> Item:
    # The mark of how far to cache moves on with every request, and is nothing that was said.
    said = {name: value for name, value in block.items() if name != "cache_control"}
    match said:
        case {"type": "tool_result", "content": list(parts)}:
            text = "".join(
                part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)
            )
        case {"type": "tool_result", "content": str(text)} | {"type": "text", "text": str(text)}:
            pass
        case _:
            text = ""
    is_users = role == "user" and said.get("type") != "tool_result"
    return Item(raw=_encode({"role": role, "content": said}), is_users=is_users, text=text)


# ── what it is told ──


def render(reply: Reply) -> Iterator[bytes | Pause]:
    """The events of one reply.

    >>> tokens = Tokens(input=3, cached=1, output=1, reasoning=0)
    >>> said = Text(text="Hello", chunk_chars=3)
    >>> events = list(render(Reply(serial="1", model="m", parts=(said,), tokens=tokens)))
    >>> b"".join(events).decode().split("\\n")[:-1:3]  # doctest: +NORMALIZE_WHITESPACE
    ['event: message_start', 'event: content_block_start', 'event: content_block_delta', 'event: content_block_delta',
     'event: content_block_stop', 'event: message_delta', 'event: message_stop']
    """
    unknown_end: dict[str, Any] = {"content": [], "stop_reason": None, "usage": _usage(reply.tokens, output=1)}
    yield _event("message_start", message=_message(reply) | unknown_end)
    index = 0
    for part in reply.parts:
        if isinstance(part, Pause):
            yield part
            continue
        yield from _block(part, name=f"{reply.serial}_{index}", index=index)
        index += 1
    if reply.failure is not None:
        yield _event("error", error={"type": reply.failure.code, "message": reply.failure.message})
        return
    end = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield _event("message_delta", delta=end, usage=_usage(reply.tokens, output=reply.tokens.output))
    yield _event("message_stop")


def render_whole(reply: Reply) -> Iterator[bytes | Pause]:
    """The same reply to whoever did not ask for a stream, as an agent does when streams fail: silences, then all."""
    yield from (part for part in reply.parts if isinstance(part, Pause))
    parts = [part for part in reply.parts if not isinstance(part, Pause)]
    content = [_content(part, name=f"{reply.serial}_{index}") for index, part in enumerate(parts)]
    usage = _usage(reply.tokens, output=reply.tokens.output)
    yield _encode(_message(reply) | {"content": content, "stop_reason": _stop_reason(reply), "usage": usage})


def render_error(message: str, *, code: str, status: int) -> bytes:
    """The body of an HTTP error. The wire has no place for our code but the message."""
    kind = _ERROR_TYPES.get(status) or _ERROR_TYPES[400 if status < 500 else 500]
    return _encode({"type": "error", "error": {"type": kind, "message": f"{code}: {message}"}})


def render_garbage() -> bytes:
    return b"event: content_block_delta\ndata: {no \xff\xfe JSON\n\n"


def _event(type_: str, **fields: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (type_.encode(), _encode({"type": type_, **fields}))


def _message(reply: Reply) -> dict[str, Any]:
    head = {"id": f"msg_{reply.serial}", "type": "message", "role": "assistant", "model": reply.model}
    return head | {"stop_sequence": None}


def _stop_reason(reply: Reply) -> str:
    return "tool_use" if any(isinstance(part, ToolCall) for part in reply.parts) else "end_turn"


def _usage(tokens: Tokens, *, output: int) -> dict[str, Any]:
    """On this wire what was read from a cache is no part of the input."""
    return {
        "input_tokens": max(tokens.input - tokens.cached, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": tokens.reasoning},
    }


def _content(part: Text | Thought | ToolCall, *, name: str) -> dict[str, Any]:
    """A whole block."""
    match part:
        case Text():
            return {"type": "text", "text": part.whole}
        case Thought():
            return {"type": "thinking", "thinking": part.text, "signature": f"sig_{name}"}
        case ToolCall(tool=tool):
            wire_name = tool.name if tool.namespace is None else f"{tool.namespace}__{tool.name}"
            given = msgspec.Raw(part.payload.encode())
            return {"type": "tool_use", "id": f"toolu_{name}", "name": wire_name, "input": given}


def _block(part: Text | Thought | ToolCall, *, name: str, index: int) -> Iterator[bytes]:
    """A block as events: it begins empty and is filled piece by piece."""
    match part:
        case Text():
            yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            # Deltas come by the hundred thousand: all but the piece itself is encoded once.
            head = _delta(index, type="text_delta", text="").removesuffix(_EMPTY_TAIL)
            for piece in part.pieces():
                yield head + _encode(piece) + _TAIL
        case Thought():
            whole = _content(part, name=name)
            yield _event("content_block_start", index=index, content_block=whole | {"thinking": "", "signature": ""})
            yield _delta(index, type="thinking_delta", thinking=part.text)
            yield _delta(index, type="signature_delta", signature=whole["signature"])
        case ToolCall():
            yield _event("content_block_start", index=index, content_block=_content(part, name=name) | {"input": {}})
            yield _delta(index, type="input_json_delta", partial_json=part.payload)
    yield _event("content_block_stop", index=index)


def _delta(index: int, **delta: Any) -> bytes:
    return _event("content_block_delta", index=index, delta=delta)
