"""Who answers when pi asks: the policy, or whoever was named to decide; each answer on record before it is given."""

import os
import re
from dataclasses import dataclass

from proctor.clock import Clock
from proctor.runtime.base import Decision, SessionAsk, Tap
from proctor.runtime.desk import Book, Tell, decide
from proctor.runtime.inside import stays_inside
from proctor.spec.model import Approvals, Sandbox
from proctor_pi.tools import Call

_WORDS = {Decision.ACCEPT: "accept", Decision.DENY: "decline"}
_SPACES = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question of pi's. One that is about no call only a person could answer."""

    request: str
    about: Call | None
    method: str = "confirm"

    @property
    def call(self) -> str | None:
        return None if self.about is None else self.about.id


@dataclass(frozen=True, slots=True)
class Answer:
    decision: str

    @property
    def is_allowed(self) -> bool:
        return self.decision == _WORDS[Decision.ACCEPT]


class Desk:
    """`is_fenced` says that whatever is run is held by fences."""

    def __init__(self, ask: SessionAsk, tap: Tap, *, clock: Clock, is_fenced: bool) -> None:
        self._ask = ask
        self._is_fenced = is_fenced
        self.book = Book[Asked, Answer](tap, clock=clock)

    def take(self, asked: Asked) -> Answer | None:
        """The answer that can be given at once; None where it takes thought, which `consider` must then be given."""
        if asked.about is None:
            answer = Answer("none")
        elif self._ask.approvals is Approvals.ASK and self._ask.decide is not None:
            self.book.enter(asked, self._decide)
            return None
        else:
            answer = Answer(_WORDS[self._by_policy(asked.about)])
        self.book.record(asked, answer.decision, by="policy")
        return answer

    async def consider(self, asked: Asked, *, tell: Tell) -> Answer | None:
        return await self.book.consider(asked, ask=self._ask, tell=tell)

    def withdraw(self, call: str) -> None:
        """Nobody waits for an answer about this call any more."""
        self.book.withdraw([each.request for each in self.book.questions if each.call == call])

    def _by_policy(self, call: Call) -> Decision:
        """What stays inside the fences, or the workspace, needs nobody's leave; `deny` is about all else."""
        if self._ask.approvals is Approvals.ACCEPT or self._ask.sandbox is Sandbox.DANGER_FULL_ACCESS:
            return Decision.ACCEPT
        if call.kind == "patch":
            paths = [_expanded(path) for path in call.paths]
            is_held = self._ask.sandbox is not Sandbox.READ_ONLY and stays_inside(self._ask.workspace, paths)
        else:
            is_held = self._is_fenced
        return Decision.ACCEPT if is_held else Decision.DENY

    async def _decide(self, asked: Asked, tell: Tell) -> tuple[Answer, str]:
        assert asked.about is not None
        decision, by = await decide(self._ask, asked.about.question(asked.request), tell=tell)
        return Answer(_WORDS[decision]), by


def _expanded(path: str) -> str:
    """As pi reads it (its `path-utils.js`): `@/etc/passwd` is no file of the workspace."""
    return os.path.expanduser(_SPACES.sub(" ", path.removeprefix("@")))  # noqa: PTH111
