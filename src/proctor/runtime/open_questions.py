"""The open questions of an agent that need a callback. Each is answered once, recorded first, or withdrawn."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

import anyio

from proctor.clock import Clock
from proctor.event.row import CALLBACK_FAILED, CALLBACK_GIVEN_UP, QuestionAnswered, StepTaken, SupervisorRow
from proctor.protocol.jsonrpc import RequestId
from proctor.runtime import callbacks
from proctor.runtime.base import Decision, Question, SessionRequest, Tap

RecordRow = Callable[[SupervisorRow], None]


class NativeQuestion(Protocol):
    """A question in the terms of its runtime."""

    @property
    def request(self) -> RequestId:
        """The id of the agent's request."""

    @property
    def method(self) -> str: ...

    @property
    def call(self) -> str | None:
        """The id of the tool call that the question is about, if it is about one."""


class NativeAnswer(Protocol):
    """The answer to a question, in the terms of its runtime."""

    @property
    def decision(self) -> str:
        """The decision as it is recorded."""


Q = TypeVar("Q", bound=NativeQuestion)
A = TypeVar("A", bound=NativeAnswer)
Answerer = Callable[[Q, RecordRow], Awaitable[tuple[A, str]]]
"""Returns the answer to a question, and its source as it is recorded (`callback`, `tool`, `deadline`, `error`)."""


@dataclass(slots=True)
class _OpenQuestion(Generic[Q, A]):
    question: Q
    answerer: Answerer[Q, A]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class OpenQuestions(Generic[Q, A]):
    """The open questions of one session."""

    def __init__(self, tap: Tap, *, clock: Clock) -> None:
        self._tap = tap
        self._clock = clock
        self._open: dict[RequestId, _OpenQuestion[Q, A]] = {}
        self._busy_until_s = float("-inf")
        self.withdrawn: set[str] = set()
        """The tool calls whose question was withdrawn without an answer."""

    @property
    def busy_until_s(self) -> float:
        """Steady time until which the agent last waited for an answer. The current time while a question is open."""
        return self._clock.steady_s() if self._open else self._busy_until_s

    @property
    def questions(self) -> list[Q]:
        return [each.question for each in self._open.values()]

    def enter(self, question: Q, answerer: Answerer[Q, A]) -> None:
        """Open a question. An open question with the same request id is withdrawn."""
        self.withdraw([question.request])
        self.withdrawn.discard(question.call or "")
        self._open[question.request] = _OpenQuestion(question, answerer)

    async def consider(self, question: Q, *, request: SessionRequest, record_row: RecordRow) -> A | None:
        """Run the question's answerer, and record and return the answer. None if the question was withdrawn.

        `record_row` records the failure of a callback. It must choose the record itself, because a callback may
        outlive the session.
        """
        opened = self._open.get(question.request)
        if opened is None or opened.question is not question:
            return None
        with opened.scope:
            with request.pause_clocks():
                answer, by = await opened.answerer(question, record_row)
            # The question may have been withdrawn after the answerer's last await.
            if self._close(question.request) is opened:
                self.record(question, answer.decision, by=by)
                return answer
        return None

    def withdraw(self, request_ids: Iterable[RequestId]) -> None:
        """Close questions that the agent no longer waits for, and record that they have no answer."""
        for request_id in request_ids:
            if (opened := self._close(request_id)) is not None:
                self.record(opened.question, "none", by="cancelled")
                self.withdrawn.add(opened.question.call or "")
                opened.scope.cancel()

    def withdraw_all(self) -> None:
        """Withdraw every open question."""
        self.withdraw(list(self._open))

    def record(self, question: Q, decision: str, *, by: str) -> None:
        """Record the answer to a question, and its source."""
        self._tap.record(
            QuestionAnswered(request=str(question.request), method=question.method, decision=decision, by=by)
        )

    def _close(self, request_id: RequestId) -> _OpenQuestion[Q, A] | None:
        self._busy_until_s = self.busy_until_s
        return self._open.pop(request_id, None)


async def decide(request: SessionRequest, question: Question, *, record_row: RecordRow) -> tuple[Decision, str]:
    """Ask the session's `decide` callback, and return its decision and the source of it.

    A callback that fails or misses its deadline means `deny`.
    """
    assert request.decide is not None, "the session has no `decide` callback"
    try:
        decision = await callbacks.call(
            partial(request.decide, question),
            read=Decision,
            deadline_s=request.decide_deadline_s,
            on_given_up=lambda: record_row(given_up(question.request)),
        )
    except callbacks.CallbackError as error:
        record_row(failed(question.request, error))
        return Decision.DENY, "error"
    return (Decision.DENY, "deadline") if decision is None else (decision, "callback")


def failed(request_id: RequestId, error: callbacks.CallbackError) -> StepTaken:
    """Return the row that records that a callback raised, or returned what it may not."""
    return StepTaken(step=CALLBACK_FAILED, detail={"request": str(request_id), "what": str(error)})


def given_up(request_id: RequestId) -> StepTaken:
    """Return the row that records that a callback ignored its cancellation and was abandoned."""
    what = "the callback did not end when it was cancelled"
    return StepTaken(step=CALLBACK_GIVEN_UP, detail={"request": str(request_id), "what": what})
