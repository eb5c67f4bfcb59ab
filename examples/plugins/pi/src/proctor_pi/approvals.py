"""Answer pi's questions by policy or by a callback. Each answer is recorded before it is sent."""

import os
import re
from dataclasses import dataclass

from proctor.clock import Clock
from proctor.runtime.base import Decision, SessionRequest, Tap
from proctor.runtime.inside_workspace import stays_inside
from proctor.runtime.open_questions import OpenQuestions, RecordRow, decide
from proctor.spec.choices import Approvals, Sandbox
from proctor_pi.tools import Call

_WORDS = {Decision.ACCEPT: "accept", Decision.DENY: "decline"}
_PROTECTED = (".pi",)  # pi runs what it finds there
_SPACES = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PiQuestion:
    """A question from pi. One that is not about a tool call cannot be answered."""

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


class ApprovalHandler:
    """Records every answer before it is sent. `is_fenced` says whether fences restrict the commands that pi runs."""

    def __init__(self, request: SessionRequest, tap: Tap, *, clock: Clock, is_fenced: bool) -> None:
        self._request = request
        self._is_fenced = is_fenced
        self.open_questions = OpenQuestions[PiQuestion, Answer](tap, clock=clock)

    def take(self, question: PiQuestion) -> Answer | None:
        """Return the answer to a question, or None if a callback must be asked: then pass it to `consider`."""
        if question.about is None:
            answer = Answer("none")
        elif self._request.approvals is Approvals.ASK and self._request.decide is not None:
            self.open_questions.enter(question, self._decide)
            return None
        else:
            answer = Answer(_WORDS[self._by_policy(question.about)])
        self.open_questions.record(question, answer.decision, by="policy")
        return answer

    async def consider(self, question: PiQuestion, *, record_row: RecordRow) -> Answer | None:
        return await self.open_questions.consider(question, request=self._request, record_row=record_row)

    def withdraw(self, call: str) -> None:
        """Withdraw the questions about a call that has ended."""
        self.open_questions.withdraw([each.request for each in self.open_questions.questions if each.call == call])

    def _by_policy(self, call: Call) -> Decision:
        """Accept what stays inside the fences or the workspace. `deny` applies to everything else."""
        if self._request.approvals is Approvals.ACCEPT or self._request.sandbox is Sandbox.DANGER_FULL_ACCESS:
            return Decision.ACCEPT
        if call.kind == "patch":
            paths = [_expand(path) for path in call.paths]
            is_allowed = self._request.sandbox is not Sandbox.READ_ONLY and stays_inside(
                self._request.workspace, paths, protected=_PROTECTED
            )
        else:
            is_allowed = self._is_fenced
        return Decision.ACCEPT if is_allowed else Decision.DENY

    async def _decide(self, question: PiQuestion, record_row: RecordRow) -> tuple[Answer, str]:
        assert question.about is not None
        decision, by = await decide(self._request, question.about.to_question(question.request), record_row=record_row)
        return Answer(_WORDS[decision]), by


def _expand(path: str) -> str:
    """Return a path as pi's `path-utils.js` reads it: `@/etc/passwd` is `/etc/passwd`."""
    return os.path.expanduser(_SPACES.sub(" ", path.removeprefix("@")))  # noqa: PTH111
