"""Who answers when pi asks: the policy, or whoever was named to decide; each answer on record before it is given."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from proctor.clock import Clock
from proctor.event.row import CALLBACK_FAILED, Answered, StepTaken
from proctor.runtime.base import Decision, SessionAsk, Tap
from proctor.spec.model import Approvals, Sandbox
from proctor_pi.tools import Call

_WORDS = {Decision.ACCEPT: "accept", Decision.DENY: "decline"}
Give = Callable[[str, bool], Awaitable[None]]


class Desk:
    """`is_fenced` says that whatever is run is held by fences."""

    def __init__(self, ask: SessionAsk, tap: Tap, *, clock: Clock, is_fenced: bool) -> None:
        self._ask = ask
        self._tap = tap
        self._clock = clock
        self._is_fenced = is_fenced
        self._open: dict[str, tuple[str, anyio.CancelScope]] = {}
        self._busy_until_s = float("-inf")

    @property
    def busy_until_s(self) -> float:
        """Steady time until which pi waited for us: now, while it does."""
        return self._clock.steady_s() if self._open else self._busy_until_s

    async def take(self, request: str, call: Call | None, *, give: Give) -> None:
        """Answer one question. Without a call it is one that only a person could answer, and nobody does."""
        if call is None:
            self._record(request, "none", by="policy")
            await give(request, False)
            return
        if self._ask.approvals is Approvals.ASK and self._ask.decide is not None:
            await self._consider(request, call, give=give)
            return
        decision = self._by_policy(call)
        self._record(request, _WORDS[decision], by="policy")
        await give(request, decision is Decision.ACCEPT)

    def withdraw(self, call: str | None = None) -> None:
        """Nobody waits for an answer about this call any more, or about any."""
        for request, (about, scope) in list(self._open.items()):
            if call in (None, about):
                self._close(request)
                self._record(request, "none", by="cancelled")
                scope.cancel()

    def _by_policy(self, call: Call) -> Decision:
        """What stays inside the fences, or the workspace, needs nobody's leave; `deny` is about all else."""
        if self._ask.approvals is Approvals.ACCEPT or self._ask.sandbox is Sandbox.DANGER_FULL_ACCESS:
            return Decision.ACCEPT
        if call.kind == "patch":
            is_held = self._ask.sandbox is not Sandbox.READ_ONLY and _is_inside(self._ask.workspace, call.paths)
        else:
            is_held = self._is_fenced
        return Decision.ACCEPT if is_held else Decision.DENY

    async def _consider(self, request: str, call: Call, *, give: Give) -> None:
        assert self._ask.decide is not None
        decision, by = Decision.DENY, "deadline"
        with anyio.CancelScope() as scope:
            self._open[request] = (call.id, scope)
            with self._ask.thinking(), anyio.move_on_after(self._ask.decide_deadline_s):
                try:
                    decision, by = Decision(await self._ask.decide(call.question(request))), "callback"
                except Exception as error:  # it is somebody else's code
                    self._tap.say(StepTaken(step=CALLBACK_FAILED, detail={"request": request, "what": repr(error)}))
                    by = "error"
            if self._close(request):
                self._record(request, _WORDS[decision], by=by)
                await give(request, decision is Decision.ACCEPT)

    def _close(self, request: str) -> bool:
        self._busy_until_s = self.busy_until_s
        return self._open.pop(request, None) is not None

    def _record(self, request: str, decision: str, *, by: str) -> None:
        self._tap.say(Answered(request=request, method="confirm", decision=decision, by=by))


def _is_inside(workspace: Path, paths: tuple[str, ...]) -> bool:
    """With every link on the way followed; of no paths at all nothing is known."""
    root = os.path.realpath(workspace)
    return bool(paths) and all(
        Path(os.path.realpath(os.path.join(root, os.path.expanduser(path)))).is_relative_to(root)  # noqa: PTH111, PTH118
        for path in paths
    )
