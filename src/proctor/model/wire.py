"""Requests and replies in a form that is independent of the provider's wire format."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from proctor.canonical import digest_bytes
from proctor.ids import Digest


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item of the conversation in a request."""

    raw: bytes
    """The item as JSON, for digests."""
    is_users: bool
    """Whether the user wrote it."""
    text: str
    """The text of the item; empty if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRequest:
    """One request for a reply."""

    model: str
    tools: tuple[Tool, ...]
    items: tuple[Item, ...]
    has_output_schema: bool = False
    is_streamed: bool = True
    is_side: bool = False
    """Whether the request is not part of the agent's main loop, although it offers tools."""

    def digest_of(self, count: int) -> Digest:
        """Return the digest of the first `count` items, to recognize a longer conversation as a continuation."""
        return digest_bytes(b"\n".join(item.raw for item in self.items[:count]))

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


def format_tools(tools: Sequence[Tool]) -> str:
    """Return the names of tools, for a message."""
    return ", ".join(tool.full_name for tool in tools) or "none"
