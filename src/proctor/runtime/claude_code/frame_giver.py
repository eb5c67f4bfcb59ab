"""Add messages to Claude Code's thread: one frame at a time, each after the program has processed the one before."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import anyio

from proctor.errors import DeadlineError, HangupError, RefusedError
from proctor.runtime.base import Tap
from proctor.runtime.claude_code.turns import OPEN_STATES, Turns
from proctor.runtime.conversion import Conversion, NativeItem
from proctor.runtime.delivery import receipt_of

BASE_S = 30.0
"""How long giving may take, plus `FRAME_S` for each frame."""
FRAME_S = 0.1
"""The program takes about 13 ms for a frame."""

Send = Callable[[Mapping[str, Any]], Awaitable[None]]


@dataclass(slots=True)
class _SentFrame:
    """A frame that was sent, and the last state that the program reported for it."""

    uuid: str
    state: str | None = None
    done: anyio.Event = field(default_factory=anyio.Event)


class FrameGiver:
    """Sends the frames of one session.

    The program applies `assistant` frames at once and `user` frames late. Frames that do not wait for the one before
    arrive at the model in another order.
    """

    def __init__(self, send: Send, turns: Turns, tap: Tap, *, base_s: float = BASE_S) -> None:
        self.is_busy = False
        self._send = send
        self._turns = turns
        self._tap = tap
        self._base_s = base_s
        self._current: _SentFrame | None = None
        self._hangup: str | None = None

    async def give(self, conversion: Conversion) -> None:
        """Send all frames and record the receipt, also of those that were processed before the program went wrong.

        Raises RefusedError, HangupError, or DeadlineError if not all are processed in time.
        """
        items, sent = conversion.items, 0
        limit_s = self._base_s + FRAME_S * len(items)
        self.is_busy = True
        try:
            with anyio.fail_after(limit_s):
                for item in items:
                    await self._give_frame(item)
                    sent += 1
        except TimeoutError:
            problem = f"{sent} of {len(items)} given messages were processed within {limit_s:g} s"
            self._record_part(items[:sent], problem)
            raise DeadlineError("peer.deadline", problem) from None
        except RefusedError as error:
            self._record_part(items[:sent], error.what)
            raise
        finally:
            self.is_busy = False
        self._tap.record(receipt_of(conversion))

    async def _give_frame(self, item: NativeItem) -> None:
        frame = self._current = _SentFrame(str(uuid4()))
        self._turns.give(frame.uuid)
        query = {"shouldQuery": False} if item.value["type"] == "user" else {}
        await self._send({**item.value, "parent_tool_use_id": None, "session_id": "", "uuid": frame.uuid, **query})
        if self._hangup is None:
            await frame.done.wait()
        if frame.state is None:
            raise HangupError("peer.hangup", self._hangup or "the channel closed")
        if frame.state != "completed":
            raise RefusedError("peer.refused", f"the program reported a given message as {frame.state}")

    def _record_part(self, items: Sequence[NativeItem], problem: str) -> None:
        self._tap.record(receipt_of(Conversion(items=tuple(items)), problem=problem))

    def heard_state(self, message: str, state: str) -> None:
        """Note the reported state of a message."""
        if self._current is not None and self._current.uuid == message and state not in OPEN_STATES:
            self._current.state = state
            self._current.done.set()

    def hang_up(self, cause: str) -> None:
        """End the wait for the program, which has ended."""
        self._hangup = cause
        if self._current is not None:
            self._current.done.set()
