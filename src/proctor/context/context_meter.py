"""Measures how full the agent's context window is, and how many bytes are a token."""

from contextlib import suppress
from dataclasses import replace

import msgspec

from proctor.context.budget import ASSUMED_RATIO, Budget, TokenRatio, budget_for, calibrate, message_bytes
from proctor.context.model import RecordedTurn
from proctor.context.payload import utf8_bytes
from proctor.context.project import Projection
from proctor.errors import ProctorError
from proctor.runtime.base import ContextUse, Session


class ContextMeter:
    """What is known of the context window of one sitting. Unknown until the agent has reported something."""

    def __init__(self, *, configured_window: int | None) -> None:
        self.ratio: TokenRatio = ASSUMED_RATIO
        self._configured_window = configured_window
        self._use = ContextUse()
        self._given_bytes = 0
        self._is_comparable = False

    @property
    def budget(self) -> Budget:
        """How many tokens of context fit into a turn."""
        fixed = self._use.fixed_prompt_tokens or 0
        budget = budget_for(
            reported_window=self._use.window_tokens,
            configured_window=self._configured_window,
            fixed_prompt_tokens=fixed,
        )
        if self._use.compacts_at_tokens is None:
            return budget
        # Otherwise the agent would compact a new thread as soon as it was given all of this.
        most = max(0, self._use.compacts_at_tokens - fixed)
        return msgspec.structs.replace(budget, history=min(budget.history, most))

    @property
    def room_tokens(self) -> int | None:
        """How much the open thread can take before the agent shortens it. None if that is unknown."""
        if self._use.used_tokens is None or self._use.window_tokens is None:
            return None
        budget = self.budget
        # The tokens in use include the agent's own prompt, which the reserve counts too.
        limit = budget.window - (budget.reserve - (self._use.fixed_prompt_tokens or 0))
        if self._use.compacts_at_tokens is not None:
            limit = min(limit, self._use.compacts_at_tokens)
        return max(0, limit - self._use.used_tokens)

    def forget_used(self) -> None:
        """Forget how full the thread is: another one is open, or the agent has shortened this one."""
        self._use = replace(self._use, used_tokens=None)
        self._is_comparable = False

    def note_given(self, given: Projection) -> None:
        """Note what the thread is given in the turn that begins."""
        self._given_bytes = sum(map(message_bytes, given.items)) + utf8_bytes(given.prompt_text)

    async def measure(self, session: Session, turn: RecordedTurn) -> None:
        """Ask the agent after a turn. The ratio is measured from two turns of one thread."""
        before = self._use.used_tokens if self._is_comparable else None
        with suppress(ProctorError):
            self._use = await session.read_context()
        used = self._use.used_tokens
        if before is not None and used is not None:
            added_bytes = self._given_bytes + sum(map(message_bytes, turn.messages[1:]))
            self.ratio = calibrate(self.ratio, added_bytes=added_bytes, added_tokens=used - before)
        self._is_comparable = used is not None
