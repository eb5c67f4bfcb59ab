"""The agent's open questions to one session: each answered once, by policy, by whoever is asked, or by the clock."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from proctor.clock import Clock
from proctor.event.row import Answered, StepTaken
from proctor.protocol.jsonrpc import RequestId
from proctor.runtime.base import Decision, SessionAsk, Tap
from proctor.runtime.codex_app_server import policy, tools
from proctor.runtime.codex_app_server.inside import stays_inside
from proctor.runtime.codex_app_server.policy import Answer
from proctor.runtime.codex_app_server.questions import Asked, changed_paths, params_in
from proctor.runtime.codex_app_server.route import Envelope
from proctor.spec.model import Approvals

_PATCHES = frozenset({"item/fileChange/requestApproval", "applyPatchApproval"})


@dataclass(slots=True)
class _Open:
    asked: Asked
    thought: Callable[[Asked], Awaitable[tuple[Answer, str]]]
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

    async def consider(self, asked: Asked) -> Answer | None:
        """What comes of it, or None where the question was withdrawn meanwhile."""
        opened = self._open.get(asked.request)
        if opened is None or opened.asked is not asked:
            return None
        with opened.scope:
            answer, by = await opened.thought(asked)
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

    def _thought(self, asked: Asked) -> Callable[[Asked], Awaitable[tuple[Answer, str]]] | None:
        if self._ask is None:
            return None
        if asked.method == policy.TOOL_CALL and tools.named(self._ask.tools, asked.params) is not None:
            return self._call_tool
        if asked.method in policy.DECIDABLE and self._ask.approvals is Approvals.ASK and self._ask.decide is not None:
            return self._decide
        return None

    async def _decide(self, asked: Asked) -> tuple[Answer, str]:
        assert self._ask is not None
        assert self._ask.decide is not None
        decision, by = Decision.DENY, "deadline"
        try:
            with anyio.move_on_after(self._ask.decide_deadline_s):
                decision = Decision(await self._ask.decide(asked.question(paths=self._paths(asked))))
                by = "callback"
        except Exception as error:
            self._tell_failure(asked, error)
            by = "error"
        return self._shape(asked, decision), by

    async def _call_tool(self, asked: Asked) -> tuple[Answer, str]:
        assert self._ask is not None
        tool = tools.named(self._ask.tools, asked.params)
        assert tool is not None
        try:
            with anyio.move_on_after(self._ask.tool_deadline_s):
                return await tools.called(tool, asked.params), "tool"
        except Exception as error:
            self._tell_failure(asked, error)
            return tools.failed(f"{type(error).__name__}: {error}"), "error"
        return tools.failed(f"no answer within {self._ask.tool_deadline_s:g} s"), "deadline"

    def _tell_failure(self, asked: Asked, error: Exception) -> None:
        detail: dict[str, Any] = {"request": str(asked.request), "what": f"{type(error).__name__}: {error}"}
        self._tap.say(StepTaken(step="callback failed", detail=detail))

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
