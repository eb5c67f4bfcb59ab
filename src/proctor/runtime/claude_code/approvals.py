"""Claude Code's wishes to use tools, each answered once: by the sandbox, by policy, or by whoever is asked."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from proctor.clock import Clock
from proctor.runtime import callbacks
from proctor.runtime.base import Decision, SessionAsk, Tap
from proctor.runtime.claude_code import tools
from proctor.runtime.claude_code.questions import Answer, Asked, answer
from proctor.runtime.desk import Book, Tell, decide, failed, given_up
from proctor.runtime.inside import stays_inside
from proctor.spec.model import Approvals, Sandbox


class Desk:
    """Every answer is on record before it is given.

    An agent with a sandbox of its own does not ask for what that allows. This one has none and asks for nearly all, so
    what our fences allow is answered with a yes; the policy is for what is left.
    """

    def __init__(self, ask: SessionAsk, tap: Tap, *, clock: Clock, is_fenced: bool) -> None:
        self._ask = ask
        self._is_fenced = is_fenced
        self.book = Book[Asked, Answer](tap, clock=clock)

    def take(self, asked: Asked) -> Answer | None:
        """The answer that can be given at once; None where it takes thought, which `consider` must then be given."""
        if asked.is_ours:
            return self._answered(asked, Decision.ACCEPT, by="tool")
        if self._is_allowed(asked):
            return self._answered(asked, Decision.ACCEPT, by="sandbox")
        if self._ask.approvals is Approvals.ASK and self._ask.decide is not None:
            self.book.enter(asked, self._decide)
            return None
        return self._answered(asked, self._by_policy(asked), by="policy")

    def take_call(self, request: str, message: Mapping[str, Any]) -> Asked | Mapping[str, Any]:
        """What is said to a message for our tools; where one of them is called, what to give to `consider`."""
        found = tools.called(self._ask.tools, message)
        if found is None:
            return {"mcp_response": tools.replied(self._ask.tools, message)}
        tool, given = found
        asked = Asked(request=request, tool=tool.name, input={}, call=None, method="tools/call")

        async def call(_: Asked, tell: Tell) -> tuple[Answer, str]:
            try:
                answer = await callbacks.call(
                    partial(tool.call, given),
                    read=partial(tools.answered, message),
                    deadline_s=self._ask.tool_deadline_s,
                    on_given_up=lambda: tell(given_up(request)),
                )
            except callbacks.CallbackError as error:
                tell(failed(request, error))
                return tools.failed(message, str(error)), "error"
            if answer is None:
                return tools.failed(message, f"no answer within {self._ask.tool_deadline_s:g} s"), "deadline"
            return answer, "tool"

        self.book.enter(asked, call)
        return asked

    async def consider(self, asked: Asked, *, tell: Tell) -> Answer | None:
        return await self.book.consider(asked, ask=self._ask, tell=tell)

    def _is_allowed(self, asked: Asked) -> bool:
        if asked.is_escalated:
            return False
        if self._ask.sandbox is Sandbox.DANGER_FULL_ACCESS:
            return True
        is_patch_inside = self._ask.sandbox is Sandbox.WORKSPACE_WRITE and self._is_inside(asked)
        return self._is_fenced and (asked.is_command or asked.is_reading or is_patch_inside)

    def _by_policy(self, asked: Asked) -> Decision:
        match self._ask.approvals:
            case Approvals.ACCEPT:
                is_accepted = True
            case Approvals.WORKSPACE:
                is_accepted = self._is_inside(asked)
            case _:
                is_accepted = False
        return Decision.ACCEPT if is_accepted else Decision.DENY

    def _is_inside(self, asked: Asked) -> bool:
        return stays_inside(self._ask.workspace, asked.paths)

    async def _decide(self, asked: Asked, tell: Tell) -> tuple[Answer, str]:
        decision, by = await decide(self._ask, asked.question(cwd=str(self._ask.workspace)), tell=tell)
        return answer(asked, decision), by

    def _answered(self, asked: Asked, decision: Decision, *, by: str) -> Answer:
        given = answer(asked, decision)
        self.book.record(asked, given.decision, by=by)
        return given
