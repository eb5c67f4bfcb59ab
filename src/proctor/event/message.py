"""Messages: what was said and done in a session, in one form for all agents."""

from typing import Any

import msgspec

from proctor.event.model import ToolKind
from proctor.ids import EntryId


class PartRoot(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True, gc=False
):
    """Base class of the parts. A message has exactly one, so that each can be given or left out by itself."""


class UserPart(PartRoot, tag="user", frozen=True, kw_only=True):
    """A prompt, or a text that was sent into a running turn."""

    text: str
    """The text, without anything that Proctor adds to a prompt."""


class AgentPart(PartRoot, tag="assistant", frozen=True, kw_only=True):
    """A complete message of the agent."""

    text: str
    """The text."""


class CallPart(PartRoot, tag="call", frozen=True, kw_only=True):
    """A tool call of the agent. Its result is another message."""

    kind: ToolKind
    """Kind of tool."""

    name: str
    """Name of the tool."""

    input: Any = None
    """The tool's input, any JSON value; null if it is unknown."""


class ResultPart(PartRoot, tag="result", frozen=True, kw_only=True):
    """The result of a tool call."""

    call: EntryId
    """Id of the message with the call."""

    name: str
    """Name of the tool."""

    output: str | None = None
    """The output; null if the agent did not report it."""

    ok: bool | None = None
    """Whether the call succeeded; null if unknown."""

    cut_bytes: int = 0
    """Number of bytes of the output that were left out here. frames.jsonl has the whole output."""


class SummaryPart(PartRoot, tag="summary", frozen=True, kw_only=True):
    """A text of a context engine that replaces other messages."""

    text: str
    """The text."""

    sources: tuple[EntryId, ...]
    """Ids of the entries that it covers, oldest first."""


Part = UserPart | AgentPart | CallPart | ResultPart | SummaryPart


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """One message of a session: an entry of its mirror, or one that a context engine made."""

    id: EntryId
    """Id of the entry, `<run>/<attempt>#<frame>`, its position in the record. An engine chooses the ids of the messages
    that it makes itself; they have no `#`."""

    at_ms: int
    """Wall-clock time, in milliseconds since the epoch."""

    part: Part
    """What was said or done."""

    is_tainted: bool = False
    """Whether it comes from a web page or an MCP server, or is the agent's answer after such a result."""
