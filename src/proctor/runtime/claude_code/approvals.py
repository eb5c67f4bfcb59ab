"""Answer Claude Code's requests to use tools: each once, by the sandbox, by policy, or by a callback."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from proctor.clock import Clock
from proctor.runtime import callbacks
from proctor.runtime.base import Decision, SessionRequest, Tap
from proctor.runtime.claude_code import tools
from proctor.runtime.claude_code.questions import Answer, ToolQuestion, answer
from proctor.runtime.inside_workspace import stays_inside
from proctor.runtime.open_questions import OpenQuestions, RecordRow, decide, failed, given_up
from proctor.spec.choices import Approvals, Sandbox


class ApprovalHandler:
    """Records every answer before it is sent.

    Claude Code has no sandbox and asks about nearly every call. What the fences allow is accepted at once, and the
    policy applies to the rest.
    """

    def __init__(self, request: SessionRequest, tap: Tap, *, clock: Clock, is_fenced: bool) -> None:
        self._request = request
        self._is_fenced = is_fenced
        self.open_questions = OpenQuestions[ToolQuestion, Answer](tap, clock=clock)

    def take(self, question: ToolQuestion) -> Answer | None:
        """Return the answer to a question, or None if a callback must be asked: then pass it to `consider`."""
        if question.is_ours:
            return self._record_answer(question, Decision.ACCEPT, by="tool")
        if self._is_allowed(question):
            return self._record_answer(question, Decision.ACCEPT, by="sandbox")
        if self._request.approvals is Approvals.ASK and self._request.decide is not None:
            self.open_questions.enter(question, self._decide)
            return None
        return self._record_answer(question, self._by_policy(question), by="policy")

    def take_call(self, request: str, message: Mapping[str, Any]) -> ToolQuestion | Mapping[str, Any]:
        """Return the reply to a message for Proctor's tools, or the question for `consider` if it calls one."""
        called = tools.find_called_tool(self._request.tools, message)
        if called is None:
            return {"mcp_response": tools.reply_to(self._request.tools, message)}
        tool, arguments = called
        question = ToolQuestion(request=request, tool=tool.name, input={}, call=None, method="tools/call")

        async def call(_: ToolQuestion, record_row: RecordRow) -> tuple[Answer, str]:
            try:
                answer = await callbacks.call(
                    partial(tool.call, arguments),
                    read=partial(tools.success_answer, message),
                    deadline_s=self._request.tool_deadline_s,
                    on_given_up=lambda: record_row(given_up(request)),
                )
            except callbacks.CallbackError as error:
                record_row(failed(request, error))
                return tools.failure_answer(message, str(error)), "error"
            if answer is None:
                return tools.failure_answer(
                    message, f"no answer within {self._request.tool_deadline_s:g} s"
                ), "deadline"
            return answer, "tool"

        self.open_questions.enter(question, call)
        return question

    async def consider(self, question: ToolQuestion, *, record_row: RecordRow) -> Answer | None:
        return await self.open_questions.consider(question, request=self._request, record_row=record_row)

    def _is_allowed(self, question: ToolQuestion) -> bool:
        if question.is_escalated:
            return False
        if self._request.sandbox is Sandbox.DANGER_FULL_ACCESS:
            return True
        is_patch_inside = self._request.sandbox is Sandbox.WORKSPACE_WRITE and self._is_inside(question)
        return self._is_fenced and (question.is_command or question.is_reading or is_patch_inside)

    def _by_policy(self, question: ToolQuestion) -> Decision:
        match self._request.approvals:
            case Approvals.ACCEPT:
                is_accepted = True
            case Approvals.WORKSPACE:
                is_accepted = self._is_inside(question)
            case _:
                is_accepted = False
        return Decision.ACCEPT if is_accepted else Decision.DENY

    def _is_inside(self, question: ToolQuestion) -> bool:
        return stays_inside(self._request.workspace, question.paths)

    async def _decide(self, question: ToolQuestion, record_row: RecordRow) -> tuple[Answer, str]:
        decision, by = await decide(
            self._request, question.to_question(cwd=str(self._request.workspace)), record_row=record_row
        )
        return answer(question, decision), by

    def _record_answer(self, question: ToolQuestion, decision: Decision, *, by: str) -> Answer:
        reply = answer(question, decision)
        self.open_questions.record(question, reply.decision, by=by)
        return reply
