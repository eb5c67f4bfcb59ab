"""The wire format of the Messages API: parse requests, render replies as server-sent events."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from proctor import decoding
from proctor.errors import WireError
from proctor.model.dialects.claude import ANSWER_TOOL, SUMMARY_PROMPT
from proctor.model.wire import (
    TEXT,
    ContentPart,
    Item,
    Pause,
    Reasoning,
    Reply,
    ReplyRequest,
    Text,
    Tokens,
    Tool,
    ToolCall,
    join_texts,
)

_encode = msgspec.json.Encoder().encode
_TAIL: Final = b"}}\n\n"
_EMPTY_TAIL: Final = b'""' + _TAIL

# The provider's error types by HTTP status. Other 4xx statuses use the type of 400, other 5xx that of 500.
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


# ── requests ──


class _Schema(msgspec.Struct):
    properties: dict[str, Any] = {}


class _Tool(msgspec.Struct):
    name: str
    input_schema: _Schema | None = None  # missing for tools that the provider runs itself


_Blocks = str | list[dict[str, Any]]


class _Message(msgspec.Struct):
    role: str
    content: _Blocks


class _Format(msgspec.Struct):
    type: str = ""


class _OutputFormat(msgspec.Struct):
    format: _Format | None = None


class _Request(msgspec.Struct):
    messages: list[_Message]
    system: _Blocks | None = None
    model: str = ""
    stream: bool = False
    tools: list[_Tool] | None = None
    output_config: _OutputFormat | None = None


_read_request = decoding.json_decoder(_Request)


def parse_request(body: bytes) -> ReplyRequest:
    """Parse the body of a POST to `/messages`. Raises WireError if it is not valid."""
    request = _decode_request(body)
    output_format = request.output_config.format if request.output_config is not None else None
    tools = tuple(_convert_tool(tool) for tool in request.tools or ())
    items = _items(request)
    has_answer_tool = any(tool.full_name == ANSWER_TOOL for tool in tools)
    return ReplyRequest(
        model=request.model,
        tools=tools,
        items=items,
        system=tuple(_part("system", block) for block in _blocks(request.system or [])),
        has_output_schema=has_answer_tool or (output_format is not None and output_format.type == "json_schema"),
        is_streamed=request.stream,
        is_side=next((item.text for item in reversed(items) if item.is_users), "").startswith(SUMMARY_PROMPT),
    )


def count_tokens(body: bytes) -> bytes:
    """Return the answer to a POST to `/messages/count_tokens`, estimated from sizes.

    Raises WireError if the body is not valid.
    """
    size_bytes = sum(len(item.raw) for item in _items(_decode_request(body)))
    return _encode({"input_tokens": -(-size_bytes // 4)})


def _decode_request(body: bytes) -> _Request:
    try:
        return _read_request(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError("peer.wire", f"not a Messages request: {error}") from error


def _convert_tool(tool: _Tool) -> Tool:
    namespace, name = _split_name(tool.name)
    return Tool(name=name, namespace=namespace, properties=tool.input_schema.properties if tool.input_schema else {})


def _split_name(wire_name: str) -> tuple[str | None, str]:
    """Return the namespace and the name of a tool.

    >>> _split_name("mcp__kit__add"), _split_name("my__tool")
    (('mcp__kit', 'add'), (None, 'my__tool'))
    """
    server, _, name = wire_name.rpartition("__")
    return (server, name) if server.startswith("mcp__") else (None, wire_name)


def _blocks(content: _Blocks) -> list[dict[str, Any]]:
    # The cache marker moves with every request and is not part of the conversation.
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]


def _items(request: _Request) -> tuple[Item, ...]:
    """Return one item per content block, not per message: an agent may add new blocks to the last message."""
    return tuple(_item(message.role, block) for message in request.messages for block in _blocks(message.content))


def _item(role: str, block: dict[str, Any]) -> Item:
    return Item(
        raw=_encode({"role": role, "content": block}),
        is_users=role == "user" and block.get("type") != "tool_result",
        parts=(_part(role, block),),
    )


def _part(role: str, block: dict[str, Any]) -> ContentPart:
    match block:
        case {"type": "text", "text": str(text)}:
            return ContentPart(role=role, kind=TEXT, text=text)
        case {"type": "tool_use" as kind, "name": str(wire_name), "id": str(call_id), "input": arguments}:
            namespace, name = _split_name(wire_name)
            tool = Tool(name=name, namespace=namespace, properties={}).full_name
            text = _encode(arguments).decode()
            return ContentPart(role=role, kind=kind, text=text, tool=tool, call_id=call_id)
        case {"type": "tool_result" as kind, "tool_use_id": str(call_id), "content": content}:
            joined = content if isinstance(content, str) else join_texts(content)
            text = _encode(content).decode() if joined is None else joined
            return ContentPart(role=role, kind=kind, text=text, call_id=call_id)
        case _:
            return ContentPart(role=role, kind=str(block.get("type", "")), text=_encode(block).decode())


# ── replies ──


def render(reply: Reply) -> Iterator[bytes | Pause]:
    """Yield the events of a streamed reply.

    >>> tokens = Tokens(input=3, cached=1, output=1, reasoning=0)
    >>> text = Text(text="Hello", chunk_chars=3)
    >>> events = list(render(Reply(serial="1", model="m", parts=(text,), tokens=tokens)))
    >>> b"".join(events).decode().split("\\n")[:-1:3]  # doctest: +NORMALIZE_WHITESPACE
    ['event: message_start', 'event: content_block_start', 'event: content_block_delta', 'event: content_block_delta',
     'event: content_block_stop', 'event: message_delta', 'event: message_stop']
    """
    start: dict[str, Any] = {"content": [], "stop_reason": None, "usage": _usage(reply.tokens, output=1)}
    yield _event("message_start", message=_message(reply) | start)
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


def render_unstreamed(reply: Reply) -> Iterator[bytes | Pause]:
    """Yield a reply without streaming, which an agent requests when streams fail: all pauses, then one JSON object."""
    yield from (part for part in reply.parts if isinstance(part, Pause))
    parts = [part for part in reply.parts if not isinstance(part, Pause)]
    content = [_content(part, name=f"{reply.serial}_{index}") for index, part in enumerate(parts)]
    usage = _usage(reply.tokens, output=reply.tokens.output)
    yield _encode(_message(reply) | {"content": content, "stop_reason": _stop_reason(reply), "usage": usage})


def render_error(message: str, *, code: str, status: int) -> bytes:
    """Return the body of an HTTP error. The format has no field for `code`, so it is put into the message."""
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
    """Return the token counts. In this format the input does not include tokens read from a cache."""
    return {
        "input_tokens": max(tokens.input - tokens.cached, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": tokens.reasoning},
    }


def _content(part: Text | Reasoning | ToolCall, *, name: str) -> dict[str, Any]:
    """Return a complete content block."""
    match part:
        case Text():
            return {"type": "text", "text": part.full_text}
        case Reasoning():
            return {"type": "thinking", "thinking": part.text, "signature": f"sig_{name}"}
        case ToolCall(tool=tool):
            wire_name = tool.name if tool.namespace is None else f"{tool.namespace}__{tool.name}"
            arguments = msgspec.Raw(part.payload.encode())
            return {"type": "tool_use", "id": f"toolu_{name}", "name": wire_name, "input": arguments}


def _block(part: Text | Reasoning | ToolCall, *, name: str, index: int) -> Iterator[bytes]:
    """Yield a content block as events: it starts empty and is filled by deltas."""
    match part:
        case Text():
            yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            # There may be hundreds of thousands of deltas: everything except the piece is encoded once.
            head = _delta(index, type="text_delta", text="").removesuffix(_EMPTY_TAIL)
            for piece in part.pieces():
                yield head + _encode(piece) + _TAIL
        case Reasoning():
            block = _content(part, name=name)
            yield _event("content_block_start", index=index, content_block=block | {"thinking": "", "signature": ""})
            yield _delta(index, type="thinking_delta", thinking=part.text)
            yield _delta(index, type="signature_delta", signature=block["signature"])
        case ToolCall():
            yield _event("content_block_start", index=index, content_block=_content(part, name=name) | {"input": {}})
            yield _delta(index, type="input_json_delta", partial_json=part.payload)
    yield _event("content_block_stop", index=index)


def _delta(index: int, **delta: Any) -> bytes:
    return _event("content_block_delta", index=index, delta=delta)
