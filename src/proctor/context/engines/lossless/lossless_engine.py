"""The engine `lossless`: everything is kept, and what is older than the budget allows is covered by summaries."""

import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, TypeVar

import anyio
import anyio.to_thread

from proctor import canonical
from proctor.context.budget import TokenRatio, estimate_tokens, most_bytes
from proctor.context.check_assembled import MOST_BYTES
from proctor.context.engine import (
    AssembleResult,
    CommitResult,
    CompactResult,
    CompactStatus,
    Complete,
    EngineContext,
    EngineInfo,
    EngineSetup,
    ForgetReason,
    MaintainReason,
    TurnCommit,
)
from proctor.context.engines import check_options
from proctor.context.engines.lossless.lossless_store import LosslessStore
from proctor.context.engines.lossless.model_summary import read_answer
from proctor.context.engines.lossless.recall_tools import recall_tools
from proctor.context.engines.lossless.segments import split_history, split_turn
from proctor.context.engines.lossless.select_tail import Selection, select
from proctor.context.engines.lossless.shortening import Goal, Shortening, SummaryRequest
from proctor.context.history import History
from proctor.context.project import ContextProjection, ProjectionMode
from proctor.errors import InputError, MachineError
from proctor.event.message import Message
from proctor.ids import EntryId
from proctor.runtime.base import Tool

T = TypeVar("T")

log = logging.getLogger("proctor.context.lossless")

INFO: Final = EngineInfo(id="lossless", name="Lossless", version="1", owns_compaction=True, maintenance="background")

COMPACTED_SHARE: Final = 0.75
"""The share of the budget that is aimed for by a compaction."""

FULL_SHARE: Final = 0.9
"""The share of the budget above which maintenance compacts. The rest is room for the turns until it has run."""

SUMMARY_TOKENS: Final = 800
FEWEST_SUMMARY_TOKENS: Final = 50
MOST_SUMMARY_TOKENS: Final = 8000
LEAF_FACTOR: Final = 16
"""A leaf covers entries of up to so many times the size of a summary."""

SUMMARY_SHARE: Final = 32
LEAF_SHARE: Final = 4
"""Of a small budget, a summary fills at most one part of 32, and the entries of a leaf at most a quarter."""

MOST_CALLS: Final = 8
CALL_S: Final = 30.0
CALLS_S: Final = 60.0
"""How often a model is called in one compaction, and for how long once and in all. Then summaries need no model."""

_BATCH: Final = 256


def create(setup: EngineSetup) -> "LosslessEngine":
    """Create the engine for a session. Options: `summary_tokens`, the size of a summary; `citations` is ignored.

    Raises InputError for other options.
    """
    check_options(setup, known=("summary_tokens",))
    return LosslessEngine(
        LosslessStore(setup.folder, session=setup.session), summary_tokens=_summary_tokens(setup.options)
    )


