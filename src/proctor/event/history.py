"""Whether the history that an agent keeps is what was heard of it live: policy first, then content. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from proctor import canonical
from proctor.event.kept import KeptItem
from proctor.event.model import Event, HistoryRead, PromptSent, SessionBegan, TextSaid, ToolBegan, ToolEnded
from proctor.fact import Authority, Fact

MOST_DIFFERENCES = 20


class Completeness(StrEnum):
    """How much of a thread the agent itself can give back. No warning's text says anything of it."""

    LIVE_ONLY = "live-only"  # nothing is kept: what was heard is all there is
    EXPLICIT_HYDRATION_REQUIRED = "explicit-hydration-required"  # it is kept, and was not read
    HYDRATED = "hydrated"  # it was read, and holds too little to compare
    HYDRATED_VERIFIED = "hydrated-verified"  # it was read, and is what was heard
    HYDRATED_DIVERGENT = "hydrated-divergent"  # it was read, and says something else
    TRUNCATED = "truncated"  # it was read, and ends before what was heard does
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """Something that both sides tell. No digest where it is told in words that cannot be compared."""

    kind: str
    id: str | None
    digest: str | None

    def __str__(self) -> str:
        return self.kind if self.id is None else f"{self.kind} {self.id}"


def tool_digest(name: str, given: Any, output: str | None) -> str:
    """What identifies a finished call by content: what it was given, and what came of it."""
    return canonical.digest([name, given, output or ""])


class HistoryFold:
    """Feed it events; what was read last counts."""

    def __init__(self) -> None:
        self._heard: list[_Item] = []
        self._open: set[str] = set()
        self._kept: list[KeptItem] = []
        self._read: HistoryRead | None = None
        self._session: SessionBegan | None = None

    def feed(self, event: Event) -> None:
        match event:
            case SessionBegan():
                self._session = event
            case PromptSent(text=text):
                self._heard.append(_Item(kind="prompt", id=None, digest=canonical.digest(text)))
            case TextSaid(item=item, text=text):
                self._heard.append(_Item(kind="message", id=item, digest=canonical.digest(text)))
            case ToolBegan(call=call):
                self._open.add(call)
            case ToolEnded(call=call, name=name, input=given, output=output):
                self._open.discard(call)
                self._heard.append(_Item(kind="tool", id=call, digest=tool_digest(name, given, output)))
            case HistoryRead(items=items):
                if self._read is None or self._read.is_last:
                    self._kept = []
                self._kept += items
                self._read = event
            case _:
                pass

    def facts(self, persistence: Fact) -> dict[str, Fact]:
        """`history`, and `historyDifferences` where there are any."""
        read = self._read
        if self._session is None:
            return {"history": _said(Completeness.UNKNOWN, Authority.UNKNOWN, "there was no thread")}
        if read is None:
            return {"history": self._unread(persistence)}
        refs = (f"frames.jsonl:{read.frame}",)
        differences = list(self._differences()) if read.is_last else ["the last page of it was not read"]
        if not differences:
            is_compared = self._is_compared()
            state = Completeness.HYDRATED_VERIFIED if is_compared else Completeness.HYDRATED
            authority = Authority.VERIFIED if is_compared else Authority.OBSERVED
            how = "compared by content with what was heard" if is_compared else "too little in it to compare"
            return {"history": _said(state, authority, f"{read.source}, {how}", refs)}
        is_short = not read.is_last or self._is_beginning()
        state = Completeness.TRUNCATED if is_short else Completeness.HYDRATED_DIVERGENT
        told = differences[:MOST_DIFFERENCES]
        if len(differences) > len(told):
            told.append(f"and {len(differences) - len(told)} more")
        source = f"{read.source}, compared by content with what was heard"
        return {
            "history": _said(state, Authority.VERIFIED, source, refs),
            "historyDifferences": Fact(value=told, authority=Authority.VERIFIED, source=source, refs=refs),
        }

    def _unread(self, persistence: Fact) -> Fact:
        match persistence.value:
            case "ephemeral":
                source = "the thread is ephemeral, so nothing of it is kept"
                return _said(Completeness.LIVE_ONLY, persistence.authority, source)
            case "persistent":
                source = "the thread is persistent, and was not read back"
                return _said(Completeness.EXPLICIT_HYDRATION_REQUIRED, persistence.authority, source)
            case _:
                return _said(Completeness.UNKNOWN, Authority.UNKNOWN, "nobody said whether the thread is kept")

    # ── comparing ──

    def _differences(self) -> Iterator[str]:
        for kind in ("prompt", "message", "tool"):
            heard, kept = self._of(kind)
            missing, strange, altered = _compare(heard, kept)
            for item in altered:
                yield f"{item} is kept with another content"
            for item in missing:
                yield f"{item} was heard and is not kept"
            # What was before a session took the thread up was not heard in it, and a call that was cut short was not
            # heard to its end.
            if not self._began_before and not (kind == "tool" and self._open):
                for item in strange:
                    yield f"{item} is kept and was not heard"

    def _is_compared(self) -> bool:
        return any(item.digest is not None for item in map(_kept, self._kept) if item is not None)

    def _is_beginning(self) -> bool:
        """Whether what is kept only ends too early."""
        for kind in ("prompt", "message", "tool"):
            heard, kept = self._of(kind)
            missing, strange, altered = _compare(heard, kept)
            if altered or (strange and not self._began_before) or missing != heard[len(heard) - len(missing) :]:
                return False
        return True

    def _of(self, kind: str) -> tuple[list[_Item], list[_Item]]:
        kept = [item for each in self._kept if each.kind == kind and (item := _kept(each)) is not None]
        return [item for item in self._heard if item.kind == kind], kept

    @property
    def _began_before(self) -> bool:
        return self._session is not None and self._session.is_resumed


