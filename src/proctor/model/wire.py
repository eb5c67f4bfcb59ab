"""What every wire agrees on: what an agent asked, and what it is to be told."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from proctor.canonical import digest_bytes
from proctor.ids import Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool the request offers. `freeform` takes plain text, others a JSON object with these properties."""

    name: str
    namespace: str | None = None
    freeform: bool = False
    properties: dict[str, Any]

    @property
    def full_name(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of the conversation a request carries."""

    raw: bytes
    is_users: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request for a reply. `is_side` is one that the agent makes for ends of its own, though it offers tools."""

    model: str
    tools: tuple[Tool, ...]
    items: tuple[Item, ...]
    has_output_schema: bool = False
    is_streamed: bool = True
    is_side: bool = False

    def digest_of(self, count: int) -> Digest:
        """Names the first so many items, so that a longer conversation can be known as a continuation."""
        return digest_bytes(b"\n".join(item.raw for item in self.items[:count]))

    @property
    def input_bytes(self) -> int:
        return sum(len(item.raw) for item in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Words for the user, said `repeat` times, each time in pieces of at most `chunk_chars`."""

    text: str
    chunk_chars: int | None = None
    repeat: int = 1

    @property
    def whole(self) -> str:
        return self.text * self.repeat

    def pieces(self) -> Iterator[str]:
        """
        >>> list(Text(text="abc", chunk_chars=2, repeat=2).pieces())
        ['ab', 'c', 'ab', 'c']
        """
        step = self.chunk_chars or max(len(self.text), 1)
        for _ in range(self.repeat):
            for start in range(0, len(self.text), step):
                yield self.text[start : start + step]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """Reasoning, as the summary an agent may show."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of an offered tool; `payload` is JSON, or plain text for a freeform tool."""

    tool: Tool
    payload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Silence in the middle of a stream."""

    delay_s: float


Part = Text | Thought | ToolCall | Pause


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What a reply claims to have cost. Cached is part of input, reasoning part of output."""

    input: int
    cached: int
    output: int
    reasoning: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakOff:
    """A stream that does not end well after so many events: it ends, falls silent, or says what is no event."""

    how: Literal["cut", "silent", "garbled"]
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The provider's word, in place of the end of a reply, that it failed."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole model reply. `serial` makes its ids unique."""

    serial: str
    model: str
    parts: tuple[Part, ...]
    tokens: Tokens
    break_off: BreakOff | None = None
    failure: Failure | None = None


class Wire(Protocol):
    """One provider's HTTP speech, as pure functions of bytes."""

    def read_ask(self, body: bytes) -> Ask:
        """Raises WireError where the body is not a request of this wire."""
        ...

    def render(self, reply: Reply) -> Iterator[bytes | Pause]:
        """The events of a stream, one at a time, and the silences between them."""
        ...

    def render_error(self, message: str, *, code: str, status: int) -> bytes: ...

    def render_garbage(self) -> bytes:
        """What begins like an event in the middle of a stream, and is none."""
        ...


def offered(tools: Sequence[Tool]) -> str:
    """The names of tools, for a message."""
    return ", ".join(tool.full_name for tool in tools) or "none"
