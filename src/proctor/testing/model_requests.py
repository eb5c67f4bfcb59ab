"""What requests say to a scripted model, item by item, with the role and the kind of each."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from proctor import canonical, decoding


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestItem:
    """One text, call or result in a request."""

    role: str
    """The role that the request names, `system` for the system prompt; empty if it names none."""
    kind: str
    """`text`, or the type in the wire format, such as `tool_use` or `function_call_output`."""
    text: str
    """The text, the arguments of a call, or the output of a result."""
    tool: str = ""
    """The tool that a call names; empty for anything else."""
    call_id: str = ""
    """The id that a call shares with its result; empty for anything else."""


Requests = list[tuple[RequestItem, ...]]


@contextmanager
def recorded_requests() -> Iterator[Requests]:
    """Collect the items of all requests that scripted models of this process get inside the block, oldest first."""
    # Imported when used, because a web server is slow to import.
    from proctor.model import exchange

    requests: Requests = []
    wires = dict(exchange.WIRES)
    exchange.WIRES.update({path: _RecordingWire(wire, requests) for path, wire in wires.items()})
    try:
        yield requests
    finally:
        exchange.WIRES.update(wires)


class _RecordingWire:
    """Passes everything on to a wire, and keeps what requests say."""

    def __init__(self, wire: Any, requests: Requests) -> None:
        self._wire = wire
        self._requests = requests

    def parse_request(self, body: bytes) -> Any:
        request = self._wire.parse_request(body)
        self._requests.append(tuple(_items(decoding.decode(body))))
        return request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)


def _items(body: Any) -> Iterator[RequestItem]:
    """Yield the items of a request to the Responses API or the Messages API."""
    match body:
        case {"input": [*items]}:
            for item in items:
                yield from _response_items(item)
        case {"messages": [*messages]}:
            for message in ({"role": "system", "content": body.get("system", [])}, *messages):
                yield from _message_items(message["role"], message["content"])


def _response_items(item: dict[str, Any]) -> Iterator[RequestItem]:
    kind, call = item.get("type", "message"), item.get("call_id", "")
    match item:
        case {"content": [*parts], "role": role}:
            for part in parts:
                yield RequestItem(role=role, kind="text", text=part.get("text", ""))
        case {"arguments": str(text)} | {"input": str(text)}:
            yield RequestItem(role="", kind=kind, text=text, tool=item.get("name", ""), call_id=call)
        case {"output": str(text)}:
            yield RequestItem(role="", kind=kind, text=text, call_id=call)
        case _:
            yield RequestItem(role="", kind=kind, text=_json(item))


def _message_items(role: str, content: Any) -> Iterator[RequestItem]:
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        kind = block["type"]
        match block:
            case {"text": str(text)}:
                yield RequestItem(role=role, kind="text", text=text)
            case {"name": str(name), "id": str(id_), "input": input_}:
                yield RequestItem(role=role, kind=kind, text=_json(input_), tool=name, call_id=id_)
            case {"tool_use_id": str(id_), "content": output}:
                text = output if isinstance(output, str) else "".join(part.get("text", "") for part in output)
                yield RequestItem(role=role, kind=kind, text=text, call_id=id_)
            case _:
                yield RequestItem(role=role, kind=kind, text=_json(block))


def _json(value: Any) -> str:
    return canonical.encode(value).decode()
