"""The agent's questions to one session: each answered once, by policy, by whoever is asked, or by the clock."""

from functools import partial

from proctor.clock import Clock
from proctor.runtime import callbacks
from proctor.runtime.base import Decision, SessionAsk, Tap
from proctor.runtime.codex_app_server import policy, tools
from proctor.runtime.codex_app_server.policy import Answer
from proctor.runtime.codex_app_server.questions import Asked, changed_paths, params_in
from proctor.runtime.codex_app_server.route import Envelope
from proctor.runtime.desk import Book, Tell, Thought, decide, failed, given_up
from proctor.runtime.inside import stays_inside
from proctor.spec.model import Approvals

_PATCHES = frozenset({"item/fileChange/requestApproval", "applyPatchApproval"})


class Desk:
    """Every answer is on record before it is given. Without an ask, as for threads of nobody's, all is denied."""

    def __init__(self, ask: SessionAsk | None, tap: Tap, *, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._book = Book[Asked, Answer](tap, clock=clock)
        self._patches: dict[str, tuple[str, ...]] = {}

    @property
    def busy_until_s(self) -> float:
        return self._book.busy_until_s

    @property
    def withdrawn(self) -> set[str]:
        return self._book.withdrawn

    # ── answers ──

    def take(self, asked: Asked) -> Answer | None:
        """The answer that policy gives; None where it takes thought, which `consider` must then be given."""
        thought = self._thought(asked)
        if thought is None:
            answer = self._shape(asked, self._by_policy(asked))
            self._book.record(asked, answer.decision, by="policy")
            return answer
        self._book.enter(asked, thought)
        return None

    async def consider(self, asked: Asked, *, tell: Tell) -> Answer | None:
        """What comes of it, or None where the question was withdrawn meanwhile."""
        assert self._ask is not None, "who asks nobody has nothing to consider"
        return await self._book.consider(asked, ask=self._ask, tell=tell)

    def withdraw_all(self) -> None:
        self._book.withdraw_all()

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
                self._book.withdraw([request] if isinstance(request, int | str) else [])
            case "turn/completed":
                self._book.withdraw(
                    [each.request for each in self._book.questions if each.params.get("turnId") == envelope.turn]
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

    def _thought(self, asked: Asked) -> Thought[Asked, Answer] | None:
        if self._ask is None:
            return None
        if asked.method == policy.TOOL_CALL and tools.named(self._ask.tools, asked.params) is not None:
            return self._call_tool
        if asked.method in policy.DECIDABLE and self._ask.approvals is Approvals.ASK and self._ask.decide is not None:
            return self._decide
        return None

    async def _decide(self, asked: Asked, tell: Tell) -> tuple[Answer, str]:
        assert self._ask is not None
        decision, by = await decide(self._ask, asked.question(paths=self._paths(asked)), tell=tell)
        return self._shape(asked, decision), by

    async def _call_tool(self, asked: Asked, tell: Tell) -> tuple[Answer, str]:
        assert self._ask is not None
        tool = tools.named(self._ask.tools, asked.params)
        assert tool is not None
        try:
            answer = await callbacks.call(
                partial(tool.call, asked.params.get("arguments")),
                read=tools.answered,
                deadline_s=self._ask.tool_deadline_s,
                on_given_up=lambda: tell(given_up(asked.request)),
            )
        except callbacks.CallbackError as error:
            tell(failed(asked.request, error))
            return tools.failed(str(error)), "error"
        if answer is None:
            return tools.failed(f"no answer within {self._ask.tool_deadline_s:g} s"), "deadline"
        return answer, "tool"
