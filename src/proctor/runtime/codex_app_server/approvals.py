"""Answer the agent's questions in one session: each once, by policy, by a callback, or by its deadline."""

from functools import partial

from proctor.clock import Clock
from proctor.runtime import callbacks
from proctor.runtime.base import Decision, SessionRequest, Tap
from proctor.runtime.codex_app_server import policy, tools
from proctor.runtime.codex_app_server.policy import Answer
from proctor.runtime.codex_app_server.questions import ServerRequest, changed_paths, params_in
from proctor.runtime.codex_app_server.route import Envelope
from proctor.runtime.inside_workspace import stays_inside
from proctor.runtime.open_questions import Answerer, OpenQuestions, RecordRow, decide, failed, given_up
from proctor.spec.choices import Approvals

_PATCHES = frozenset({"item/fileChange/requestApproval", "applyPatchApproval"})


class ApprovalHandler:
    """Records every answer before it is sent. Without a request, as for threads that no session owns, it denies all."""

    def __init__(self, request: SessionRequest | None, tap: Tap, *, clock: Clock) -> None:
        self._request = request
        self._clock = clock
        self._open_questions = OpenQuestions[ServerRequest, Answer](tap, clock=clock)
        self._patches: dict[str, tuple[str, ...]] = {}

    @property
    def busy_until_s(self) -> float:
        return self._open_questions.busy_until_s

    @property
    def withdrawn(self) -> set[str]:
        return self._open_questions.withdrawn

    # ── answers ──

    def take(self, question: ServerRequest) -> Answer | None:
        """Return the answer by policy. None if a callback must answer: then call `consider`."""
        answerer = self._answerer_for(question)
        if answerer is None:
            answer = self._to_answer(question, self._by_policy(question))
            self._open_questions.record(question, answer.decision, by="policy")
            return answer
        self._open_questions.enter(question, answerer)
        return None

    async def consider(self, question: ServerRequest, *, record_row: RecordRow) -> Answer | None:
        """Return the callback's answer. None if the question was withdrawn meanwhile."""
        assert self._request is not None, "without a request no question is opened"
        return await self._open_questions.consider(question, request=self._request, record_row=record_row)

    def withdraw_all(self) -> None:
        self._open_questions.withdraw_all()

    def on_message(self, envelope: Envelope, line: bytes) -> None:
        """Read from a frame what a question is about, or that the agent withdrew it."""
        match envelope.method:
            case "item/started" if envelope.item_type == "fileChange" and envelope.item:
                self._patches[envelope.item] = changed_paths(params_in(line).get("item", {}).get("changes"))
            case "item/fileChange/patchUpdated" if envelope.item:
                self._patches[envelope.item] = changed_paths(params_in(line).get("changes"))
            case "item/completed":
                self._patches.pop(envelope.item or "", None)
            case "serverRequest/resolved":
                # The server also sends this after an answer. Then no question is open.
                request_id = params_in(line).get("requestId")
                self._open_questions.withdraw([request_id] if isinstance(request_id, int | str) else [])
            case "turn/completed":
                self._open_questions.withdraw(
                    [
                        each.request
                        for each in self._open_questions.questions
                        if each.params.get("turnId") == envelope.turn
                    ]
                )

    # ── by policy ──

    def _by_policy(self, question: ServerRequest) -> Decision:
        is_accepted = False
        if self._request is not None and question.method != policy.PERMISSIONS:
            match self._request.approvals:
                case Approvals.ACCEPT:
                    is_accepted = True
                case Approvals.WORKSPACE:
                    # A question about a command does not say whether it would leave the sandbox; if accepted, it runs
                    # outside it (seen with 0.163). Codex does not ask about commands inside the sandbox.
                    is_accepted = (
                        question.method in _PATCHES
                        and question.params.get("grantRoot") is None
                        and stays_inside(self._request.workspace, self._paths(question))
                    )
        return Decision.ACCEPT if is_accepted else Decision.DENY

    def _paths(self, question: ServerRequest) -> tuple[str, ...]:
        if "fileChanges" in question.params:
            return changed_paths(question.params["fileChanges"])
        return self._patches.get(question.call or "", ())

    def _to_answer(self, question: ServerRequest, decision: Decision) -> Answer:
        return policy.answer(
            question.method,
            decision,
            params=question.params,
            now_s=self._clock.wall_ms() // 1000,
            is_mcp_call=question.is_mcp_call,
        )

    # ── by a callback ──

    def _answerer_for(self, question: ServerRequest) -> Answerer[ServerRequest, Answer] | None:
        if self._request is None:
            return None
        if question.method == policy.TOOL_CALL and tools.find_tool(self._request.tools, question.params) is not None:
            return self._call_tool
        if (
            (question.method in policy.DECIDABLE or question.is_mcp_call)
            and self._request.approvals is Approvals.ASK
            and self._request.decide is not None
        ):
            return self._decide
        return None

    async def _decide(self, question: ServerRequest, record_row: RecordRow) -> tuple[Answer, str]:
        assert self._request is not None
        decision, by = await decide(
            self._request, question.to_question(paths=self._paths(question)), record_row=record_row
        )
        return self._to_answer(question, decision), by

    async def _call_tool(self, question: ServerRequest, record_row: RecordRow) -> tuple[Answer, str]:
        assert self._request is not None
        tool = tools.find_tool(self._request.tools, question.params)
        assert tool is not None
        try:
            answer = await callbacks.call(
                partial(tool.call, question.params.get("arguments")),
                read=tools.success_answer,
                deadline_s=self._request.tool_deadline_s,
                on_given_up=lambda: record_row(given_up(question.request)),
            )
        except callbacks.CallbackError as error:
            record_row(failed(question.request, error))
            return tools.failure_answer(str(error)), "error"
        if answer is None:
            return tools.failure_answer(f"no answer within {self._request.tool_deadline_s:g} s"), "deadline"
        return answer, "tool"