def _summary_tokens(options: Mapping[str, Any]) -> int:
    tokens = options.get("summary_tokens", SUMMARY_TOKENS)
    is_number = isinstance(tokens, int) and not isinstance(tokens, bool)
    if not is_number or not FEWEST_SUMMARY_TOKENS <= tokens <= MOST_SUMMARY_TOKENS:
        what = f"{tokens!r} is not a number from {FEWEST_SUMMARY_TOKENS} to {MOST_SUMMARY_TOKENS}"
        raise InputError("engine.options", what, key="context.options.summary_tokens")
    return int(tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Covered:
    """The summaries as the model is given them, with the position after the last entry of each."""

    messages: tuple[Message, ...]
    pasts: tuple[int, ...]
    generation: tuple[int, int]


@dataclass(slots=True, kw_only=True)
class _ModelUse:
    """How often a model was called in a compaction, and the failure after which it was not called again."""

    calls: int = 0
    summaries: int = 0
    failure: str | None = None


class LosslessEngine:
    """The context engine. Its history is always a beginning of the session's; what was said since is in the tail.

    A damaged database is set aside, and rebuilt from the history of the next call that has it.
    """

    def __init__(self, store: LosslessStore, *, summary_tokens: int) -> None:
        self._store = store
        self._summary_tokens = summary_tokens
        self._covered: _Covered | None = None
        self._compaction = anyio.Lock()
        self._loading = threading.Lock()

    @property
    def info(self) -> EngineInfo:
        return INFO

    def tools(self) -> Sequence[Tool]:
        return recall_tools(self._store)

    # ── what was said ──

    def bootstrap(self, ctx: EngineContext, history: History) -> None:
        """Take in the entries that are not known. Reads only these if they follow what is known.

        A long history is taken in by parts, so that a call that is cut off has not been for nothing.
        """
        self._repairing(lambda: self._take_in(ctx, history))

    def _take_in(self, ctx: EngineContext, history: History) -> None:
        while not ctx.cancel.is_set:
            known, last = self._store.count(), self._store.last_entry()
            if last is not None and (history.position(last) != known - 1 or self._has_other_summaries(history)):
                self._reconcile(history)
            elif known < len(history) and not self._append(ctx, history, known=known):
                continue
            self._store.is_incomplete = self._store.is_incomplete and ctx.cancel.is_set
            break
        self._load_covered()

    def _append(self, ctx: EngineContext, history: History, *, known: int) -> bool:
        """Take in the entries after those that are known. Returns False if others were taken in meanwhile."""
        new = (message for at in range(known, len(history), _BATCH) for message in history[at : at + _BATCH])
        segments = split_history(new, find_result=history.result_of)
        while not ctx.cancel.is_set and (some := tuple(islice(segments, _BATCH))):
            if not self._store.append(some, after=known):
                return False
            known += sum(len(each.messages) for each in some)
        return True

    def _repairing(self, work: Callable[[], T]) -> T:
        """Do the work, once more on a new database if the first is damaged, which is then set aside."""
        try:
            return work()
        except MachineError as error:
            if not self._store.set_aside(error):
                raise
            return work()

    @asynccontextmanager
    async def _setting_aside(self) -> AsyncIterator[None]:
        """Set the database aside if it is damaged. The error is raised, because there is no history to repair it."""
        try:
            yield
        except MachineError as error:
            await anyio.to_thread.run_sync(self._store.set_aside, error)
            raise

    def find_damage(self) -> str | None:
        """Return what is damaged in the database; None if nothing is. Raises MachineError if it cannot be read."""
        return self._store.find_damage()

    def _reconcile(self, history: History) -> None:
        """Put what is known into the order of the history, with what was missing between it.

        Summaries of entries after the first that was missing are removed, and are rebuilt by maintenance. Entries
        that the history does not have come last.
        """
        new = self._store.without_known(tuple(history))
        runs = _runs([(at, each) for each in new if (at := history.position(each.id)) is not None])
        for run in runs:
            self._store.append(split_history(run, find_result=history.result_of))
        places = []
        for each in self._store.segments():
            found = history.position(self._store.messages(each.n)[0].id)
            places.append((len(history) + each.position if found is None else found, each))
        positions, at, unchanged = [], 0, None
        for _, each in sorted(places, key=lambda place: place[0]):
            if unchanged is None and at != each.position:
                unchanged = at
            positions.append((each.n, at))
            at += each.entries
        self._store.reorder(positions, unchanged=at if unchanged is None else unchanged)

    def commit_turn(self, _ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        """Take in a completed turn. One transaction, on disk on return.

        Raises EngineError for a known key with other messages.
        """
        return self._repairing(lambda: self._store.commit(turn.key, turn.messages, split=split_turn))

    # ── what the model should know ──

    def assemble(self, ctx: EngineContext, history: History, _prompt: Message) -> AssembleResult:
        """Return the summaries, then the entries that they do not cover.

        If maintenance has not run yet, or the budget has become smaller, the oldest of it may not fit. It is then left
        out, and logged.
        """
        selected = self._repairing(lambda: self._select_whole(ctx, history))
        if selected.dropped:
            log.info("assemble left entries out", extra={"engineId": INFO.id, "dropped": selected.dropped})
        epoch = canonical.digest([message.id for message in selected.summaries])
        return AssembleResult(
            messages=(*selected.summaries, *selected.entries),
            estimated_tokens=estimate_tokens(selected.size_bytes, ratio=ctx.ratio).tokens,
            projection=ContextProjection(mode=ProjectionMode.THREAD_BOOTSTRAP, epoch=epoch),
        )

    def _select_whole(self, ctx: EngineContext, history: History) -> Selection:
        if self._store.is_incomplete or self._has_other_order(history):
            self._take_in(ctx, history)
        return self.select(ctx, history)

    def _has_other_order(self, history: History) -> bool:
        """Return whether what is known is no beginning of the history, such as after a turn that was blocked."""
        last = self._store.last_entry()
        at = None if last is None else history.position(last)
        return at is not None and (at != self._store.count() - 1 or self._has_other_summaries(history))

    def _has_other_summaries(self, history: History) -> bool:
        covered = self._load_covered()
        return _valid_count(covered, history) < len(covered.messages)

    def select(self, ctx: EngineContext, history: History) -> Selection:
        """Return what fits into the budget."""
        covered = self._load_covered()
        count = _valid_count(covered, history)
        return select(
            covered.messages[:count],
            history,
            begin=covered.pasts[count - 1] if count else 0,
            room_bytes=min(MOST_BYTES, most_bytes(ctx.budget.history, ratio=ctx.ratio)),
        )

    def _load_covered(self) -> _Covered:
        """Return the summaries with all entries that they cover. They are kept, because they can be many."""
        with self._loading:
            generation = self._store.generation
            if self._covered is None or self._covered.generation != generation:
                summaries = self._store.summaries()
                self._covered = _Covered(
                    messages=tuple(
                        each.message(self._store.sources(first=each.first, past=each.past)) for each in summaries
                    ),
                    pasts=tuple(each.past for each in summaries),
                    generation=generation,
                )
            return self._covered

    # ── compaction ──

    async def maintain(self, ctx: EngineContext, reason: MaintainReason) -> None:
        """Compact if the context is larger than 0.9 of the budget; else do nothing."""
        if reason == "compaction":
            return
        async with self._setting_aside():
            size = await anyio.to_thread.run_sync(self._size_bytes)
            if size > most_bytes(int(ctx.budget.history * FULL_SHARE), ratio=ctx.ratio):
                await self._compact(ctx, force=False, target="threshold", focus=None)

    async def compact(
        self, ctx: EngineContext, *, force: bool, target: Literal["budget", "threshold"], focus: str | None
    ) -> CompactResult:
        """Cover the oldest turns by summaries until the context fills 0.75 of the budget (`threshold`) or all of it.

        With `force`, a context that is short enough is shortened to the half of it. The entries stay as they are.
        Raises MachineError if the database is damaged, which is then set aside.
        """
        async with self._setting_aside():
            return await self._compact(ctx, force=force, target=target, focus=focus)

    async def _compact(self, ctx: EngineContext, *, force: bool, target: str, focus: str | None) -> CompactResult:
        async with self._compaction:
            before = await anyio.to_thread.run_sync(self._size_bytes)
            goal = self._goal(ctx, force=force, target=target, focus=focus, size_bytes=before)
            if before <= goal.target:
                return _result(CompactStatus.NOT_NEEDED, before, before, ctx.ratio)
            generation, shortening = await anyio.to_thread.run_sync(self._shortening, goal)
            use = _ModelUse()
            await self._run(shortening, ctx, use)
            if not _saves_tokens(shortening, before, ctx.ratio):
                shortening.made.clear()
            is_stored = await anyio.to_thread.run_sync(self._store_made, shortening, generation)
        return _compacted(shortening, before, ctx, use, is_stored=is_stored)

    def _goal(self, ctx: EngineContext, *, force: bool, target: str, focus: str | None, size_bytes: int) -> Goal:
        tokens, ratio = ctx.budget.history, ctx.ratio
        budget = most_bytes(tokens, ratio=ratio)
        wanted = budget if target == "budget" else most_bytes(int(tokens * COMPACTED_SHARE), ratio=ratio)
        is_forced = force and size_bytes <= wanted
        summary = min(most_bytes(self._summary_tokens, ratio=ratio), max(1, wanted // SUMMARY_SHARE))
        return Goal(
            target=size_bytes // 2 if is_forced else wanted,
            limit=size_bytes // 2 if is_forced else budget,
            budget=budget,
            summary=summary,
            leaf=min(summary * LEAF_FACTOR, wanted // LEAF_SHARE),
            request=most_bytes(tokens // 2, ratio=ratio),
            focus=focus,
        )

    def _size_bytes(self) -> int:
        summaries = self._store.summaries()
        begin = summaries[-1].past if summaries else 0
        return sum(each.size_bytes for each in summaries) + self._store.segment_bytes(first=begin)

    def _shortening(self, goal: Goal) -> tuple[tuple[int, int], Shortening]:
        generation = self._store.generation
        summaries = self._store.summaries()
        uncovered = self._store.segments(first=summaries[-1].past if summaries else 0)
        return generation, Shortening(
            summaries=summaries, uncovered=uncovered, goal=goal, read=lambda each: self._store.messages(each.n)
        )

    async def _run(self, shortening: Shortening, ctx: EngineContext, use: _ModelUse) -> None:
        """Make the summaries, with the model as long as it answers. Ends early if the call is cancelled."""
        steps = shortening.steps()
        until_s = anyio.current_time() + CALLS_S
        request = await anyio.to_thread.run_sync(_advance, steps, None)
        while request is not None and not ctx.cancel.is_set:
            left_s = until_s - anyio.current_time()
            if ctx.complete is None or use.failure is not None or use.calls == MOST_CALLS or left_s <= 0:
                await anyio.to_thread.run_sync(_finish, steps, ctx)
                return
            answer = await _ask(request, ctx.complete, use, deadline_s=min(CALL_S, left_s))
            request = await anyio.to_thread.run_sync(_advance, steps, answer)

    def _store_made(self, shortening: Shortening, generation: tuple[int, int]) -> bool:
        is_stored = self._store.add_summaries(shortening.made, generation=generation) if shortening.made else True
        self._load_covered()
        return is_stored

    # ── the end ──

    def forget(self, _ctx: EngineContext, _reason: ForgetReason) -> None:
        """Delete the database."""
        self._store.forget()

    def close(self) -> None:
        self._store.close()


# ── steps of a compaction ──


def _advance(steps: Generator[SummaryRequest, str | None, None], answer: str | None) -> SummaryRequest | None:
    """Return the next request. None if there is no more to do."""
    try:
        return steps.send(answer)
    except StopIteration:
        return None


def _finish(steps: Generator[SummaryRequest, str | None, None], ctx: EngineContext) -> None:
    """Make the summaries that are still missing without a model."""
    while not ctx.cancel.is_set and _advance(steps, None) is not None:
        pass


async def _ask(request: SummaryRequest, complete: Complete, use: _ModelUse, *, deadline_s: float) -> str | None:
    """Return the model's summary; None if it fails, for which the reason is noted."""
    use.calls += 1
    try:
        prompt = await anyio.to_thread.run_sync(request.prompt)
        with anyio.fail_after(deadline_s):
            answer = await complete(prompt)
        text = read_answer(answer, most_bytes=request.most_bytes)
    except Exception as error:  # of the caller's function; a summary without a model takes its place
        use.failure = f"{type(error).__name__}: {error}"
        log.info("summaries are made without the model", extra={"engineId": INFO.id, "reason": type(error).__name__})
        return None
    use.summaries += 1
    return text


def _compacted(
    shortening: Shortening, before: int, ctx: EngineContext, use: _ModelUse, *, is_stored: bool
) -> CompactResult:
    details: dict[str, Any] = {"summaries": len(shortening.made), "summariesByModel": use.summaries}
    if use.failure is not None:
        details["modelFailure"] = use.failure[:300]
    after = shortening.size_bytes
    if not is_stored:
        reason = "the history was changed meanwhile"
        return _result(CompactStatus.ABORTED, before, before, ctx.ratio, reason=reason, details=details)
    if ctx.cancel.is_set:
        reason = "the call was cancelled"
        return _result(CompactStatus.ABORTED, before, after, ctx.ratio, reason=reason, details=details)
    if not _saves_tokens(shortening, before, ctx.ratio):
        reason = "there is nothing before the newest turn that a summary would shorten"
        return _result(CompactStatus.NO_PROGRESS, before, before, ctx.ratio, reason=reason, details=details)
    return _result(CompactStatus.COMPACTED, before, after, ctx.ratio, details=details)


def _saves_tokens(shortening: Shortening, before: int, ratio: TokenRatio) -> bool:
    """Return whether the context has become shorter than so many bytes, by at least one token."""
    return estimate_tokens(shortening.size_bytes, ratio=ratio).tokens < estimate_tokens(before, ratio=ratio).tokens


def _result(
    status: CompactStatus,
    before: int,
    after: int,
    ratio: TokenRatio,
    *,
    reason: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> CompactResult:
    return CompactResult(
        status=status,
        tokens_before=estimate_tokens(before, ratio=ratio).tokens,
        tokens_after=estimate_tokens(after, ratio=ratio).tokens,
        reason=reason,
        details=details or {},
    )


# ── positions ──


def _valid_count(covered: _Covered, history: History) -> int:
    """Return how many of the summaries cover a beginning of this history. All, unless it has become another one."""
    count = len(covered.messages)
    while count and history.position(_last_source(covered.messages[count - 1])) != covered.pasts[count - 1] - 1:
        count -= 1
    return count


def _last_source(summary: Message) -> EntryId:
    sources: tuple[EntryId, ...] = summary.part.sources  # type: ignore[union-attr]
    return sources[-1]


def _runs(placed: Sequence[tuple[int, Message]]) -> list[list[Message]]:
    """Return the messages that follow each other in the history together."""
    runs: list[list[Message]] = []
    last: int | None = None
    for at, message in placed:
        if last is None or at != last + 1:
            runs.append([])
        runs[-1].append(message)
        last = at
    return runs
