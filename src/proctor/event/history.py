"""Compare the history that an agent stores with the events that were received live. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from proctor import canonical
from proctor.event.history_item import HistoryItem
from proctor.event.model import Event, HistoryRead, PromptSent, SessionBegan, TextSaid, ThreadLeft, ToolBegan, ToolEnded
from proctor.fact import Authority, Fact

MOST_DIFFERENCES = 20


class Completeness(StrEnum):
    """How complete the history is that the agent stores. It is never inferred from the text of a warning."""

    LIVE_ONLY = "live-only"
    """The agent stores nothing; the live events are the only record."""

    EXPLICIT_HYDRATION_REQUIRED = "explicit-hydration-required"
    """The agent stores the thread, and it was not read back."""

    HYDRATED = "hydrated"
    """The history was read back, and contains too little to compare."""

    HYDRATED_VERIFIED = "hydrated-verified"
    """The history was read back, and matches the live events."""

    HYDRATED_DIVERGENT = "hydrated-divergent"
    """The history was read back, and differs from the live events."""

    TRUNCATED = "truncated"
    """The history was read back, and ends before the live events do."""

    UNKNOWN = "unknown"
    """There was no thread, or it is unknown whether the agent stores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """An item of the live events or of the stored history. `digest` is None if its content cannot be compared."""

    kind: str
    id: str | None
    digest: str | None

    def __str__(self) -> str:
        return self.kind if self.id is None else f"{self.kind} {self.id}"


def tool_digest(name: str, input_: Any, output: str | None) -> str:
    """Return the digest that identifies a finished tool call by its name, input and output."""
    return canonical.digest([name, input_, output or ""])


class HistoryFold:
    """Fold events into the fact `history`; the last reading of the stored history counts."""

    def __init__(self) -> None:
        self._begin_thread()

    def _begin_thread(self) -> None:
        """Forget the thread that the session has left. The fact is about its last thread."""
        self._live: list[_Item] = []
        self._open: set[str] = set()
        self._stored: list[HistoryItem] = []
        self._read: HistoryRead | None = None
        self._session: SessionBegan | None = None

    def feed(self, event: Event) -> None:
        match event:
            case ThreadLeft():
                self._begin_thread()
            case SessionBegan():
                self._session = event
            case PromptSent(text=text):
                self._live.append(_Item(kind="prompt", id=None, digest=canonical.digest(text)))
            case TextSaid(item=item, text=text):
                self._live.append(_Item(kind="message", id=item, digest=canonical.digest(text)))
            case ToolBegan(call=call):
                self._open.add(call)
            case ToolEnded(call=call, name=name, input=input_, output=output):
                self._open.discard(call)
                self._live.append(_Item(kind="tool", id=call, digest=tool_digest(name, input_, output)))
            case HistoryRead(items=items):
                if self._read is None or self._read.is_last:
                    self._stored = []
                self._stored += items
                self._read = event
            case _:
                pass

    def facts(self, persistence: Fact) -> dict[str, Fact]:
        """Return the fact `history`, and `historyDifferences` if there are any."""
        read = self._read
        if self._session is None:
            return {"history": _fact(Completeness.UNKNOWN, Authority.UNKNOWN, "there was no thread")}
        if read is None:
            return {"history": self._unread(persistence)}
        refs = (f"frames.jsonl:{read.frame}",)
        differences = list(self._differences()) if read.is_last else ["the last page was not read"]
        if not differences:
            is_compared = self._is_compared()
            state = Completeness.HYDRATED_VERIFIED if is_compared else Completeness.HYDRATED
            authority = Authority.VERIFIED if is_compared else Authority.OBSERVED
            how = "compared by content with the live events" if is_compared else "too little content to compare"
            return {"history": _fact(state, authority, f"{read.source}, {how}", refs)}
        is_short = not read.is_last or self._only_ends_early()
        state = Completeness.TRUNCATED if is_short else Completeness.HYDRATED_DIVERGENT
        listed = differences[:MOST_DIFFERENCES]
        if len(differences) > len(listed):
            listed.append(f"and {len(differences) - len(listed)} more")
        source = f"{read.source}, compared by content with the live events"
        return {
            "history": _fact(state, Authority.VERIFIED, source, refs),
            "historyDifferences": Fact(value=listed, authority=Authority.VERIFIED, source=source, refs=refs),
        }

    def _unread(self, persistence: Fact) -> Fact:
        match persistence.value:
            case "ephemeral":
                source = "the thread is ephemeral, so the agent does not store it"
                return _fact(Completeness.LIVE_ONLY, persistence.authority, source)
            case "persistent":
                source = "the thread is persistent, and was not read back"
                return _fact(Completeness.EXPLICIT_HYDRATION_REQUIRED, persistence.authority, source)
            case _:
                return _fact(
                    Completeness.UNKNOWN, Authority.UNKNOWN, "it is not reported whether the agent stores the thread"
                )

    # ── comparing ──

    def _differences(self) -> Iterator[str]:
        for kind in ("prompt", "message", "tool"):
            live, stored = self._items(kind)
            missing, surplus, altered = _compare(live, stored)
            for item in altered:
                yield f"{item} is stored with other content"
            for item in missing:
                yield f"{item} was received and is not stored"
            # A resumed thread contains items from before the session, and a call that was cut off has no live end.
            if not self._began_before and not (kind == "tool" and self._open):
                for item in surplus:
                    yield f"{item} is stored and was not received"

    def _is_compared(self) -> bool:
        return any(item.digest is not None for item in map(_stored_item, self._stored) if item is not None)

    def _only_ends_early(self) -> bool:
        """Return whether the stored history only lacks items at its end."""
        for kind in ("prompt", "message", "tool"):
            live, stored = self._items(kind)
            missing, surplus, altered = _compare(live, stored)
            if altered or (surplus and not self._began_before) or missing != live[len(live) - len(missing) :]:
                return False
        return True

    def _items(self, kind: str) -> tuple[list[_Item], list[_Item]]:
        """Return the live and the stored items of one kind."""
        stored = [item for each in self._stored if each.kind == kind and (item := _stored_item(each)) is not None]
        return [item for item in self._live if item.kind == kind], stored

    @property
    def _began_before(self) -> bool:
        return self._session is not None and self._session.is_resumed


