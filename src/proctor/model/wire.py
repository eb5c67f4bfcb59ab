"""Requests and replies in a form that is independent of the provider's wire format."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import msgspec

from proctor.canonical import digest_bytes
from proctor.ids import Digest

TEXT: Final = "text"
"""The kind of a content part that is text of a message or system text, in every wire format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that a request offers."""

    name: str
    namespace: str | None = None
    freeform: bool = False
    """Whether the tool takes plain text instead of a JSON object."""
    properties: dict[str, Any]
    """The JSON schemas of its arguments, by name."""

    @property
    def full_name(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"


class ContentPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One part of what a request says to the model: a text of a message, a tool call, a tool result or something else.

    A message may have several parts. A call, a result and every item without parts is one part. A struct, because a
    request has many of them, and structs are fast to make and to compare.
    """

    role: str
    """The role that the request names, `system` for system text outside the conversation; empty if it names none."""
    kind: str
    """`text`, or the type in the wire format, such as `tool_use`, `function_call_output` or `input_image`."""
    text: str
    """The text, the arguments of a call or the output of a result; for anything else, its JSON."""
    tool: str = ""
    """The tool that a call names, as in `Tool.full_name`; empty for anything else."""
    call_id: str = ""
    """The id that a call shares with its result; empty for anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item of the conversation in a request."""

    raw: bytes
    """The item as JSON, for digests."""
    is_users: bool
    """Whether the user wrote it."""
    parts: tuple[ContentPart, ...]

    @property
    def text(self) -> str:
        """Its text as a message; empty if it is not a message."""
        return "".join(part.text for part in self.parts if part.kind == TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRequest:
    """One request for a reply."""

    model: str
    tools: tuple[Tool, ...]
    items: tuple[Item, ...]
    system: tuple[ContentPart, ...] = ()
    """System text outside the conversation. It does not tell one request from another."""
    has_output_schema: bool = False
    is_streamed: bool = True
    is_side: bool = False
    """Whether the request is not part of the agent's main loop, although it offers tools."""

    def digest_of(self, count: int) -> Digest:
        """Return the digest of the first `count` items, to recognize a longer conversation as a continuation."""
        return digest_bytes(b"\n".join(item.raw for item in self.items[:count]))

    @property
    def parts(self) -> tuple[ContentPart, ...]:
        """All that the request says to the model, in order, beginning with the system text."""
        return (*self.system, *(part for item in self.items for part in item.parts))

    @property
    def input_bytes(self) -> int:
        return sum(len(item.raw) for item in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text for the user."""

    text: str
    chunk_chars: int | None = None
    """How many characters each streamed piece has at most; None sends the text as one piece."""
    repeat: int = 1
    """How many times the text is sent."""

    @property
    def full_text(self) -> str:
        return self.text * self.repeat

    def pieces(self) -> Iterator[str]:
        """Yield the streamed pieces of the text.

        >>> list(Text(text="abc", chunk_chars=2, repeat=2).pieces())
        ['ab', 'c', 'ab', 'c']
        """
        step = self.chunk_chars or max(len(self.text), 1)
        for _ in range(self.repeat):
            for start in range(0, len(self.text), step):
                yield self.text[start : start + step]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """Reasoning of the model, as the summary that an agent may show."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of an offered tool."""

    tool: Tool
    payload: str
    """The arguments as JSON, or plain text for a freeform tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause in the middle of a stream, in seconds."""

    delay_s: float


Part = Text | Reasoning | ToolCall | Pause


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The token counts that a reply reports. `input` includes `cached`, `output` includes `reasoning`."""

    input: int
    cached: int
    output: int
    reasoning: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakOff:
    """How a stream breaks off."""

    how: Literal["cut", "silent", "garbled"]
    """The connection is closed, nothing more is sent, or an invalid event is sent."""
    after: int
    """The number of events before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A provider error that ends a reply."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model reply."""

    serial: str
    """Makes the ids in the reply unique."""
    model: str
    parts: tuple[Part, ...]
    tokens: Tokens
    break_off: BreakOff | None = None
    failure: Failure | None = None


class Wire(Protocol):
    """The HTTP format of one provider, as pure functions of bytes."""

    def parse_request(self, body: bytes) -> ReplyRequest:
        """Parse the body of a request. Raises WireError if it is not a request in this format."""
        ...

    def render(self, reply: Reply) -> Iterator[bytes | Pause]:
        """Yield the events of a streamed reply, one at a time, and the pauses between them."""
        ...

    def render_error(self, message: str, *, code: str, status: int) -> bytes:
        """Return the body of an HTTP error."""
        ...

    def render_garbage(self) -> bytes:
        """Return an event whose data is not valid JSON or UTF-8."""
        ...


def join_texts(blocks: object) -> str | None:
    """Return the joined text of a list of text blocks; None if it is no such list, or has other blocks too.

    >>> join_texts([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}])
    'ab'
    >>> join_texts([{"type": "text", "text": "a"}, {"type": "image"}])
    """
    if not isinstance(blocks, list):
        return None
    texts = [each["text"] for each in blocks if isinstance(each, dict) and isinstance(each.get("text"), str)]
    return "".join(texts) if len(texts) == len(blocks) else None


def format_tools(tools: Sequence[Tool]) -> str:
    """Return the names of tools, for a message."""
    return ", ".join(tool.full_name for tool in tools) or "none"
