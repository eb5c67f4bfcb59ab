"""The wire format of the Responses API: parse requests, render replies as server-sent events."""

from collections.abc import Generator, Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from proctor import decoding
from proctor.errors import WireError
from proctor.model.wire import (
    TEXT,
    ContentPart,
    Item,
    Pause,
    Reasoning,
    Reply,
    ReplyRequest,
    Text,
    Tool,
    ToolCall,
    join_texts,
)

_encode = msgspec.json.Encoder().encode
_TAIL: Final = b"}\n\n"
_EMPTY_TAIL: Final = b'""' + _TAIL


# ── requests ──


class _Schema(msgspec.Struct):
    properties: dict[str, Any] = {}


class _Tool(msgspec.Struct):
    type: str
    name: str | None = None  # missing for tools that the provider runs itself
    parameters: _Schema | None = None
    tools: list["_Tool"] = []


class _Format(msgspec.Struct):
    type: str = "text"


class _TextFormat(msgspec.Struct):
    format: _Format | None = None


class _Request(msgspec.Struct):
    input: list[msgspec.Raw] | str
    instructions: str | None = None
    model: str = ""
    stream: bool = False
    tools: list[_Tool] | None = None
    text: _TextFormat | None = None


class _Item(msgspec.Struct):
    type: str | None = None
    role: str | None = None
    content: Any = None
    name: str | None = None
    namespace: str | None = None
    call_id: str | None = None
    arguments: Any = None  # of a function
    input: Any = None  # of a custom tool
    output: Any = None


_read_request = decoding.json_decoder(_Request)
_read_item = decoding.json_decoder(_Item)


def parse_request(body: bytes) -> ReplyRequest:
    """Parse the body of a POST to `/responses`. Raises WireError if it is not valid or does not request a stream."""
    try:
        request = _read_request(body)
        content = request.input
        raws = [_encode({"role": "user", "content": content})] if isinstance(content, str) else content
        items = tuple(_item(bytes(raw)) for raw in raws)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError("peer.wire", f"not a Responses request: {error}") from error
    if not request.stream:
        raise WireError("peer.wire", "the scripted model supports only streamed replies: set `stream` to true")
    output_format = request.text.format if request.text is not None else None
    return ReplyRequest(
        model=request.model,
        tools=tuple(_convert_tools(request.tools or ())),
        items=items,
        system=(ContentPart(role="system", kind=TEXT, text=request.instructions),) if request.instructions else (),
        has_output_schema=output_format is not None and output_format.type == "json_schema",
    )


def _convert_tools(tools: Iterable[_Tool], namespace: str | None = None) -> Iterator[Tool]:
    for tool in tools:
        name = tool.name or tool.type
        if tool.type == "namespace":
            yield from _convert_tools(tool.tools, name)
        else:
            properties = tool.parameters.properties if tool.parameters else {}
            yield Tool(name=name, namespace=namespace, freeform=tool.type == "custom", properties=properties)


def _item(raw: bytes) -> Item:
    item = _read_item(raw)
    return Item(raw=raw, is_users=item.role == "user", parts=tuple(_parts(item, raw)))


def _parts(item: _Item, raw: bytes) -> Iterator[ContentPart]:
    role, kind, call_id = item.role or "", item.type or "", item.call_id or ""
    match item:
        case _Item(content=str(text)):
            yield ContentPart(role=role, kind=TEXT, text=text)
        case _Item(content=[_, *_] as blocks):
            yield from (_block_part(role, block) for block in blocks)
        case _Item(arguments=str(text)) | _Item(input=str(text)):
            tool = Tool(name=item.name or "", namespace=item.namespace, properties={}).full_name
            yield ContentPart(role=role, kind=kind, text=text, tool=tool, call_id=call_id)
        case _Item(output=output) if output is not None:
            joined = output if isinstance(output, str) else join_texts(output)
            text = _encode(output).decode() if joined is None else joined
            yield ContentPart(role=role, kind=kind, text=text, call_id=call_id)
        case _:
            yield ContentPart(role=role, kind=kind, text=raw.decode())


def _block_part(role: str, block: object) -> ContentPart:
    match block:
        case {"type": "input_text" | "output_text", "text": str(text)}:
            return ContentPart(role=role, kind=TEXT, text=text)
        case {"type": str(kind)}:
            return ContentPart(role=role, kind=kind, text=_encode(block).decode())
        case _:
            return ContentPart(role=role, kind="", text=_encode(block).decode())


# ── replies ──