def _stored_item(item: HistoryItem) -> _Item | None:
    match item.kind:
        case "prompt" | "message":
            digest = None if item.text is None else canonical.digest(item.text)
            return _Item(kind=item.kind, id=item.id, digest=digest)
        case "tool":
            return _Item(kind=item.kind, id=item.id, digest=item.digest)
        case _:
            return None


def _compare(live: Sequence[_Item], stored: Sequence[_Item]) -> tuple[list[_Item], list[_Item], list[_Item]]:
    """Return the items that are missing from the stored history, surplus in it, and altered in it.

    Items are matched by id, else by content; a stored item without content matches any live item that is left.

    >>> one, other = _Item(kind="message", id="a", digest="x"), _Item(kind="message", id="a", digest="y")
    >>> [len(part) for part in _compare([one], [other])], [len(part) for part in _compare([one], [])]
    ([0, 0, 1], [1, 0, 0])
    """
    ids = {item.id for item in live if item.id is not None}
    by_id: dict[str | None, _Item] = {}
    others = []
    for item in stored:
        if item.id in ids and item.id not in by_id:
            by_id[item.id] = item
        else:
            others.append(item)
    altered = [item for item in live if _differ(item, by_id.get(item.id))]
    unmatched = [item for item in live if item.id not in by_id]
    left = Counter(item.digest for item in others)
    missing = []
    for item in unmatched:
        # A stored item without content matches an item without an equal.
        digest = item.digest if left[item.digest] else None
        if left[digest]:
            left[digest] -= 1
        else:
            missing.append(item)
    surplus = []
    for item in reversed(others):
        if left[item.digest]:
            left[item.digest] -= 1
            surplus.append(item)
    return missing, surplus[::-1], altered


def _differ(live: _Item, stored: _Item | None) -> bool:
    return stored is not None and None not in (live.digest, stored.digest) and live.digest != stored.digest


def _fact(state: Completeness, authority: Authority, source: str, refs: tuple[str, ...] = ()) -> Fact:
    return Fact(value=state.value, authority=authority, source=source, refs=refs)
