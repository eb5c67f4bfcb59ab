"""The questions of an agent's that take thought: each answered once, on record first, or withdrawn."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

import anyio

from proctor.clock import Clock
from proctor.event.row import CALLBACK_FAILED, CALLBACK_GIVEN_UP, Answered, Seen, StepTaken
from proctor.protocol.jsonrpc import RequestId
from proctor.runtime import callbacks
from proctor.runtime.base import Decision, Question, SessionAsk, Tap

Tell = Callable[[Seen], None]


class Asked(Protocol):
    """A question, in its runtime's own words."""

    @property
    def request(self) -> RequestId: ...

    @property
    def method(self) -> str: ...

    @property
    def call(self) -> str | None:
        """What it is about, if it is about a call of a tool."""


class Answer(Protocol):
    """What is said to it, in its runtime's own words."""

    @property
    def decision(self) -> str: ...


Q = TypeVar("Q", bound=Asked)
A = TypeVar("A", bound=Answer)
Thought = Callable[[Q, Tell], Awaitable[tuple[A, str]]]
"""What comes of thinking: an answer, and whose it is."""


@dataclass(slots=True)
class _Open(Generic[Q, A]):
    asked: Q
    thought: Thought[Q, A]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Book(Generic[Q, A]):
    """The open questions of one session."""

    def __init__(self, tap: Tap, *, clock: Clock) -> None:
        self._tap = tap
        self._clock = clock
        self._open: dict[RequestId, _Open[Q, A]] = {}
        self._busy_until_s = float("-inf")
        self.withdrawn: set[str] = set()
        """Calls that were asked about, and for which no answer was given."""

    @property
    def busy_until_s(self) -> float:
        """Steady time until which the agent waited for us: now, while it does."""
        return self._clock.steady_s() if self._open else self._busy_until_s

    @property
    def questions(self) -> list[Q]:
        return [each.asked for each in self._open.values()]

    def enter(self, asked: Q, thought: Thought[Q, A]) -> None:
        self.withdraw([asked.request])
        self.withdrawn.discard(asked.call or "")
        self._open[asked.request] = _Open(asked, thought)

    async def consider(self, asked: Q, *, ask: SessionAsk, tell: Tell) -> A | None:
        """What comes of it, or None where the question was withdrawn meanwhile.

        A callback may outlive its session, so `tell` finds the record in which its trouble belongs.
        """
        opened = self._open.get(asked.request)
        if opened is None or opened.asked is not asked:
            return None
        with opened.scope:
            with ask.thinking():
                answer, by = await opened.thought(asked, tell)
            # It may have been withdrawn too late to be stopped.
            if self._close(asked.request) is opened:
                self.record(asked, answer.decision, by=by)
                return answer
        return None

    def withdraw(self, requests: Iterable[RequestId]) -> None:
        for request in requests:
            if (opened := self._close(request)) is not None:
                self.record(opened.asked, "none", by="cancelled")
                self.withdrawn.add(opened.asked.call or "")
                opened.scope.cancel()

    def withdraw_all(self) -> None:
        """Nobody waits for an answer any more."""
        self.withdraw(list(self._open))

    def record(self, asked: Q, decision: str, *, by: str) -> None:
        self._tap.say(Answered(request=str(asked.request), method=asked.method, decision=decision, by=by))

    def _close(self, request: RequestId) -> _Open[Q, A] | None:
        self._busy_until_s = self.busy_until_s
        return self._open.pop(request, None)


async def decide(ask: SessionAsk, question: Question, *, tell: Tell) -> tuple[Decision, str]:
    """What the caller says to a question, and on whose account: silence and failure are a denial."""
    assert ask.decide is not None, "nobody is there to be asked"
    try:
        decision = await callbacks.call(
            partial(ask.decide, question),
            read=Decision,
            deadline_s=ask.decide_deadline_s,
            on_given_up=lambda: tell(given_up(question.request)),
        )
    except callbacks.CallbackError as error:
        tell(failed(question.request, error))
        return Decision.DENY, "error"
    return (Decision.DENY, "deadline") if decision is None else (decision, "callback")


def failed(request: RequestId, error: callbacks.CallbackError) -> StepTaken:
    """Code of the caller's raised, or gave what it may not."""
    return StepTaken(step=CALLBACK_FAILED, detail={"request": str(request), "what": str(error)})


def given_up(request: RequestId) -> StepTaken:
    """Code of the caller's goes on for as long as it likes, and nobody waits for it."""
    what = "it does not end when it is cancelled"
    return StepTaken(step=CALLBACK_GIVEN_UP, detail={"request": str(request), "what": what})
