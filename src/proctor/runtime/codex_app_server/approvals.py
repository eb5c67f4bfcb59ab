"""The agent's open questions to one session: each answered once, by policy, by whoever is asked, or by the clock."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio

from proctor.clock import Clock
from proctor.event.row import CALLBACK_FAILED, CALLBACK_GIVEN_UP, Answered, Seen, StepTaken
from proctor.protocol.jsonrpc import RequestId
from proctor.runtime.base import Decision, SessionAsk, Tap
from proctor.runtime.codex_app_server import callbacks, policy, tools
from proctor.runtime.codex_app_server.inside import stays_inside
from proctor.runtime.codex_app_server.policy import Answer
from proctor.runtime.codex_app_server.questions import Asked, changed_paths, params_in
from proctor.runtime.codex_app_server.route import Envelope
from proctor.spec.model import Approvals

_PATCHES = frozenset({"item/fileChange/requestApproval", "applyPatchApproval"})

Tell = Callable[[Seen], None]
Thought = Callable[[Asked, Tell], Awaitable[tuple[Answer, str]]]


@dataclass(slots=True)
class _Open:
    asked: Asked
    thought: Thought
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Desk:
    """Every answer is on record before it is given. Without an ask, as for threads of nobody's, all is denied."""

    def __init__(self, ask: SessionAsk | None, tap: Tap, *, clock: Clock) -> None:
        self._ask = ask
        self._tap = tap
        self._clock = clock
        self._open: dict[RequestId, _Open] = {}
        self._busy_until_s = float("-inf")
        self._patches: dict[str, tuple[str, ...]] = {}
        self.withdrawn: set[str] = set()
        """Items that were asked about, and for which no answer was given."""

    @property
    def busy_until_s(self) -> float:
        """Steady time until which the agent waited for us: now, while it does."""
        return self._clock.steady_s() if self._open else self._busy_until_s

    # ── answers ──

    def take(self, asked: Asked) -> Answer | None:
        """The answer that policy gives; None where it takes thought, which `consider` must then be given."""
        thought = self._thought(asked)
        if thought is None:
            answer = self._shape(asked, self._by_policy(asked))
            self._record(asked, answer.decision, by="policy")
            return answer
        self._withdraw([asked.request])
        self.withdrawn.discard(asked.call or "")
        self._open[asked.request] = _Open(asked, thought)
        return None

    async def consider(self, asked: Asked, *, tell: Tell) -> Answer | None:
        """What comes of it, or None where the question was withdrawn meanwhile.

        A callback may outlive its session, so `tell` finds the record in which its trouble belongs.
        """
        opened = self._open.get(asked.request)
        if opened is None or opened.asked is not asked:
            return None
        assert self._ask is not None, "who asks nobody has nothing to consider"
        with opened.scope:
            with self._ask.thinking():
                answer, by = await opened.thought(asked, tell)
            # It may have been withdrawn too late to be stopped.
            if self._close(asked.request) is opened:
                self._record(asked, answer.decision, by=by)
                return answer
        return None

    def withdraw_all(self) -> None:
        """Nobody waits for an answer any more."""
        self._withdraw(list(self._open))

    def heard(self, envelope: Envelope, line: bytes) -> None:
        """Frames that say what a question is about, or that it is over."""
        match envelope.method:
            case "item/started" if envelope.item_type == "fileChange" and envelope.item:
                self._patches[envelope.item] = changed_paths(params_in(line).get("item", {}).get("changes"))
            case "item/fileChange/patchUpdated" if envelope.item:
                self._patches[envelope.item] = changed_paths(params_in(line).get("changes"))
            case "item/completed":
                self._patches.pop(envelope.item or "", None)
            case "serverRequest/resolved":
                # It also comes after an answer of ours, and then finds nothing open.
                request = params_in(line).get("requestId")
                self._withdraw([request] if isinstance(request, int | str) else [])
            case "turn/completed":
                self._withdraw(
                    [
                        each.asked.request
                        for each in self._open.values()
                        if each.asked.params.get("turnId") == envelope.turn
                    ]
                )

    # ── by policy ──

    def _by_policy(self, asked: Asked) -> Decision:
        is_accepted = False
        if self._ask is not None and asked.method != policy.PERMISSIONS:
            match self._ask.approvals:
                case Approvals.ACCEPT:
                    is_accepted = True
                case Approvals.WORKSPACE:
                    # A command's question looks the same whether or not it is to run outside the sandbox, and
                    # accepted it does (seen with 0.163). What stays in the sandbox need not ask.
                    is_accepted = (
                        asked.method in _PATCHES
                        and asked.params.get("grantRoot") is None
                        and stays_inside(self._ask.workspace, self._paths(asked))
                    )
        return Decision.ACCEPT if is_accepted else Decision.DENY

    def _paths(self, asked: Asked) -> tuple[str, ...]:
        if "fileChanges" in asked.params:
            return changed_paths(asked.params["fileChanges"])
        return self._patches.get(asked.call or "", ())

    def _shape(self, asked: Asked, decision: Decision) -> Answer:
        return policy.answer(asked.method, decision, params=asked.params, now_s=self._clock.wall_ms() // 1000)

    # ── by thought ──

    def _thought(self, asked: Asked) -> Thought | None:
        if self._ask is None:
            return None
        if asked.method == policy.TOOL_CALL and tools.named(self._ask.tools, asked.params) is not None:
            return self._call_tool
        if asked.method in policy.DECIDABLE and self._ask.approvals is Approvals.ASK and self._ask.decide is not None:
            return self._decide
        return None

    async def _decide(self, asked: Asked, tell: Tell) -> tuple[Answer, str]:
        assert self._ask is not None
        assert self._ask.decide is not None
        decision: Decision | None = None
        try:
            decision = await callbacks.call(
                partial(self._ask.decide, asked.question(paths=self._paths(asked))),
                read=Decision,
                deadline_s=self._ask.decide_deadline_s,
                on_given_up=lambda: tell(_trouble(CALLBACK_GIVEN_UP, asked, "it does not end when it is cancelled")),
            )
            by = "deadline" if decision is None else "callback"
        except callbacks.CallbackError as error:
            tell(_trouble(CALLBACK_FAILED, asked, str(error)))
            by = "error"
        return self._shape(asked, decision or Decision.DENY), by

    async def _call_tool(self, asked: Asked, tell: Tell) -> tuple[Answer, str]:
        assert self._ask is not None
        tool = tools.named(self._ask.tools, asked.params)
        assert tool is not None
        try:
            answer = await callbacks.call(
                partial(tool.call, asked.params.get("arguments")),
                read=tools.answered,
                deadline_s=self._ask.tool_deadline_s,
                on_given_up=lambda: tell(_trouble(CALLBACK_GIVEN_UP, asked, "it does not end when it is cancelled")),
            )
        except callbacks.CallbackError as error:
            tell(_trouble(CALLBACK_FAILED, asked, str(error)))
            return tools.failed(str(error)), "error"
        if answer is None:
            return tools.failed(f"no answer within {self._ask.tool_deadline_s:g} s"), "deadline"
        return answer, "tool"

    # ── the book ──

    def _withdraw(self, requests: Sequence[RequestId]) -> None:
        for request in requests:
            if (opened := self._close(request)) is not None:
                self._record(opened.asked, "none", by="cancelled")
                self.withdrawn.add(opened.asked.call or "")
                opened.scope.cancel()

    def _close(self, request: RequestId) -> _Open | None:
        self._busy_until_s = self.busy_until_s
        return self._open.pop(request, None)

    def _record(self, asked: Asked, decision: str, *, by: str) -> None:
        self._tap.say(Answered(request=str(asked.request), method=asked.method, decision=decision, by=by))


def _trouble(step: str, asked: Asked, what: str) -> StepTaken:
    return StepTaken(step=step, detail={"request": str(asked.request), "what": what})
