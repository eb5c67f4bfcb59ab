"""The journal of a scripted model: one row per request, in bounded memory."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from proctor.canonical import digest_bytes
from proctor.ids import Digest
from proctor.model.player import RequestKind
from proctor.model.wire import ContentPart

_MAX_ROWS: Final = 500


class JournalItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """One part of what a request says to the model: a text of a message, a tool call, a tool result or something else.

    Consecutive requests share the objects of what they have in common.
    """

    role: str
    """The role that the request names, `system` for system text outside the conversation; empty if it names none."""
    kind: str
    """`text`, or the type in the wire format, such as `tool_use`, `function_call_output` or `input_image`."""
    digest: Digest
    """The digest of the text as UTF-8: of a text, the arguments of a call, the output of a result, or else the JSON."""
    chars: int
    """The length of the text."""
    tool: str = ""
    """The tool that a call names, in the form of the row's `tools`; empty for anything else."""
    call_id: str = ""
    """The id that a call shares with its result; empty for anything else."""
    text: str | None = None
    """The text; null if the journal keeps no texts, or had no room left for it."""
    is_text_dropped: bool = False
    """Whether the journal keeps texts and had no room left for this one."""

    @property
    def whole_text(self) -> str:
        """The text. Raises ValueError if it is missing, because otherwise the absence of a text would prove nothing."""
        if self.text is None:
            dropped, never_kept = "had no room left for", "was opened without `text_bytes` and does not keep"
            why = dropped if self.is_text_dropped else never_kept
            raise ValueError(f"the journal {why} a text of {self.chars} characters ({self.digest})")
        return self.text


class JournalRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One request to a scripted model, and its answer."""

    at_ms: int
    """Wall-clock time of the request, in milliseconds since the epoch."""
    method: str
    """The HTTP method."""
    path: str
    """The path of the URL after the token."""
    kind: RequestKind
    """How the request relates to the script."""
    status: int | None = None
    """The HTTP status of the answer; null if there is no answer (`fault: hang`)."""
    step: int | None = None
    """The index of the step that answered, counted from 0; null if no step was used."""
    try_number: int = 0
    """How often this step was requested before."""
    digest: Digest | None = None
    """The digest of the conversation that the request contains; null for requests without one."""
    model: str = ""
    """The model that the request names; empty if it names none."""
    tools: tuple[str, ...] = ()
    """The names of the tools that the request offers."""
    items: tuple[JournalItem, ...] = ()
    """All that the request says to the model, in order, beginning with the system text outside the conversation."""
    has_output_schema: bool = False
    """Whether the request demands an answer of a given JSON schema."""
    error: str | None = None
    """The error message that was sent; null if none was."""
    is_complete: bool = False
    """Whether the whole answer was delivered."""
    client_aborted: bool = False
    """Whether the client disconnected before the answer was complete."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of all items. Raises ValueError if one is missing."""
        return tuple(item.whole_text for item in self.items)


Rows = tuple[JournalRow, ...]


class Journal:
    """The latest 500 rows of one script. Waiting callers are notified of every change.

    At most `text_bytes` bytes of texts are kept, over all requests; a text that occurs again counts once.
    """

    def __init__(self, key: str, *, text_bytes: int) -> None:
        self.key = key
        self._keeps_texts = text_bytes > 0
        self._free_bytes = text_bytes
        self._texts: dict[Digest, str] = {}
        self._last: tuple[tuple[ContentPart, JournalItem], ...] = ()
        self._rows: dict[int, JournalRow] = {}
        self._next = 0
        self._changed = anyio.Event()

    @property
    def rows(self) -> Rows:
        return tuple(self._rows.values())

    def add(self, row: JournalRow) -> int:
        """Append a row, drop the oldest above the limit, and return the new row's number."""
        number = self._next
        self._next += 1
        self._rows.pop(number - _MAX_ROWS, None)
        self._put(number, row)
        return number

    def amend(self, number: int, **fields: Any) -> None:
        """Change fields of a row. Does nothing if the row was dropped."""
        if (row := self._rows.get(number)) is not None:
            self._put(number, msgspec.structs.replace(row, **fields))

    def describe(self, parts: tuple[ContentPart, ...]) -> tuple[JournalItem, ...]:
        """Return the items of the next request. Parts in the same place as in the previous one are reused."""
        last = self._last
        self._last = tuple(
            last[place] if place < len(last) and part == last[place][0] else (part, self._item(part))
            for place, part in enumerate(parts)
        )
        return tuple(item for _, item in self._last)

    async def until(self, condition: Callable[[Rows], bool]) -> Rows:
        """Wait until the rows meet a condition and return them. The caller sets the deadline."""
        while not condition(self.rows):
            await self._changed.wait()
        return self.rows

    def _item(self, part: ContentPart) -> JournalItem:
        data = part.text.encode()
        digest = digest_bytes(data)
        if digest not in self._texts and len(data) <= self._free_bytes and self._keeps_texts:
            self._texts[digest] = part.text
            self._free_bytes -= len(data)
        text = self._texts.get(digest)
        return JournalItem(
            role=part.role,
            kind=part.kind,
            digest=digest,
            chars=len(part.text),
            tool=part.tool,
            call_id=part.call_id,
            text=text,
            is_text_dropped=self._keeps_texts and text is None,
        )

    def _put(self, number: int, row: JournalRow) -> None:
        self._rows[number] = row
        self._changed.set()
        self._changed = anyio.Event()


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRecorder:
    """Collects the journals of all scripts that are played, and holds them when a script is stopped."""

    text_bytes: int
    """The least number of bytes of whole texts that each journal keeps."""
    journals: list[Journal] = field(default_factory=list)


RECORDER: Final = ContextVar[JournalRecorder | None]("proctor journal recorder", default=None)
"""The recorder of the scripted models that are opened in this context. `proctor.testing.journals` sets it."""
