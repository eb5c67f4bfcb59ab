"""Derives trace, transcript, metrics, outcome, claim and facts from recorded rows, live or from disk."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from proctor.context.context_fold import CONTEXT_FACT, ContextFactFold
from proctor.event.claim import Claim, ClaimFold
from proctor.event.facts import FactsFold
from proctor.event.metrics import Metrics, MetricsFold
from proctor.event.model import Event
from proctor.event.outcome import Ending, OutcomeFold
from proctor.event.row import CommitStatus, Row
from proctor.event.trace import TraceFold
from proctor.event.transcript import TranscriptFold
from proctor.fact import Fact
from proctor.ids import AttemptId, RunId, RuntimeId
from proctor.runtime.base import Normalizer, sees_tool_calls

RowSink = Callable[[Iterable[Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedResult:
    """The results derived from a whole record."""

    ending: Ending
    claim: Claim
    metrics: Metrics
    facts: dict[str, Fact]
    commit: CommitStatus | None
    """What is known of the commits to a context engine. None if none took part in a turn."""
    degraded: str | None
    """Why the context engine did not apply to a turn, or not in full. None if it did, or without an engine."""


class Derivation:
    """Folds recorded rows, fed in order, and passes the rows of the trace and the transcript to their sinks."""

    def __init__(
        self,
        normalizer: Normalizer,
        *,
        attempt: AttemptId,
        runtime_id: RuntimeId,
        trace: RowSink,
        transcript: RowSink,
        run_id: RunId | None = None,
        owns_compaction: bool = False,
    ) -> None:
        """`run_id` is needed to know the commits of this attempt's turns from those of earlier sittings.

        `owns_compaction` says whether a context engine owns the compaction of the session.
        """
        self._normalizer = normalizer
        self._trace_sink = trace
        self._transcript_sink = transcript
        self._trace = TraceFold(attempt)
        self._transcript = TranscriptFold(runtime_id, owns_compaction=owns_compaction)
        self._outcome = OutcomeFold()
        self._claim = ClaimFold()
        self._facts = FactsFold()
        self._context = ContextFactFold(run_id=run_id, attempt_id=attempt)
        self.metrics = MetricsFold()

    @property
    def ending(self) -> Ending:
        """How the last turn ended, as far as the rows say."""
        return self._outcome.ending

    def feed(self, rows: Iterable[Row]) -> list[Event]:
        """Fold rows and return their events."""
        events: list[Event] = []
        for row in rows:
            self.metrics.row(row)
            events += self._normalizer.feed(row)
        calls, lines = [], []
        for event in events:
            self.metrics.feed(event)
            self._outcome.feed(event)
            self._claim.feed(event)
            self._facts.feed(event)
            self._context.feed(event)
            if (call := self._trace.feed(event)) is not None:
                calls.append(call)
            if (line := self._transcript.feed(event)) is not None:
                lines.append(line)
        if calls:
            self._trace_sink(calls)
        if lines:
            self._transcript_sink(lines)
        return events

    def finish(self) -> DerivedResult:
        """End the fold: write what is still open as open, and return the results."""
        self._trace_sink(self._trace.finish())
        metrics = self.metrics.finish(sees_tool_calls=sees_tool_calls(self._normalizer))
        facts = self._facts.finish(metrics.usage)
        if (context := self._context.fact()) is not None:
            facts[CONTEXT_FACT] = context
        derived = DerivedResult(
            ending=self.ending,
            claim=self._claim.claim,
            metrics=metrics,
            facts=facts,
            commit=self._context.commit,
            degraded=self._context.degraded,
        )
        self._transcript_sink(self._transcript.finish(derived.ending, summary=_summary(derived), facts=derived.facts))
        return derived


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _summary(derived: DerivedResult) -> str:
    metrics = derived.metrics
    tokens = "unknown" if metrics.total_tokens is None else str(metrics.total_tokens)
    calls = "unknown tool calls"
    if metrics.tool_calls is not None:
        calls = f"{_number(metrics.tool_calls, 'tool call')} ({metrics.tool_failures} failed)"
    return (
        f"{derived.ending.outcome}: {_number(metrics.turns, 'turn')}, {calls}, {tokens} tokens, "
        f"{metrics.unrecognized} unrecognized frames"
    )
