"""Shorten a context: cover the oldest turns by leaves, and the oldest summaries by condensations, until it is short
enough. Pure, apart from reading entries."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from proctor.context.engines.lossless.extract import summarize_texts, summarize_turns
from proctor.context.engines.lossless.model_summary import request_for_texts, request_for_turns
from proctor.context.engines.lossless.stored_summary import StoredSegment, Summary, summary_id
from proctor.event.message import Message
from proctor.ids import EntryId

FAN_OUT: Final = 8
"""So many summaries of one level are covered by a condensation."""

SUMMARY_SHARE: Final = 1 / 3
"""The share of the target that summaries may fill. Above it, some are condensed."""

ReadEntries = Callable[[StoredSegment], tuple[Message, ...]]
"""Returns the entries of a segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """How short the context must become, in bytes.

    `target` is what is aimed for; only above `limit` are summaries condensed that there is room for. `budget` is what
    fits. `summary` is the size of a summary, `leaf` that of the entries which a leaf covers, and `request` that of the
    largest request to a model.
    """

    target: int
    limit: int
    budget: int
    summary: int
    leaf: int
    request: int
    focus: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """One summary that is about to be made. `prompt` returns the request to a model, `most_bytes` limits its answer."""

    prompt: Callable[[], str]
    most_bytes: int


class Shortening:
    """One compaction, in memory until it is stored.

    The newest turn is never covered if it fits; of one that does not, the last segment is not. Every step makes the
    context smaller, so there is an end.
    """

    def __init__(
        self, *, summaries: Sequence[Summary], uncovered: Sequence[StoredSegment], goal: Goal, read: ReadEntries
    ) -> None:
        self.made: list[Summary] = []
        """The new summaries, those that others cover first."""
        self._summaries = list(summaries)
        self._segments = uncovered
        self._at = 0
        self._newest = _newest_turn(uncovered, budget_bytes=goal.budget)
        self._uncovered_bytes = sum(each.size_bytes for each in uncovered)
        self._goal = goal
        self._read = read

    @property
    def size_bytes(self) -> int:
        """The size of the context: summaries and uncovered entries."""
        return self._summary_bytes + self._uncovered_bytes

    @property
    def _summary_bytes(self) -> int:
        return sum(each.size_bytes for each in self._summaries)

    def steps(self) -> Generator[SummaryRequest, str | None, None]:
        """Make summaries until the context is short enough, or nothing makes it shorter.

        Yields before each. What is sent is a summary that a model made; None for one without a model.
        """
        while self.size_bytes > self._goal.target:
            if (run := self._oldest_turns()) and (yield from self._cover_turns(run)):
                while self._summary_bytes > self._goal.target * SUMMARY_SHARE:
                    if not (yield from self._condense(self._oldest_siblings())):
                        break
            elif self.size_bytes <= self._goal.limit or not (yield from self._condense(self._summaries[:FAN_OUT])):
                return

    def _oldest_turns(self) -> list[StoredSegment]:
        """Return the oldest segments that one leaf covers: whole turns, or parts of a turn that is too long."""
        most = self._goal.leaf
        run: list[StoredSegment] = []
        size = 0
        for at in range(self._at, self._newest):
            each = self._segments[at]
            if run and (size >= most or (each.is_start and size + each.size_bytes > most)):
                break
            run.append(each)
            size += each.size_bytes
        return run

    def _oldest_siblings(self) -> list[Summary]:
        """Return the oldest summaries of the lowest level with enough neighbours to condense them."""
        levels = sorted({each.level for each in self._summaries})
        for count in (FAN_OUT, 2):
            for level in levels:
                for _, group in groupby(self._summaries, key=lambda each: each.level == level):
                    neighbours = list(group)
                    if neighbours[0].level == level and len(neighbours) >= count:
                        return neighbours[:FAN_OUT]
        return self._summaries[:2]

    def _cover_turns(self, run: Sequence[StoredSegment]) -> Generator[SummaryRequest, str | None, bool]:
        """Make a leaf. Returns False if it saves nothing."""
        turns = [self._read(each) for each in run]
        entries = [message for turn in turns for message in turn]
        size = sum(each.size_bytes for each in run)
        goal, room = self._goal, min(self._goal.summary, size // 3)

        def prompt() -> str:
            return request_for_turns(turns, target_bytes=room, most_bytes=goal.request, focus=goal.focus)

        answer = yield SummaryRequest(prompt=prompt, most_bytes=room)
        leaf = _summary(
            level=1,
            first=run[0].position,
            past=run[-1].past,
            body=answer or summarize_turns(turns, most_bytes=room, focus=goal.focus),
            is_by_model=bool(answer),
            at_ms=entries[-1].at_ms,
            is_tainted=any(message.is_tainted for message in entries),
            sources=tuple(message.id for message in entries),
        )
        if leaf.size_bytes >= size:
            return False
        self.made.append(leaf)
        self._summaries.append(leaf)
        self._at += len(run)
        self._uncovered_bytes -= size
        return True

    def _condense(self, run: Sequence[Summary]) -> Generator[SummaryRequest, str | None, bool]:
        """Make a condensation. Returns False if it saves nothing."""
        if len(run) < 2:
            return False
        texts = [each.text.partition("\n")[2] for each in run]
        size = sum(each.size_bytes for each in run)
        goal, room = self._goal, min(self._goal.summary, size // 2)

        def prompt() -> str:
            return request_for_texts(texts, target_bytes=room, most_bytes=goal.request, focus=goal.focus)

        answer = yield SummaryRequest(prompt=prompt, most_bytes=room)
        condensation = _summary(
            level=max(each.level for each in run) + 1,
            first=run[0].first,
            past=run[-1].past,
            body=answer or summarize_texts(texts, most_bytes=room, focus=goal.focus),
            is_by_model=bool(answer),
            at_ms=run[-1].at_ms,
            is_tainted=any(each.is_tainted for each in run),
            children=tuple(each.id for each in run),
        )
        if condensation.size_bytes >= size:
            return False
        self.made.append(condensation)
        at = self._summaries.index(run[0])
        self._summaries[at : at + len(run)] = [condensation]
        return True


def _newest_turn(segments: Sequence[StoredSegment], *, budget_bytes: int) -> int:
    """Return where the segments begin that must not be covered."""
    starts = [at for at, each in enumerate(segments) if each.is_start]
    newest = starts[-1] if starts else 0
    fits = sum(each.size_bytes for each in segments[newest:]) <= budget_bytes
    return newest if fits else max(0, len(segments) - 1)


def _summary(
    *,
    level: int,
    first: int,
    past: int,
    body: str,
    is_by_model: bool,
    at_ms: int,
    is_tainted: bool,
    sources: tuple[EntryId, ...] = (),
    children: tuple[EntryId, ...] = (),
) -> Summary:
    """Return a summary with an id made from what it covers and says, which is in its text, for the agent to use."""
    id_ = summary_id(body, level=level, covered=(*sources, *children))
    return Summary(
        id=id_,
        level=level,
        first=first,
        past=past,
        text=f"[{id_} of {past - first} earlier messages]\n{body}",
        at_ms=at_ms,
        is_tainted=is_tainted,
        is_by_model=is_by_model,
        sources=sources,
        children=children,
    )