def _kept(item: KeptItem) -> _Item | None:
    match item.kind:
        case "prompt" | "message":
            digest = None if item.text is None else canonical.digest(item.text)
            return _Item(kind=item.kind, id=item.id, digest=digest)
        case "tool":
            return _Item(kind=item.kind, id=item.id, digest=item.digest)
        case _:
            return None


def _compare(heard: Sequence[_Item], kept: Sequence[_Item]) -> tuple[list[_Item], list[_Item], list[_Item]]:
    """What is missing, strange and altered. Items are the same by their id, else by their content, else by number.

    >>> said, other = _Item(kind="message", id="a", digest="x"), _Item(kind="message", id="a", digest="y")
    >>> [len(part) for part in _compare([said], [other])], [len(part) for part in _compare([said], [])]
    ([0, 0, 1], [1, 0, 0])
    """
    ids = {item.id for item in heard if item.id is not None}
    by_id: dict[str | None, _Item] = {}
    others = []
    for item in kept:
        if item.id in ids and item.id not in by_id:
            by_id[item.id] = item
        else:
            others.append(item)
    altered = [item for item in heard if _differ(item, by_id.get(item.id))]
    alone = [item for item in heard if item.id not in by_id]
    left = Counter(item.digest for item in others)
    missing = []
    for item in alone:
        # One without content stands for whatever has no equal.
        found = item.digest if left[item.digest] else None
        if left[found]:
            left[found] -= 1
        else:
            missing.append(item)
    strange = []
    for item in reversed(others):
        if left[item.digest]:
            left[item.digest] -= 1
            strange.append(item)
    return missing, strange[::-1], altered


def _differ(heard: _Item, kept: _Item | None) -> bool:
    return kept is not None and None not in (heard.digest, kept.digest) and heard.digest != kept.digest


def _said(state: Completeness, authority: Authority, source: str, refs: tuple[str, ...] = ()) -> Fact:
    return Fact(value=state.value, authority=authority, source=source, refs=refs)
