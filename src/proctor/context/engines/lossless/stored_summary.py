"""What the engine knows of its summaries and segments without their entries."""

from collections.abc import Iterable
from dataclasses import dataclass

from proctor import canonical
from proctor.context.budget import message_bytes
from proctor.event.message import Message, SummaryPart
from proctor.ids import EntryId


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """A segment of the history: its number in the database, and the position of its first entry."""

    n: int
    position: int
    entries: int
    size_bytes: int
    is_start: bool

    @property
    def past(self) -> int:
        """The position after its last entry."""
        return self.position + self.entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A text that covers the entries from the position `first` to before `past`."""

    id: EntryId
    level: int
    """1 for a leaf, which covers entries; more for a condensation, which covers summaries."""
    first: int
    past: int
    text: str
    at_ms: int
    """Time of the last entry."""
    is_tainted: bool
    is_by_model: bool
    sources: tuple[EntryId, ...] = ()
    """Of a leaf, the entries that it covers. The sources of a condensation are those of its leaves."""
    children: tuple[EntryId, ...] = ()
    """Of a condensation, the summaries that it covers."""

    @property
    def size_bytes(self) -> int:
        return message_bytes(self.message(()))

    def message(self, sources: tuple[EntryId, ...]) -> Message:
        """Return it as the model is given it, with all the entries that it covers."""
        part = SummaryPart(text=self.text, sources=sources)
        return Message(id=self.id, at_ms=self.at_ms, part=part, is_tainted=self.is_tainted)


def summary_id(body: str, *, level: int, covered: Iterable[EntryId]) -> EntryId:
    """Return the id of a summary, which is made from what it says and the entries or summaries that it covers."""
    digest = canonical.digest_bytes("\n".join((str(level), *covered, body)).encode("utf-8", "surrogatepass"))
    return EntryId(f"summary-{digest.removeprefix('sha256:')[:16]}")