def render(reply: Reply) -> Iterator[bytes | Pause]:
    """Yield the events of a reply. Keeps a long text in memory, but never all of its events.

    >>> from proctor.model.wire import Tokens
    >>> tokens = Tokens(input=3, cached=0, output=1, reasoning=0)
    >>> text = Text(text="Hello", chunk_chars=3)
    >>> events = list(render(Reply(serial="1", model="m", parts=(text,), tokens=tokens)))
    >>> b"".join(events[3:5]).decode().split("\\n")[::3]
    ['event: response.output_text.delta', 'event: response.output_text.delta', '']
    """
    response_id = f"resp_{reply.serial}"
    output: list[msgspec.Raw] = []
    yield _event("response.created", response=_response(response_id, reply, status="in_progress", output=output))
    for part in reply.parts:
        if isinstance(part, Pause):
            yield part
            continue
        name = f"{reply.serial}_{len(output)}"
        output.append((yield from _item_events(part, name=name, index=len(output))))
    if reply.failure is not None:
        response = _response(response_id, reply, status="failed", output=output)
        response["error"] = {"code": reply.failure.code, "message": reply.failure.message}
        yield _event("response.failed", response=response)
        return
    response = _response(response_id, reply, status="completed", output=output)
    tokens = reply.tokens
    response["usage"] = {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }
    yield _event("response.completed", response=response)


def render_error(message: str, *, code: str, status: int) -> bytes:
    """Return the body of an HTTP error."""
    return _encode({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}})


def render_garbage() -> bytes:
    return b"event: response.output_text.delta\ndata: {no \xff\xfe JSON\n\n"


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind, **fields}))


def _response(
    response_id: str, reply: Reply, *, status: Literal["in_progress", "completed", "failed"], output: list[msgspec.Raw]
) -> dict[str, Any]:
    return {"id": response_id, "object": "response", "status": status, "model": reply.model, "output": output}


def _item_events(part: Text | Reasoning | ToolCall, *, name: str, index: int) -> Generator[bytes, None, msgspec.Raw]:
    match part:
        case Text():
            return _message(part, item_id=f"msg_{name}", index=index)
        case Reasoning():
            return _reasoning(part, item_id=f"rs_{name}", index=index)
        case ToolCall():
            return _tool_call(part, name=name, index=index)


def _message(part: Text, *, item_id: str, index: int) -> Generator[bytes, None, msgspec.Raw]:
    item = {"type": "message", "id": item_id, "role": "assistant", "status": "in_progress", "content": []}
    where = {"item_id": item_id, "output_index": index, "content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": []}
    yield _event("response.output_item.added", output_index=index, item=item)
    yield _event("response.content_part.added", **where, part=empty)
    # There may be hundreds of thousands of deltas: everything except the piece is encoded once.
    head = _event("response.output_text.delta", **where, delta="").removesuffix(_EMPTY_TAIL)
    for piece in part.pieces():
        yield head + _encode(piece) + _TAIL
    text = part.full_text
    content = empty | {"text": text}
    yield _event("response.output_text.done", **where, text=text)
    yield _event("response.content_part.done", **where, part=content)
    return (yield from _done(item | {"status": "completed", "content": [content]}, index=index))


def _reasoning(part: Reasoning, *, item_id: str, index: int) -> Generator[bytes, None, msgspec.Raw]:
    item: dict[str, Any] = {"type": "reasoning", "id": item_id, "summary": []}
    where = {"item_id": item_id, "output_index": index, "summary_index": 0}
    summary = {"type": "summary_text", "text": part.text}
    yield _event("response.output_item.added", output_index=index, item=item)
    yield _event("response.reasoning_summary_part.added", **where, part=summary | {"text": ""})
    yield _event("response.reasoning_summary_text.delta", **where, delta=part.text)
    yield _event("response.reasoning_summary_text.done", **where, text=part.text)
    yield _event("response.reasoning_summary_part.done", **where, part=summary)
    return (yield from _done(item | {"summary": [summary]}, index=index))


def _tool_call(part: ToolCall, *, name: str, index: int) -> Generator[bytes, None, msgspec.Raw]:
    kind, field, stream = (
        ("custom_tool_call", "input", "response.custom_tool_call_input")
        if part.tool.freeform
        else ("function_call", "arguments", "response.function_call_arguments")
    )
    item_id = f"{'ctc' if part.tool.freeform else 'fc'}_{name}"
    item = {"type": kind, "id": item_id, "call_id": f"call_{name}", "name": part.tool.name, "status": "in_progress"}
    if part.tool.namespace is not None:
        item["namespace"] = part.tool.namespace
    where = {"item_id": item_id, "output_index": index}
    yield _event("response.output_item.added", output_index=index, item=item | {field: ""})
    yield _event(f"{stream}.delta", **where, delta=part.payload)
    yield _event(f"{stream}.done", **where, **{field: part.payload})
    return (yield from _done(item | {field: part.payload, "status": "completed"}, index=index))


def _done(item: dict[str, Any], *, index: int) -> Generator[bytes, None, msgspec.Raw]:
    raw = msgspec.Raw(_encode(item))
    yield _event("response.output_item.done", output_index=index, item=raw)
    return raw
